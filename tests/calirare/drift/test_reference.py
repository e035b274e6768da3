"""A graph held against the run's own: what goes wrong is named, and graphs of the same law raise no alarm."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import calirare
from calirare.drift import Drift, Finding, Noise, Reference, design_effect, neighbourhoods, patches
from calirare.drift.columns import ReferenceCategories, ReferenceNumbers
from calirare.drift.neighbourhoods import communities
from calirare.features import FeatureMap
from calirare.graph import Column, Graph, Split
from calirare.run.periods import newest
from calirare_ext import Csr
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def months() -> Any:
    """The simulated law of the benchmark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("drifting_graphs")


@pytest.fixture(scope="module")
def outcome(months: Any) -> calirare.Outcome:
    """A run on one month."""
    with rough_runs():
        return calirare.train(months.month(0).graph(400), model="trees")


def drift_of(outcome: calirare.Outcome, graph: Graph) -> Drift:
    scorer = calirare.run.Scorer.of(outcome)
    return scorer.reference.compare(graph, scorer.features, scorer.probabilities(scorer.prepared(graph)).rare)


DRIFTS = (
    "next month's times",
    "another currency",
    "two columns swapped",
    "a sign turned",
    "gaps",
    "gaps filled with 0",
    "a new country",
    "other shops",
    "a column that stands still",
    "outliers in 3 %",
    "twice as many edges and more",
    "most edges lost",
    "a new component",
)


def test_every_drift_of_the_benchmark_is_tested(months):
    assert tuple(months.DRIFTS) == DRIFTS


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIFTS)
def test_what_goes_wrong_is_named(name, months, outcome):
    change, where = months.DRIFTS[name]
    drift = drift_of(outcome, change(months.month(500)).graph())
    assert drift.verdict != "ok" or drift.light
    assert drift.verdict == "do not trust" or name != "next month's times"
    assert drift.sentence.startswith(f"{drift.verdict}: ")
    assert {finding.name for finding in drift.found} & set(where), drift.sentence
    assert any(each in drift.sentence for each in where)
    assert all(finding.why for finding in drift.found)
    # What did not change raises no alarm of its own.
    columns = {finding.name for finding in drift.found if finding.part == "column"}
    assert columns <= set(where) | {"income", "insured", "age"}, columns


@pytest.mark.parametrize(
    ("name", "times", "longer"),
    [("twice as many edges and more", (2.0, 4.0), "longer"), ("most edges lost", (0.05, 0.5), "shorter")],
)
def test_edges_of_another_time_are_named_before_what_they_move(name, times, longer, months, outcome):
    change, _ = months.DRIFTS[name]
    drift = drift_of(outcome, change(months.month(500)).graph())
    said = re.match(
        r"[a-z ]+: nodes have ([\d.]+) times as many neighbours as in training \(the edges (.*?)\), ", drift.sentence
    )
    assert said, drift.sentence
    assert times[0] < float(said[1]) < times[1]
    assert said[2] == f"may cover a {longer} time"
    assert drift.to_mapping()["cause"] in drift.sentence


def test_edges_are_no_cause_where_they_are_as_many(months, outcome):
    change, _ = months.DRIFTS["another currency"]
    drift = drift_of(outcome, change(months.month(500)).graph())
    assert drift.verdict != "ok"
    assert drift.cause == drift.to_mapping()["cause"] == ""


def test_columns_that_do_not_move_scores_are_at_most_caution(months, outcome):
    change, _ = months.DRIFTS["another currency"]
    month, scorer = months.month(500), calirare.run.Scorer.of(outcome)
    p = scorer.probabilities(scorer.prepared(month.graph())).rare
    compared = lambda p: scorer.reference.compare(change(month).graph(), scorer.features, p)  # noqa: E731
    drift = compared(p)
    assert drift.verdict == "caution"
    assert drift.found[0].verdict == "do not trust"
    assert drift.sentence.startswith("caution: ")
    assert drift.sentence.endswith("; but P(rare) is distributed as in the run's graph")
    assert compared(p.clamp(min=0.3)).verdict == "do not trust"


def test_three_times_as_much_fraud_shows_in_mean_p(months, outcome):
    drift = drift_of(outcome, months.tripled(500).graph())
    assert "mean P(rare)" in {finding.name for finding in drift.found}
    assert drift.verdict == "caution", "the probabilities may be right"


@pytest.mark.parametrize("n", [200, 1500, 4000])
def test_a_graph_of_the_same_law_is_ok_whatever_its_size(n, months, outcome):
    drift = drift_of(outcome, months.month(7, n).graph())
    assert drift.verdict == "ok", drift.sentence
    assert drift.sentence.startswith("ok: 11 columns")


def test_a_node_that_is_a_neighbour_of_most_is_told(months, outcome):
    given = months.month(11)
    spokes = np.stack([np.zeros(600, dtype=int), np.arange(1, 601)], 1)
    drift = drift_of(outcome, dataclasses.replace(given, pairs=np.concatenate([given.pairs, spokes])).graph())
    assert drift.verdict == "caution"
    assert "node of most neighbours (40 % of the nodes are its neighbours; in training it was 9.1 %" in drift.sentence
    few = dataclasses.replace(months.month(9, 20), pairs=np.stack([np.zeros(19, dtype=int), np.arange(1, 20)], 1))
    assert "most neighbours" not in {finding.name for finding in drift_of(outcome, few.graph()).found}


def test_few_nodes_cannot_tell_much_and_the_report_says_so(months, outcome):
    assert drift_of(outcome, months.month(9, 20).graph()).sentence.startswith(
        "ok as far as 20 nodes can tell: 11 columns"
    )


def test_what_is_remembered_is_the_same_after_a_file(months, outcome):
    reference = outcome.reference
    tensors, facts = reference.state()
    again = Reference.from_state(tensors, json.loads(json.dumps(facts)))
    change, _ = months.DRIFTS["a new country"]
    graph = change(months.month(3)).graph()
    p = torch.full((graph.n_nodes,), 0.05, dtype=torch.float64)
    features = outcome.features
    assert again.compare(graph, features, p).to_mapping() == reference.compare(graph, features, p).to_mapping()


def two_columns(days: np.ndarray, amounts: np.ndarray) -> Graph:
    n = len(days)
    at = torch.arange(n - 1)
    a = Csr.from_coo(torch.cat([at, at + 1]), torch.cat([at + 1, at]), None, (n, n))
    x = torch.from_numpy(np.stack([days, amounts], 1).astype(np.float32))
    return Graph(a, x, columns=(Column("opened", "date"), Column("amount")), feature_names=("opened", "amount"))


def test_a_column_that_the_map_dropped_raises_no_alarm():
    rng = np.random.default_rng(0)
    then = two_columns(np.full(500, 9000.0), rng.standard_normal(500))
    features = FeatureMap.fit(then)
    p = torch.from_numpy(rng.random(500))
    reference = Reference.of(then, features, p, torch.arange(500))
    assert list(reference.columns) == ["amount"]
    later = two_columns(np.full(500, 9030.0), rng.standard_normal(500))
    assert reference.compare(later, features, p).verdict == "ok"


def test_months_in_which_a_history_grew_raise_no_alarm():
    rng = np.random.default_rng(0)
    then = two_columns(np.minimum(np.arange(600.0), 240), rng.standard_normal(600))
    at = torch.arange(600)
    split = Split(at[:300], at[300:450], at[450:], "time")
    then = dataclasses.replace(then, y=(at % 5 == 0).long(), class_names=("a", "b"), split=split, time=at.double())
    features, p = FeatureMap.fit(then), torch.from_numpy(rng.random(600))
    later = two_columns(np.full(600, 240.0), rng.standard_normal(600))
    assert newest(then).tolist() == list(range(300, 600))
    of_newest = Reference.of(then, features, p, at, newest(then))
    assert of_newest.compare(later, features, p).verdict == "ok"
    assert Reference.of(then, features, p, at).compare(later, features, p).verdict != "ok"


def used_and_unused(used: float, unused: float) -> tuple[Graph, torch.Tensor]:
    """Returns a graph of a column that P(rare) follows, and of one that it does not, and P(rare) as it was."""
    x = np.random.default_rng(0).standard_normal((600, 2))
    p = torch.sigmoid(torch.from_numpy(2 * x[:, 0] - 2))
    return two_columns(x[:, 0] + used, x[:, 1] + unused), p


def test_a_column_that_p_hardly_depends_on_raises_no_alarm_while_p_is_steady():
    then, p = used_and_unused(0, 0)
    features = FeatureMap.fit(then)
    reference = Reference.of(then, features, p, torch.arange(600))
    drift = reference.compare(used_and_unused(0, 4)[0], features, p)
    assert drift.verdict == "ok"
    assert drift.light == drift.found
    assert "amount (" in drift.sentence
    assert reference.compare(used_and_unused(4, 0)[0], features, p).verdict == "caution"
    wider = reference.compare(used_and_unused(0, 4)[0], features, p**0.3)
    assert wider.verdict == "do not trust", "far beyond the range"
    inside, _ = used_and_unused(0, 0)
    inside.x[:, 1] = inside.x[:, 1].abs()
    moved = reference.compare(inside, features, p**0.8)
    assert (moved.steady, moved.verdict) == (False, "caution"), "P(rare) has moved, but does not depend on that column"
    inside.x[:, 0] = inside.x[:, 0].abs()
    assert reference.compare(inside, features, p**0.8).verdict == "do not trust"


def sparse_graph(seed: int, words: np.ndarray) -> Graph:
    rng = np.random.default_rng(seed)
    dense = (rng.random((400, len(words))) < words).astype(np.float32)
    return dataclasses.replace(rare_task(400, seed=seed), x=Csr.from_dense(torch.from_numpy(dense)), name="words")


def test_sparse_features_are_compared_by_which_and_how_many():
    words = 0.4 / np.arange(1, 101)
    then = sparse_graph(0, words)
    features = FeatureMap.fit(then)
    p = torch.from_numpy(np.random.default_rng(0).random(400))
    reference = Reference.of(then, features, p, torch.arange(400))
    same, turned, more = (sparse_graph(1, each) for each in (words, words[::-1], np.minimum(4 * words, 1)))
    assert reference.compare(same, features, p).verdict == "ok"
    assert "which features" in reference.compare(turned, features, p).sentence
    assert "number of features" in reference.compare(more, features, p).sentence


def test_where_every_node_taught_the_run_p_is_not_compared():
    then = rare_task()
    features = FeatureMap.fit(then)
    p = torch.full((then.n_nodes,), 0.3, dtype=torch.float64)
    reference = Reference.of(then, features, p, torch.empty(0, dtype=torch.int64))
    assert reference.scores is None
    tensors, facts = reference.state()
    again = Reference.from_state(tensors, facts).compare(then, features, p)
    assert again.verdict == "ok"
    assert "P(rare)" not in again.sentence


@pytest.mark.slow
def test_a_graph_stored_sparse_is_held_against_a_dense_one_and_the_other_way_round(monkeypatch):
    task = rare_task()
    x = torch.where(task.x > 0.5, task.x, 0.0)
    dense = dataclasses.replace(task, x=x)
    sparse = dataclasses.replace(task, x=Csr.from_dense(x))
    for own, other in ((dense, sparse), (sparse, dense)):
        run = calirare.train(own, preset="paper", epochs=3, folds=0)
        found, expected = ([f for f in drift_of(run, g).findings if f.part == "column"] for g in (other, own))
        assert found == expected
    monkeypatch.setattr("calirare.drift.reference.MOST_CELLS", 100)
    run = calirare.train(dense, preset="paper", epochs=3, folds=0)
    with pytest.raises(calirare.InputError, match=r"sparse and too many \(260 times 6\)"):
        drift_of(run, sparse)


NOISE = Noise(1)  # one test at 5 %
REPEATS = 300
MOST = 27  # of 300 at 5 %, a binomial number exceeds it with probability 1e-3


def ring(sizes: list[int], bridge: bool = True) -> Csr:
    """Cliques of some sizes, each tied to the next by one edge where bridged."""
    n, edges, start = sum(sizes), [], 0
    for size in sizes:
        edges += [(i, j) for i in range(start, start + size) for j in range(start, start + size) if i != j]
        if bridge and start:
            edges += [(start - 1, start), (start, start - 1)]
        start += size
    rows, columns = torch.tensor(sorted(edges)).T
    return Csr.from_coo(rows, columns, None, (n, n))


def compared(reference: np.ndarray, current: np.ndarray, categories: int | None = None) -> dict[str, Finding]:
    """What another sample of a column, one patch each, differs by."""
    patch = np.arange(len(reference))
    if categories is None:
        found = ReferenceNumbers.of(reference, patch).compare("", current, NOISE)
    else:
        found = ReferenceCategories.of(reference, patch, categories).compare("", current, NOISE)
    return {each.what: each for each in found}


def test_columns_of_one_law_stay_below_their_bounds_and_shifted_ones_do_not():
    rng = np.random.default_rng(0)
    beyond = {"distance": 0, "beyond the range": 0, "gaps": 0}
    for _ in range(REPEATS):
        then, now = rng.standard_normal((2, 200))
        then[rng.random(200) < 0.1], now[rng.random(200) < 0.1] = np.nan, np.nan
        for what, found in compared(then, now).items():
            beyond[what] += found.difference > found.critical
    assert max(beyond.values()) <= MOST, beyond
    shifted = compared(then, now + 1)["distance"]
    assert shifted.current > shifted.critical
    assert compared(then, now + 9)["beyond the range"].current == 1


def test_categories_of_one_law_stay_below_their_bounds_and_others_do_not():
    rng = np.random.default_rng(1)
    p = (1 / np.arange(1, 41)) / (1 / np.arange(1, 41)).sum()
    beyond = {"distance": 0, "new categories": 0, "gaps": 0}
    for _ in range(REPEATS):
        then, now = rng.choice(40, (2, 300), p=p).astype(float)
        for what, found in compared(then, now, 40).items():
            beyond[what] += found.difference > found.critical
    assert max(beyond.values()) <= MOST, beyond
    assert beyond["distance"] > 0, "or chi-squared would be of no use"
    assert compared(then, 39 - now, 40)["distance"].current > 0.5 > compared(then, 39 - now, 40)["distance"].critical
    new = compared(then, np.full(300, 40.0), 40)
    assert new["new categories"].current == 1 > new["new categories"].critical
    assert new["distance"].critical == 0, "no value is of a known category"


def test_distance_is_that_of_two_samples():
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(2)
    for then, now in (
        (rng.standard_normal(400), rng.standard_normal(300) + 0.3),
        (rng.poisson(2, 400).astype(float), rng.poisson(3, 300).astype(float)),
        (np.repeat([0.0, 1.0], [300, 100]), np.repeat([0.0, 1.0, 2.0], [100, 50, 150])),
    ):
        found = compared(then, now)["distance"].current
        assert found == pytest.approx(ks_2samp(then, now).statistic, rel=0, abs=2 / 513)


def test_how_many_lie_beyond_the_range_is_the_chance_that_the_farthest_are_all_new():
    n, m, tests = 60, 40, 3
    allowed = Noise(tests).beyond(n, m, 1.0) / 2  # on one side
    count = math.floor(allowed) + 1
    all_new = math.prod((m - i) / (n + m - i) for i in range(count))
    assert all_new <= 0.05 / (2 * tests)
    assert Noise(tests).beyond(n, m, 2.0) == 2 * Noise(tests).beyond(n, m, 1.0)


def test_values_that_a_patch_shares_say_as_much_as_one_each():
    rng = np.random.default_rng(3)
    patch = np.repeat(np.arange(50), 20)
    alone, shared = rng.standard_normal(1000), np.repeat(rng.standard_normal(50), 20)
    more = 1 + math.sqrt(2 / 50)  # the standard error that is added
    assert design_effect(alone, patch) < 2
    assert design_effect(shared, patch) == pytest.approx(20 * more * 50 / 49, rel=0.1)
    constant = 0.3 + 1e-16 * rng.integers(0, 2, 1000)  # but for rounding
    assert design_effect(constant, patch) == 1


@pytest.mark.slow
def test_communities_are_the_cliques():
    sizes = [30, 25, 20, 40]
    found = communities(ring(sizes), 4)
    parts = np.split(found, np.cumsum(sizes)[:-1])
    commonest = [int(np.bincount(part).argmax()) for part in parts]
    assert sorted(commonest) == [0, 1, 2, 3]
    # Both ends of a bridge lie between two of them.
    assert all((part != name).sum() <= 2 for part, name in zip(parts, commonest, strict=True))


def test_nodes_without_neighbours_go_anywhere():
    found = communities(Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), None, (300, 300)), 8)
    assert np.bincount(found[2:], minlength=8).min() > 15


def adjacency_of(matrix: sp.spmatrix) -> Csr:
    m = sp.csr_matrix(matrix)
    m.sort_indices()
    indptr, indices = torch.from_numpy(m.indptr.astype(np.int64)), torch.from_numpy(m.indices.astype(np.int32))
    return Csr(indptr, indices, torch.ones(m.nnz), m.shape[1])


def drawn(n: int, edges: int, seed: int = 0) -> sp.spmatrix:
    ends = np.random.default_rng(seed).integers(n, size=(2, edges))
    half = sp.coo_matrix((np.ones(edges), ends), shape=(n, n))
    return half + half.T


def path(n: int) -> sp.spmatrix:
    return sp.diags([np.ones(n - 1), np.ones(n - 1)], [1, -1])


def test_patches_of_a_large_graph_are_connected_or_whole_components(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "SAMPLE", 100)
    matrix = sp.csr_matrix(sp.block_diag([drawn(900, 3000), *[path(4)] * 40]))
    patch = patches(adjacency_of(matrix))
    assert patch.min() >= 0
    assert (patch == patches(adjacency_of(matrix))).all()
    small = patch[900:].reshape(40, 4)
    assert (small == small[:, :1]).all(), "a small component lies in one patch"
    assert len(np.unique(patch)) > 5
