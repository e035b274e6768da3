"""An audit of a detector's labels: who speaks of them, what is told of each, and in which words."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.explain.audit import audit_labels
from calirare.explain.audit.posterior import Posterior
from calirare.explain.audit.reasons import Company, company_of
from calirare.models import MlpTraining, TreesTraining, class_weights, fold_network, mixture_of
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


@pytest.fixture(scope="module")
def graph():
    graph = rare_task()
    names = np.array([f"n{i}" for i in range(graph.n_nodes)], dtype=object)
    return dataclasses.replace(graph, node_names=names)


@pytest.fixture(scope="module")
def parts(graph):
    nodes = graph.split.val
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    trees = TreesTraining(rounds=5, folds=3).fit(graph, nodes, sample_weights=weights)
    detector = MlpTraining(epochs=15, hidden=4)
    network = fold_network(detector, graph, detector.fit(graph, nodes, sample_weights=weights), 3)
    return trees, network, weights


@pytest.fixture(scope="module")
def mixture(parts):
    trees, network, weights = parts
    knowing = network.own_logits + 3 * torch.nn.functional.one_hot(network.targets, 2)
    tampered = dataclasses.replace(network, own_logits=knowing)
    return mixture_of({"trees": trees, "hops": tampered}, weights)


@pytest.fixture(scope="module")
def audit(mixture, graph):
    return audit_labels(mixture, graph, mixture.judged_by_folds(graph).own_logits, "by folds", "auto", 0.5)


def test_logits_that_know_the_label_are_not_listened_to(mixture, parts, graph):
    trees, network, weights = parts
    honest = mixture_of({"trees": trees, "hops": network}, weights)
    unseen = mixture.judged_by_folds(graph).own_logits
    # folds trained side by side, and one by one from their parameters, differ by float32 rounding
    assert float((unseen - honest.own_logits).norm() / unseen.norm()) < 1e-5
    assert float((unseen - mixture.own_logits).abs().max()) > 0.1
    assert_identical(trees.judged_by_folds(graph).own_logits, trees.own_logits)


def test_every_label_has_a_row_the_most_doubtful_first(audit, graph):
    table = audit.to_frame()
    assert sorted(table.node) == sorted(f"n{i}" for i in graph.split.val.tolist())
    assert (np.diff(table.p_wrong) <= 0).all()
    assert table.expected_wrong.iloc[-1] == pytest.approx(audit.p_wrong.sum(), rel=1e-12)
    assert (table.flag == (table.p_wrong >= 0.5)).all()
    of = {f"n{i}": graph.class_names[int(y)] for i, y in enumerate(graph.y.tolist()) if y >= 0}
    assert [of[node] for node in table.node] == table.given.tolist()
    assert table.p_given.between(0, 1).all()
    assert table.reason.str.contains("nearest look-alikes are ").all()


def test_a_label_that_is_not_likely_is_doubted_more_than_others_of_its_class(audit):
    for name, rows in audit.to_frame().groupby("given"):
        assert np.corrcoef(rows.p_given.rank(), rows.p_wrong.rank())[0, 1] < -0.9, name


def test_the_summary_says_what_the_table_says(audit):
    text = audit.summary(80)
    assert f"of {len(audit.given)} labels {int(audit.flagged.sum())} " in text
    assert max(map(len, text.splitlines())) <= 80
    first = audit.to_frame().iloc[0]
    assert re.search(rf"^{first.node} +{first.given} +{first.p_given:.3f} +{first.p_wrong:.3f} +", text, re.MULTILINE)
    assert "confident learning" in text


@pytest.mark.parametrize(("high", "known"), [(9, True), (12, False)])
def test_an_interval_too_wide_to_be_an_answer_is_none(audit, high, known):
    class Wide(Posterior):
        def count(self, among, level=0.9):
            return 2.0, 0, high

    worlds = {field.name: getattr(audit.noise, field.name) for field in dataclasses.fields(Posterior)}
    wide = dataclasses.replace(audit, noise=Wide(**worlds))
    text = wide.summary(80)
    assert (f"  expect 2.0 wrong labels in all (90 %: 0 to {high}); none: " in text) == known
    assert (f"  the data cannot tell how many labels are wrong (90 %: 0 to {high}); none: " in text) != known
    assert ("not known" in text) != known
    assert str(wide.to_frame().iloc[0].node) in text, "the most suspicious are listed all the same"


def test_neighbours_and_look_alikes_are_counted(parts, graph):
    trees = parts[0]
    asked = torch.tensor([0, 7, 50])
    company = company_of(trees, graph, trees.targets, asked)
    x = trees.columns.of(graph).x.double()
    dense = graph.adjacency.to_dense()
    for row, place in enumerate(asked.tolist()):
        node = trees.nodes[place]
        near = [v for v in trees.nodes.tolist() if dense[node, v] != 0 and v != node]
        assert company.neighbours[row].tolist() == torch.bincount(graph.y[near], minlength=2).tolist()
        distance = (x[trees.nodes] - x[node]).norm(dim=1)
        distance[place] = torch.inf
        assert company.alike[row].tolist() == trees.nodes[distance.argsort()[:5]].tolist()
        assert company.alike_labels[row].tolist() == graph.y[company.alike[row]].tolist()


def test_reasons_are_words():
    company = Company(torch.tensor([[2, 1], [0, 0]]), torch.zeros(2, 3), torch.tensor([[0, 0, 1], [1, 1, 1]]))
    names = ("fine", "fraud")
    assert company.sentence(0, 1, names) == "1 of 3 labelled neighbours and 1 of 3 nearest look-alikes are fraud"
    assert company.sentence(1, 0, names) == "no labelled neighbour, 0 of 3 nearest look-alikes are fine"


@pytest.mark.slow
def test_labels_without_a_model_are_left_out(mixture, graph):
    logits = mixture.judged_by_folds(graph).own_logits.clone()
    logits[[3, 8]] = torch.nan
    audit = audit_labels(mixture, graph, logits, "", "auto", 0.5)
    assert len(audit.to_frame()) == len(logits) - 2
    assert not set(mixture.nodes[[3, 8]].tolist()) & set(audit.nodes.tolist())


def test_what_cannot_be_audited_is_one_sentence(mixture, graph):
    logits = mixture.judged_by_folds(graph).own_logits
    with pytest.raises(InputError, match=r"must be in \(0, 1\], got 1.5"):
        audit_labels(mixture, graph, logits, "", "auto", 1.5)
    few = logits.clone()
    few[(mixture.targets == 1).nonzero().flatten()[4:]] = torch.nan
    with pytest.raises(InputError, match=r"needs 10 labels of each class .* got 4 of '1'"):
        audit_labels(mixture, graph, few, "", "auto", 0.5)
