"""A query of each graph of the project's data says what the run says, on every engine: for `make test-engines`."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from calirare.datasets import data_root
from tests.calirare.export.test_parity import PARITY
from tests.helpers import postgres, spark
from tests.helpers.command import rough_runs
from tests.helpers.warehouse import ENGINES

SETS = ("sichuan", "amazon", "amlsim", "otc", "facebook", "dblp", "cora", "computers")
absent = "" if (data_root() / "fraud/sichuan.npz").is_file() else "no data here: CALIRARE_DATA names its folder"
missing = spark.missing() or postgres.missing() or absent
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=missing or "all is there")]


@pytest.fixture(scope="module")
def engines():
    """Each engine as a function of a query and tables."""
    with ExitStack() as running:
        server, session = running.enter_context(postgres.server()), running.enter_context(spark.session())
        yield ENGINES | {"postgres": partial(postgres.in_postgres, server), "spark": partial(spark.in_spark, session)}


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
        yield importlib.import_module("bench_export")


@pytest.mark.parametrize("name", SETS)
def test_every_engine_scores_the_graph_as_the_run_does(bench, engines, name):
    slow = {"computers": "sqlite"}  # four minutes for half a million edges
    check(bench, {engine: asked for engine, asked in engines.items() if engine != slow.get(name)}, name, "gcn")


@pytest.mark.parametrize("model", ["hops", "trees", "forest", "auto"])
def test_every_detector_is_scored_as_the_run_does(bench, engines, model):
    long = ("spark",) if model in ("forest", "auto") else ()  # minutes
    check(bench, {engine: asked for engine, asked in engines.items() if engine not in long}, "otc", model)


def check(bench, engines, name, model):
    with rough_runs():
        graph, scorer = bench.trained(name, model)
    frames, said = bench.tables(graph), scorer.probabilities(scorer.prepared(graph))
    for engine, asked in engines.items():
        found = asked(bench.query(scorer, engine, frames), **frames)
        wrong = np.abs(found.p_rare.to_numpy(dtype=float) - said.rare.numpy())
        assert wrong.max() <= PARITY, engine
        assert (found.alert.to_numpy() == said.alert.long().numpy()).all(), engine
