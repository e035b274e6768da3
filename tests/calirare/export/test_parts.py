"""Parts of a query: ranks, normal scores, maps, literals, and what is refused."""

from __future__ import annotations

import dataclasses
import sqlite3

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtri

from calirare._util.errors import InputError
from calirare.calibration import FORM_SD, AffineCalibrator, JackknifeCalibrator, PriorPlattCalibrator
from calirare.calibration.positive_only import PositiveOnlyCalibrator
from calirare.export import DIALECTS, Names
from calirare.export.arithmetic import mixed
from calirare.export.maps import log_odds
from calirare.export.sql.dialects import number
from calirare.export.sql.nodes import scored_rows
from calirare.export.sql.query import edge_reading
from calirare.export.sql.ranks import normal_score, rank_of, reduced
from calirare.export.sql.script import MOST_COLUMNS, Script, linear
from calirare.export.sql.terms import Term
from calirare.export.sql.words import named
from calirare.features.numeric import Ranked
from calirare.graph import plain_name
from calirare.run import Data, Settings
from tests.helpers.warehouse import ENGINES

SQLITE, NAMES = DIALECTS["sqlite"], Names()
X = Term(SQLITE, "x")


def computed(expression, x):
    """Returns an expression of a column x as SQLite computes it."""
    engine = sqlite3.connect(":memory:")
    engine.execute("CREATE TABLE t(x REAL)")
    engine.executemany("INSERT INTO t VALUES (?)", [(float(value),) for value in x])
    found = np.array([row[0] for row in engine.execute(f"SELECT {expression} FROM t ORDER BY rowid")])
    engine.close()
    return found


def off(found, wanted):
    return float(np.abs(found - np.asarray(wanted)).max())


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_and_their_scores_are_those_of_the_map(ties):
    rng = np.random.default_rng(0)
    quantiles = np.sort(rng.integers(0, 6, 40) if ties else rng.normal(size=40)).astype(float)
    x = np.concatenate([quantiles, quantiles + 0.01, rng.uniform(-4, 9, 200), [-100.0, 100.0]])
    fitted = Ranked((0,), ("a",), np.array([np.nan]), quantiles[:, None])
    wanted = fitted.scaled(x[:, None], slice(0, 1))[:, 0]
    p = computed(rank_of("x", quantiles), x)
    assert off(ndtri(p), wanted) < 1e-9
    assert off(computed(normal_score("x", f"({reduced('x', 'MIN')})"), p), wanted) < 1e-9


def test_normal_scores_reach_the_least_rank():
    p = np.concatenate([[0.0005, 0.075, 0.07499, 0.5, 0.925], np.linspace(0.0005, 0.9995, 101)])
    assert off(computed(normal_score("x", f"({reduced('x', 'MIN')})"), p), ndtri(p)) < 1e-12


def fitted_maps():
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = (z[:, 1] - z[:, 0] + torch.randn(60, generator=generator) > 2).long()
    shares = [0.3, 0.7]
    yield "affine", AffineCalibrator(with_bias=True).fit(z, y)
    yield "jackknife", JackknifeCalibrator(target="population").fit(z, y)
    yield "prior", PriorPlattCalibrator(trained_shares=shares).fit(z, y)
    yield "slopes", PriorPlattCalibrator(trained_shares=shares, form_sd=FORM_SD).fit(z, y)
    known = PositiveOnlyCalibrator(trained_shares=shares).fit(z, y)
    known.lift_ = torch.tensor([-1.5, -2.0], dtype=torch.float64)
    yield "known", known


@pytest.mark.parametrize(("name", "fitted"), list(fitted_maps()))
def test_a_map_in_a_query_is_the_map(name, fitted):
    d = np.linspace(-40, 40, 401)
    z = torch.stack([torch.zeros(401), torch.from_numpy(d)], 1).double()
    found = computed(log_odds(fitted, X).probability(), d)
    assert off(found, fitted.transform(z)[:, 1].numpy()) < 1e-12, name


def test_odds_beyond_every_exponential_are_0_or_1():
    assert computed(X.probability(), [-1e300, 1e300, 0]).tolist() == pytest.approx([0, 1, 0.5])


@pytest.mark.parametrize(("name", "fitted"), list(fitted_maps()))
def test_what_is_missing_stays_missing_on_engines_whose_least_passes_over_it(name, fitted):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    odds = log_odds(fitted, Term(DIALECTS["duckdb"], "x"))
    for made in (odds, odds.probability(), mixed([(0.5, odds), (0.5, odds)])):
        assert duckdb.sql(f"SELECT {made} FROM (SELECT CAST(NULL AS DOUBLE) AS x)").fetchall() == [(None,)], name


def test_terms_keep_the_order_of_their_operations():
    a, b, c = (Term(SQLITE, name) for name in "abc")
    assert str((a + b) * c - (a - (b - c))) == "(a + b) * c - (a - (b - c))"
    assert str(a / (b * c) + b / c * a) == "a / (b * c) + b / c * a"
    assert str(1.0 - (-(a + b))) == "1.0e0 - (-(a + b))"
    assert str(a / float("inf")) == "a * 0.0e0"


def test_a_single_in_sqlite_is_float32():
    x = np.concatenate(
        [[0.0, 1.7e9 + 77, 0.1, -3.3e-20, -(2.0**24) - 5], np.random.default_rng(0).normal(size=50) * 1e5]
    )
    assert off(computed(SQLITE.as_single("x"), x), x.astype(np.float32).astype(float)) == 0


def test_long_sums_stay_flat():
    assert computed(linear(["x"] * 3000, [1.0] * 3000, 2.0), [1.0]).tolist() == [3002.0]


def test_literals_are_escaped_for_each_engine():
    assert SQLITE.string("it's \\") == "'it''s \\'"
    assert DIALECTS["spark"].string("it's \\") == "'it\\'s \\\\'"
    assert SQLITE.table('a.b"c') == '"a"."b""c"'
    assert DIALECTS["spark"].table("a.b`c") == "`a`.`b``c`"
    assert number(-0.5) == "(-0.5e0)"


@pytest.mark.parametrize("word", ["", "a..b", "zero\0"])
def test_names_that_no_engine_takes_are_refused(word):
    with pytest.raises(InputError, match="must have a name"):
        SQLITE.table(word)


def test_edges_that_a_query_cannot_read_are_refused():
    def reading(names=NAMES, **data):
        return edge_reading(dataclasses.replace(Settings(), data=Data(**data)), names)

    assert (reading().added, reading().loops) == (False, False)
    assert reading(self_loops="keep").loops
    assert reading(duplicates="sum").added
    assert reading(Names(weight="w")).added
    with pytest.raises(InputError, match="directions or types"):
        reading(directed=True)
    with pytest.raises(InputError, match="takes the first weight"):
        reading(Names(weight="w"), duplicates="drop")
    with pytest.raises(InputError, match="no column is known to hold them"):
        edge_reading(Settings(), NAMES, weighted=True)
    with pytest.raises(InputError, match="--salt must be"):
        Names(salt=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_of_a_query_is_the_plain_name(engine):
    cells = [
        "10.0",
        "-7.00",
        "+5.0",
        "1.50",
        "10.",
        "a.0",
        "1.0.0",
        "100",
        "0.0",
        " x ",
        "-",
        ".0",
        "1e5",
        "",
        " ",
        "TRUE",
    ]
    names = ["10", "-7", "+5", "true", "other"]
    query = f"SELECT node, {named('n.c', names, DIALECTS[engine])} AS name FROM rows n"
    nodes = [f"n{i:02d}" for i in range(len(cells))]
    found = ENGINES[engine](query, rows=pd.DataFrame({"node": nodes, "c": cells}))
    assert found["name"].where(found["name"].notna(), "").tolist() == [plain_name(cell) for cell in cells]


def test_more_columns_than_engines_take_are_refused():
    columns = [("1", f"c{i}") for i in range(2 * MOST_COLUMNS + 2)]
    with pytest.raises(InputError, match="columns of a node"):
        Script(SQLITE, "cr_").select("many", columns, "FROM t")


@pytest.mark.parametrize(
    ("value", "cells"),
    [("2", [2, 1]), ("2", [2.0, np.nan]), ("True", [True, False]), ("b c", [" b c", "b"]), ("-2", [-2.0, 2.0])],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_scored_rows_are_found_however_an_engine_writes_the_value(engine, value, cells):
    script = Script(DIALECTS[engine], "cr_")
    query = f'SELECT node, 1 FROM "rows" n WHERE {scored_rows(script, f"a kind={value}")}'
    found = ENGINES[engine](query, rows=pd.DataFrame({"node": ["x", "y"], "a kind": cells}))
    assert found.node.tolist() == ["x"]
