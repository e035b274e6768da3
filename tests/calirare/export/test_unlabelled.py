"""An export of an average that listens to the labels near a node: the rest of it, map and threshold fitted anew."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.export import DIALECTS, Names, query_of, without_labels
from calirare.export.unlabelled import MOST_SPREADING, _Labels
from calirare.models import HopsTraining, Mixture, SpreadingDetector, fold_network, mixture_of
from calirare.run import Deciding, Scorer
from calirare.training import class_weights
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

NAMES = Names()
Z = torch.linspace(-4, 4, 9, dtype=torch.float64)[:, None] * torch.tensor([[0.0, 1.0]])


@pytest.fixture(scope="module")
def run():
    """Of trees."""
    with rough_runs():
        return Scorer.of(calirare.train(rare_task(), model="trees", folds=3, scale="none"))


@pytest.fixture(scope="module")
def scorer(run):
    """The same with another detector, an average with label spreading."""
    graph, nodes = rare_task(), run.fit.nodes
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    detector = HopsTraining(epochs=15, hidden=4)
    hops = fold_network(detector, graph, detector.fit(graph, nodes, sample_weights=weights), 3)
    spread = SpreadingDetector(3, 0).fit(graph, nodes, sample_weights=weights)
    return dataclasses.replace(run, fit=mixture_of({"hops": hops, "spreading": spread}, weights))


def weighing(scorer, weight):
    """Returns the scorer with another weight of the labels around a node."""
    shares = {"hops": 1 - weight, "spreading": weight}
    members = (dataclasses.replace(member, weight=shares[member.name]) for member in scorer.fit.members)
    return dataclasses.replace(scorer, fit=Mixture(tuple(members)))


def deciding(scorer, **how):
    return dataclasses.replace(scorer, settings=dataclasses.replace(scorer.settings, decision=Deciding(**how)))


def test_the_map_is_fitted_on_what_is_exported(scorer):
    some = weighing(scorer, 0.3)
    left, said = without_labels(some)
    (hops,) = left.fit.members
    assert hops.weight == pytest.approx(1.0)
    assert_identical(left.fit.own_logits, Mixture((dataclasses.replace(hops, weight=1.0),)).own_logits)
    fitted = left.calibrators["population"]
    assert_identical(fitted.transform(Z), _Labels.of(left).maps(some.calibrators)["population"].transform(Z))
    assert not torch.equal(fitted.transform(Z), some.calibrators["population"].transform(Z))
    assert not torch.equal(fitted.transform(Z), _Labels.of(some).maps(some.calibrators)["population"].transform(Z))
    assert "weight 0.30 in the run, are left out, and the map is fitted anew" in said
    assert query_of(some, DIALECTS["sqlite"], NAMES) == query_of(left, DIALECTS["sqlite"], NAMES)


@pytest.mark.slow
def test_both_losses_are_said(scorer):
    """Each is that of the labels by maps without them; with the labels of other nodes the logits are others."""
    _, said = without_labels(weighing(scorer, 0.3))
    without, with_them = map(float, re.search(r"log loss is ([\d.]+), with them ([\d.]+);", said).groups())
    assert 0 < without != with_them > 0
    _, less = without_labels(weighing(scorer, 0.1))
    again, closer = map(float, re.search(r"log loss is ([\d.]+), with them ([\d.]+);", less).groups())
    assert again == without
    assert abs(closer - without) < abs(with_them - without)


def test_what_a_run_fitted_is_fitted_again(run):
    """The same steps on the run's own detector give the run's own maps; nothing is left out of it."""
    maps = _Labels.of(run).maps(run.calibrators)
    for target, fitted in run.calibrators.items():
        assert_identical(maps[target].transform(Z), fitted.transform(Z), target)
    assert without_labels(run) == (run, "")


@pytest.mark.slow
def test_thresholds_follow_the_rule(scorer):
    some = weighing(scorer, 0.3)
    assert without_labels(deciding(some, cost_miss=4.0))[0].threshold == pytest.approx(0.2)
    kept = deciding(some, decide="budget", budget=10)
    assert without_labels(kept)[0].threshold == kept.threshold
    left, said = without_labels(deciding(some, decide="recall", recall=0.5))
    more, _ = without_labels(deciding(some, decide="recall", recall=0.9))
    assert 0 < more.threshold < left.threshold < 1
    assert f"the threshold is {left.threshold:.6g}, with them {some.threshold:.6g}" in said


def test_a_map_of_a_prevalence_that_was_said_stays(scorer):
    some = weighing(scorer, 0.3)
    calibration = dataclasses.replace(some.settings.calibration, prevalence=0.1)
    told = dataclasses.replace(some, settings=dataclasses.replace(some.settings, calibration=calibration))
    left, said = without_labels(told)
    assert left.calibrators is told.calibrators
    assert said.endswith("map and threshold stay those that were fitted with them")


def test_labels_that_say_most_are_not_left_out(scorer):
    with pytest.raises(InputError, match=r"the labels around a node have weight 0\.60"):
        without_labels(weighing(scorer, 0.6))
    without_labels(weighing(scorer, MOST_SPREADING))


def test_a_map_of_fresh_labels_stays(scorer):
    """It was fitted anew on the run's own labels, and what was told of the month was lost in silence."""
    some = dataclasses.replace(weighing(scorer, 0.3), anew=True)
    left, said = without_labels(some)
    assert left.calibrators is some.calibrators
    assert left.threshold == some.threshold
    assert "map and threshold stay those that were fitted with them" in said
