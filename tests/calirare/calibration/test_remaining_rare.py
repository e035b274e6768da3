"""Labels that leave fewer rare nodes among the others than a prevalence of all nodes says."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.run.calibrators import rare_left
from calirare.run.data import check_prevalence
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.usefixtures("rough")


def with_labels(task: calirare.Graph, rare: int, rest: int) -> calirare.Graph:
    """The task with so many labels of either class, drawn at random, which all train."""
    draw = torch.randperm(task.n_nodes, generator=torch.Generator().manual_seed(0))
    known = torch.cat([draw[task.y[draw] == 1][:rare], draw[task.y[draw] == 0][:rest]])
    y = torch.full_like(task.y, -1)
    y[known] = task.y[known]
    empty = torch.empty(0, dtype=torch.int64)
    return dataclasses.replace(task, y=y, original_y=None, split=calirare.Split(known, empty, empty))


@pytest.mark.parametrize(("rare", "rest", "said"), [(40, 40, True), (4, 40, False), (40, 340, False), (0, 300, False)])
def test_it_is_said_where_labels_were_sought_among_the_rare(rare, rest, said):
    graph = with_labels(rare_task(1000), rare, rest)
    share = 100 / 1000
    left = rare_left(graph, share)
    assert (left is not None) is said
    if said:
        odds = (1 - 40 / 100) / (1 - 40 / 900)
        assert f"Expect 60 among the 920 nodes without one: counts use odds {odds:.2g} times" in left.sentence


def test_labels_that_are_more_than_the_prevalence_allows():
    assert (
        "Expect 0 among the 920 nodes without one: counts use odds 0 times"
        in rare_left(with_labels(rare_task(1000), 40, 40), 0.03).sentence
    )


@pytest.mark.slow
@pytest.mark.parametrize(("rest", "verdict"), [(40, "not known"), (300, None)])
def test_labels_of_equal_numbers_are_no_sample_though_they_were_said_to_be(rest, verdict):
    """A note that advised this ended in trust, and P(rare) was eleven times too high."""
    graph = with_labels(rare_task(1000), 40, rest)
    settings = {"model": "hops", "epochs": 30}
    assert not any("calibrate_on=all" in note for note in calirare.train(graph, **settings).notes)
    found = calirare.train(graph, calibrate_on="all", **settings).verdict
    said = "both classes have the same number of labels, 40: labels sampled per class are no random sample"
    assert (said in found.sentence) == (verdict == "not known")
    if verdict:
        assert (found.answer, found.cause) == (verdict, "labels")


@pytest.mark.slow
def test_where_no_label_tells_how_common_classes_are_nobody_is_told_to_trust(tmp_path):
    """Of 40 rare nodes and 40 others P(rare) is that of a world of halves: five times too many were expected."""
    graph = with_labels(rare_task(1000), 40, 40)
    settings = {"model": "hops", "epochs": 30}
    run = calirare.train(graph, **settings)
    run.save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    verdict = json.loads((tmp_path / "run" / "metrics.json").read_text())["verdict"]
    assert (verdict["answer"], verdict["cause"], verdict["evidence"]) == ("not calibrated", "labels", None)
    scored = saved.score(graph)
    assert scored.verdict == "do not trust"
    assert not scored.drifted
    assert "do not trust it (see below)" in scored.summary()
    assert "do not trust: the run's verdict: not calibrated: no label shows the base rate" in scored.summary()
    for told in (saved.score(graph, prevalence=0.1), calirare.train(graph, prevalence=0.1, **settings).score(graph)):
        assert told.verdict == "ok"
    assert run.calibrators["population"].counted_ == 0


@pytest.mark.parametrize(("told", "name"), [(0.02, "rare"), (0.95, "rest")])
def test_a_prevalence_without_room_for_the_labels_is_refused(told, name):
    graph = with_labels(rare_task(1000), 40, 200)
    with pytest.raises(InputError, match=r"nodes makes .* have it"):
        check_prevalence(graph, told)
    check_prevalence(graph, 0.0385)  # as far as rounding goes
    check_prevalence(graph, None)


@pytest.mark.slow
def test_hits_and_misses_are_counted_by_what_labels_leave():
    """Their sum was that of the population, beside a note that half of it is gone."""
    graph = with_labels(rare_task(1000), 150, 60)
    share = float((rare_task(1000).y == 1).float().mean())
    outcome = calirare.train(graph, model="hops", epochs=30, prevalence=share)
    decision, rare = outcome.decision.expected, share * 1000 - 150
    assert decision.hits.expected + decision.misses.expected == pytest.approx(rare, rel=0.02)
    p = outcome.probabilities("population")[:, 1][graph.unlabelled].double()
    assert decision.hits_by_p == pytest.approx(float(p[p >= decision.threshold].sum()))
    assert float(p.sum()) > 1.2 * rare
    assert "they count rare nodes that already have a label" in outcome.decision.sentence
