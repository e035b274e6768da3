"""The query in a PostgreSQL server that the test starts."""

from __future__ import annotations

import pandas as pd
import pytest

import calirare
from calirare.export import DIALECTS, Names, query_of
from calirare.export.sql.terms import Term
from calirare.export.sql.words import named
from calirare.graph import plain_name
from calirare.run import Scorer
from tests.helpers import postgres
from tests.helpers.command import rough_runs
from tests.helpers.warehouse import SECOND, WAYS, ZONED_MOMENTS, error, joined, tables, written

PARITY = 1e-5


@pytest.fixture(scope="module")
def server():
    if postgres.missing():
        pytest.skip(postgres.missing())
    with postgres.server() as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "hops", "trees", "auto"])
def test_postgres_scores_a_strangers_tables_as_the_run_does(server, tmp_path, model):
    nodes, edges = tables()
    graph = calirare.load_dataset(str(written(tmp_path, nodes, edges)), features=str(tmp_path / "nodes.csv"))
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model=model, epochs=30, folds=2))
    names = Names('no"des; --', "e'dges")
    query = query_of(scorer, DIALECTS["postgres"], names)
    found = postgres.in_postgres(server, query, **{names.nodes: nodes, names.edges: edges})
    assert error(scorer, graph, found) <= PARITY


@pytest.mark.slow
def test_postgres_lets_ends_without_a_row_join(server, tmp_path):
    with rough_runs():
        scorer, graph, frames = joined(tmp_path, "gcn", "kind=two words,a'b", epochs=30, folds=2)
    found = postgres.in_postgres(server, query_of(scorer, DIALECTS["postgres"], Names()), **frames)
    assert error(scorer, graph, found) <= PARITY


@pytest.mark.slow
@pytest.mark.parametrize("style", ["ISO", "SQL", "German"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_with_a_zone_is_in_utc_whatever_the_session_says(server, zone, style):
    frame = pd.DataFrame({"node": [f"n{i:02d}" for i in range(len(WAYS))], "at": list(WAYS)})
    days = DIALECTS["postgres"].days
    for kind, wanted in (("text", WAYS), ("timestamptz", ZONED_MOMENTS)):
        rows = frame[frame["at"].isin(wanted)]
        casted = days.format(x=f'CAST("at" AS {kind})')
        query = f"SET TimeZone = '{zone}'; SET DateStyle = '{style}'; SELECT node, {casted} AS p_rare FROM times"
        found = postgres.in_postgres(server, query, times=rows)
        assert (found["p_rare"] - rows["at"].map(wanted).to_numpy()).abs().max() < SECOND


@pytest.mark.slow
def test_nan_is_null_there(server):
    frame = pd.DataFrame({"node": ["a", "b"], "v": ["NaN", "1.5"]})
    query = f"SELECT node, {DIALECTS['postgres'].known('CAST(v AS double precision)')} AS p_rare FROM numbers"
    assert postgres.in_postgres(server, query, numbers=frame)["p_rare"].isna().tolist() == [True, False]


@pytest.mark.slow
def test_a_name_is_the_plain_name_there(server):
    cells = ["10.0", "-7.00", "1.50", "10.", "1.0.0", " x ", "TRUE"]
    frame = pd.DataFrame({"node": [f"n{i}" for i in range(len(cells))], "c": cells})
    name = named("n.c", ["10", "-7", "true", "other"], DIALECTS["postgres"])
    said = "".join(f" WHEN {DIALECTS['postgres'].string(plain_name(cell))} THEN {i}" for i, cell in enumerate(cells))
    found = postgres.in_postgres(server, f"SELECT node, CASE {name}{said} END AS p_rare FROM names n", names=frame)
    assert found["p_rare"].tolist() == list(range(len(cells)))


@pytest.mark.slow
def test_what_is_too_small_for_a_float_is_no_error_there(server):
    d, frame = DIALECTS["postgres"], pd.DataFrame({"node": ["a", "b", "c"], "v": ["1e-63", "-1e9", "2.5"]})
    x = "CAST(v AS double precision)"
    query = f"SELECT node, {d.as_single(x)} + 0 * {Term(d, x).apply('Exp')} AS p_rare FROM numbers WHERE {x} < 2.5"
    assert postgres.in_postgres(server, query, numbers=frame)["p_rare"].tolist() == [0, -1e9]


@pytest.mark.slow
def test_booleans_and_their_words_are_numbers_there(server):
    d, frame = DIALECTS["postgres"], pd.DataFrame({"node": ["a", "b", "c", "d"], "v": ["true", "FALSE", "1", "0.5"]})
    found = postgres.in_postgres(server, f"SELECT node, {d.truth_or_number('v')} AS p_rare FROM n", n=frame)
    assert found["p_rare"].tolist() == [1, 0, 1, 0.5]
    query = f"SELECT node, {d.truth_or_number('(CAST(v AS text) < $$2$$)')} AS p_rare FROM n"
    assert postgres.in_postgres(server, query, n=frame)["p_rare"].tolist() == [0, 0, 1, 1]


@pytest.mark.slow
def test_large_codes_have_no_exponent_there(server):
    frame = pd.DataFrame({"node": ["a", "b", "c"], "v": ["12345678", "2e15", "-3e15"]})
    name = named("CAST(v AS double precision)", ["12345678", "2000000000000000"], DIALECTS["postgres"])
    query = f"SELECT node, CAST({name} AS double precision) AS p_rare FROM n WHERE {name} NOT LIKE '%e%'"
    assert postgres.in_postgres(server, query, n=frame)["p_rare"].tolist() == [12345678, 2e15, -3e15]
