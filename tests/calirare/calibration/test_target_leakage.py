"""Columns that give labels away are named, and features that tell rare nodes truly are not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import calirare
from calirare.calibration import find_leakage
from calirare.graph import Column, Graph
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.usefixtures("rough")

NONE: tuple[str, ...] = ()


def drawn(rng: np.random.Generator, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Returns which nodes are rare, and which have a label: a quarter at random."""
    rare, known = rng.random(n) < 0.1, np.zeros(n, dtype=bool)
    known[rng.permutation(n)[: n // 4]] = True
    return rare, known


def leaks(rng: np.random.Generator, seen: np.ndarray) -> dict[str, tuple[np.ndarray, tuple[str, ...], str]]:
    """Returns columns that tell which nodes are rare where that is known, and words that name their values."""
    n = len(seen)
    amount = rng.gamma(2, 100, n)
    return {
        "above 0": (np.where(seen, amount, 0.0), NONE, "at least "),
        "below 0": (np.where(seen, -amount, 0.0), NONE, "at most -"),
        "filled": (np.where(seen, rng.normal(size=n), np.nan), NONE, "filled"),
        "name": (
            np.where(seen, 1, 2 * (rng.random(n) < 0.1)).astype(float),
            ("active", "blocked", "asleep"),
            "'blocked'",
        ),
        "names": (np.where(seen, 1 + np.arange(n) % 4, 0).astype(float), tuple("abcde"), ", .."),
    }


def test_a_date_that_only_rare_nodes_have_is_named_whatever_nodes_without_a_label_have():
    rng = np.random.default_rng(3)
    rare, known = drawn(rng)
    found_on = np.where(rare & (rng.random(len(rare)) < 0.8), rng.random(len(rare)), np.nan)
    given = found_on[known], rare[known], found_on[~known], NONE
    assert find_leakage(*given) is None
    found = find_leakage(*given, dated=True)
    assert found is not None
    assert "it is a date that nearly only rare nodes have" in found.sentence("the column 'c'", "leave it out")
    opened = np.where(rng.random(len(rare)) < 0.5, rng.random(len(rare)), np.nan)
    assert find_leakage(opened[known], rare[known], opened[~known], NONE, dated=True) is None


@pytest.mark.parametrize("name", ["above 0", "below 0", "filled", "name", "names"])
def test_what_is_known_of_labelled_rare_nodes_alone_is_named(name):
    rng = np.random.default_rng(1)
    rare, known = drawn(rng)
    column, names, words = leaks(rng, rare & known)[name]
    found = find_leakage(column[known], rare[known], column[~known], names)
    assert found is not None
    assert words in found.values
    assert (found.labelled, found.rare, found.others) == (int((rare & known).sum()), int((rare & known).sum()), 0)
    assert found.covered == 1
    assert found.by_chance == pytest.approx(3 * found.labelled, rel=0.01)
    said = found.sentence("the column 'c'", "leave it out")
    assert said.startswith("the column 'c' gives the labels away: where it is ")
    assert said.endswith("P(rare) of nodes without a label is too low: leave it out")
    assert find_leakage(column[known], rare[known], column[:0], names) is None
    everywhere = leaks(rng, rare)[name][0]  # of all rare nodes: a feature
    assert find_leakage(everywhere[known], rare[known], everywhere[~known], names) is None


COPIES = {
    "numbers": ((0.0, 1.0, -1.0), NONE),
    "in the middle": ((0.0, 1.0, 0.5), NONE),
    "names and a gap": ((0.0, 1.0, np.nan), ("cleared", "blocked")),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_the_labels_is_named_whatever_nodes_without_one_have(name):
    (rest, hit, unknown), names = COPIES[name]
    for seed in range(5):
        rare, known = drawn(np.random.default_rng(seed))
        column = np.where(known, np.where(rare, hit, rest), unknown)
        found = find_leakage(column[known], rare[known], column[~known], names)
        assert found is not None
        assert found.covered == 1
        assert found.labelled == int((rare & known).sum())
        assert "P(rare) of nodes without a label is wrong" in found.sentence("the column 'c'", "leave it out")
        column = np.where(rare, hit, rest)  # of all nodes: a feature
        assert find_leakage(column[known], rare[known], column[~known], names) is None


@pytest.mark.parametrize("drawn_as", ["at random", "more of the rare ones", "by the column"])
def test_a_strong_feature_gives_nothing_away_however_labels_were_drawn(drawn_as):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(300, 4000))
        rare = rng.random(n) < rng.uniform(0.02, 0.1)
        column = rng.normal(size=n) + rare * rng.choice([2.0, 5.0, 20.0])
        known = rng.random(n) < 0.1
        if drawn_as == "more of the rare ones":
            known |= rare & (rng.random(n) < 0.7)
        if drawn_as == "by the column":
            known |= column > np.quantile(column, 0.8)
        assert find_leakage(column[known], rare[known], column[~known], NONE) is None


def case_numbers(task: Graph, known: torch.Tensor) -> Graph:
    """Returns a graph with some labels and a column that holds a number where a known node is rare."""
    assert task.y is not None
    y = torch.full_like(task.y, -1)
    y[known] = task.y[known]
    x = torch.cat([torch.where(y == 1, 3.0, torch.nan)[:, None], task.x], 1)
    names = ("case", *(f"c{i}" for i in range(task.x.shape[1])))
    split = calirare.Split(known, known[:0], known[:0], "drawn")
    columns = tuple(Column(name) for name in names)
    return dataclasses.replace(task, x=x, y=y, split=split, columns=columns, feature_names=names)


@pytest.mark.slow
def test_a_run_says_so_and_is_not_to_be_trusted(tmp_path):
    task = rare_task(800)
    known = torch.randperm(800, generator=torch.Generator().manual_seed(0))[:250]
    graph = case_numbers(task, known)
    quick = {"model": "hops", "epochs": 30, "folds": 2}
    outcome = calirare.train(graph, **quick)
    verdict = outcome.metrics["verdict"]
    assert (verdict["answer"], verdict["cause"]) == ("not known", "leakage")
    assert "the column 'case' gives the labels away: where it is filled, " in verdict["sentence"]
    assert outcome.metrics["decision"]["hits"] is None
    outcome.save(tmp_path / "run")
    saved, told = calirare.load(tmp_path / "run"), list[str]()
    scored = saved.score(graph, told.append)
    assert scored.verdict == "do not trust"
    assert "do not trust: the run's verdict: not known: the column 'case' gives the labels away" in scored.summary()
    assert scored.to_mapping()["run"] | {"name": ""} == {
        "name": "",
        "answer": "not known",
        "sentence": str(outcome.verdict),
    }
    saved.predict(graph, told.append)
    assert any("gives the labels away" in note for note in told)
    assert saved.score(graph, told.append, prevalence=0.3).verdict == "do not trust"
    fresh = calirare.run.recalibrated(saved, dataclasses.replace(graph, y=task.y), told.append).run
    assert fresh.score(graph, told.append).of_run.cause != "leakage"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"prevalence": 0.3}, "do not trust"),
        ({"positive_only": True, "prevalence": 0.3}, "caution"),  # all rare nodes may be known
    ],
    ids=str,
)
def test_a_run_says_so_whatever_it_is_told(settings, verdict):
    task = rare_task(800)
    known = torch.randperm(800, generator=torch.Generator().manual_seed(0))[:250]
    graph = dataclasses.replace(case_numbers(task, known), original_y=None, minority=None, class_names=("0", "1"))
    outcome = calirare.train(graph, model="hops", epochs=10, folds=0, **settings)
    assert "the column 'case' gives the labels away" in outcome.verdict.sentence
    assert outcome.score(graph, list[str]().append).verdict == verdict


@pytest.mark.parametrize("leak", ["closed", "case", "none"])
def test_edges_that_came_or_went_with_the_case_are_named(leak):
    task = rare_task(800)
    known = torch.randperm(800, generator=torch.Generator().manual_seed(0))[:250]
    rare = known[task.y[known] == 1]
    ring = torch.arange(800)
    ends = torch.cat([torch.stack([ring, ring.roll(step)], 1) for step in range(1, 15)])
    ends = ends[torch.rand(len(ends), generator=torch.Generator().manual_seed(1)) < 0.5]
    scored = torch.ones(801, dtype=torch.bool)
    if leak == "closed":  # accounts without their edges
        ends = ends[~torch.isin(ends, rare).any(1)]
    if leak == "case":  # a node that they lead to
        ends, scored[800] = torch.cat([ends, torch.stack([rare, torch.full_like(rare, 800)], 1)]), False
    y = torch.full((801,), -1)
    y[known] = task.y[known]
    x = torch.cat([task.x, torch.zeros(1, task.x.shape[1])])
    graph = Graph.from_edges(ends, x, y, symmetrize=True, duplicates="drop").rare(1)
    split = calirare.Split(known, known[:0], known[:0], "drawn")
    graph = dataclasses.replace(graph, scored=None if scored.all() else scored).with_split(split)
    outcome = calirare.train(graph, model="hops", epochs=30)
    words = {"closed": "the number of neighbours gives", "case": "the number of auxiliary neighbours gives"}
    verdict = outcome.verdict
    assert words.get(leak, "") in str(verdict)
    assert ("leave out edges that appear or vanish once a case is known" in str(verdict)) == (leak in words)
    assert (verdict.cause == "leakage") == (leak in words)


@pytest.mark.slow
def test_where_every_class_is_taken_as_it_is_each_one_is_looked_at():
    task, names = rare_task(800, 3), ("bad", "ok", "odd")
    known = torch.randperm(800, generator=torch.Generator().manual_seed(0))[:300]
    y = torch.full((800,), -1)
    y[known] = task.y[known]
    x = torch.cat([torch.where(y == 0, 3.0, 0.0)[:, None], task.x], 1)
    split = calirare.Split(known, known[:0], known[:0], "drawn")
    features = ("case", *(f"c{i}" for i in range(6)))
    graph = Graph(task.adjacency, x, y, class_names=names, feature_names=features, split=split, name="g")
    leaks, plain = (
        calirare.train(each, task="classes", model="trees").verdict
        for each in (graph, dataclasses.replace(graph, x=task.x, feature_names=features[1:]))
    )
    assert leaks.sentence.startswith("not known: the column 'case' gives the labels away: where it is at least 3, ")
    assert "labelled nodes are bad, 100% of all bad labels" in leaks.sentence
    assert "P(bad) of nodes without a label" in leaks.sentence
    assert plain.cause != "leakage"
