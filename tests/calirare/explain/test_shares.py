"""Features: shares add up to the log-odds, are weights times deviations of a linear model, and integrals of others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from calirare.calibration import PriorPlattCalibrator
from calirare.explain import difference
from calirare.explain.explainable_model import Shares
from calirare.explain.mixture import ExplainableMixture
from calirare.explain.network import ExplainableNetwork
from calirare.explain.network_shares import NEIGHBOURHOOD
from calirare.explain.shares import stretched
from calirare.explain.trees import ExplainableTrees
from calirare.explain.words import Values
from calirare.graph import propagated_features
from calirare.models import GcnTraining, Member, Mixture, MlpTraining, TreesTraining
from calirare_ext import Csr
from tests.calirare.explain.test_edges import with_relations
from tests.helpers.tasks import rare_task

NODES = torch.arange(0, 60, 3).flip(0)  # as alerts come: in no order of their numbers
FLOAT32 = 300 * torch.finfo(torch.float32).eps  # sums of a few hundred float32 numbers


@pytest.fixture(scope="module")
def task():
    return rare_task()


def words(task):
    """The task with sparse features >= 0."""
    x = task.x.clamp(min=0)
    return dataclasses.replace(task, x=Csr.from_dense(x))


def test_shares_of_sparse_features_add_up_to_the_log_odds(task):
    """Other detectors: `test_many_classes`."""
    model = ExplainableNetwork(GcnTraining(epochs=20, hops=2).fit(words(task), task.split.train), words(task))
    shares, z = model.shares(NODES), difference(model.logits(NODES))
    base, values = difference(shares.base), difference(shares.values)
    assert len(shares.names) == values.shape[1] == len(set(shares.names))
    assert float(values.abs().max()) > 0.01
    off = (base + values.sum(1) - z).abs()
    assert bool((off <= FLOAT32 * (values.abs().sum(1) + base.abs() + 1)).all())


def test_of_a_linear_model_they_are_weights_times_deviations(task):
    fitted = MlpTraining(epochs=20, n_layers=1).fit(task, task.split.train)
    model = ExplainableNetwork(fitted, task)
    x = fitted.columns.of(task).x.double()
    weight = fitted.model.weights[0].detach().double()
    expected = (x[NODES] - x.mean(0)) * (weight[:, 1] - weight[:, 0])
    found = model.shares(NODES)
    assert float((difference(found.values) - expected).abs().max()) <= FLOAT32 * float(expected.abs().max())
    assert "mean of neighbours of feature 2" in found.names
    assert "mean over 2 hops of feature 2" in found.names
    assert "number of neighbours" in found.names


@pytest.mark.slow
def test_of_a_convolution_they_are_integrated_gradients_of_every_nodes_features(task):
    """By differentiation through the dense network at 1,000 points of the path."""
    fitted = GcnTraining(epochs=30, hops=2).fit(task, task.split.train)
    layers = [(w.detach().double(), b.detach().double()) for w, b in fitted.model.layers()]
    a = fitted.model.propagation(task).a_hat.to_dense().double()
    x, steps, node = propagated_features(task, 1).double(), 1000, 21
    start, total = x.mean(0).expand_as(x), torch.zeros_like(x)
    for t in (torch.arange(steps) + 0.5) / steps:
        at = (start + t * (x - start)).requires_grad_()
        z = (a @ torch.relu(a @ (a @ (at @ layers[0][0])) + layers[0][1]) @ layers[1][0] + layers[1][1])[node]
        total += torch.autograd.grad(z[1] - z[0], at)[0] / steps
    integral = (x - start) * total
    found = ExplainableNetwork(fitted, task).shares(torch.tensor([node]))
    d = x.shape[1]
    assert found.names[d] == NEIGHBOURHOOD + found.names[0]
    expected = torch.cat([integral[node], integral.sum(0) - integral[node]])
    # A kink between two of the points costs a step of it.
    assert float((difference(found.values)[0] - expected).abs().max()) <= 20 / steps * float(expected.abs().max())


@pytest.fixture(scope="module")
def mixture(task):
    train, parts = task.split.train, []
    parts.append(ExplainableNetwork(GcnTraining(epochs=20).fit(task, train), task))
    for kind in ("boosting", "extra"):
        growing = TreesTraining(kind=kind, rounds=12, patience=0, folds=2)
        parts.append(ExplainableTrees(growing.fit(task, train), task))
    generator = torch.Generator().manual_seed(0)
    members = []
    for i, (part, weight) in enumerate(zip(parts, (0.5, 0.3, 0.2), strict=True)):
        z = torch.stack([torch.zeros(40), torch.randn(40, generator=generator)], 1).double()
        spoken = PriorPlattCalibrator().fit(z, (z[:, 1] > 0.3 * i).long())
        members.append(Member(str(i), part.fitted, spoken, weight))
    return ExplainableMixture(Mixture(tuple(members)), parts), Mixture(tuple(members))


def test_an_average_says_what_its_detector_says_and_its_shares_add_up(mixture, task):
    model, detector = mixture
    logits = torch.stack(
        [member.weight * member.probabilities(member.fitted.logits_of(task, NODES)) for member in detector.members]
    )
    assert float((model.logits(NODES).softmax(1) - logits.sum(0)).abs().max()) <= FLOAT32
    shares = model.shares(NODES)
    assert float((shares.base + shares.values.sum(1) - model.logits(NODES)).abs().max()) <= FLOAT32 * 10
    own = [part.shares(NODES) for part in model.models]
    assert set(shares.names) == {name for each in own for name in each.names}


def test_labels_and_edges_of_an_average_go_through_every_members_map(mixture):
    model, detector = mixture

    def pooled(logits):
        pairs = zip(detector.members, model.models, strict=True)
        return sum(member.weight * member.probabilities(logits(part)) for member, part in pairs).log()

    ends = torch.tensor([[20, 7], [20, 30]])
    sets = [torch.tensor([2, 5])]
    pairs = (
        (model.without_each_label(NODES), pooled(lambda v: v.without_each_label(NODES))),
        (model.without_labels(NODES, sets), pooled(lambda v: v.without_labels(NODES, sets))),
        (model.without_edges(20, ends), pooled(lambda v: v.without_edges(20, ends))),
    )
    for found, expected in pairs:
        assert float((found - expected).abs().max()) <= FLOAT32
    assert float((pairs[0][0] - model.logits(NODES)).abs().max()) > 0.001


def test_stretched_shares_keep_signs_and_add_up_to_what_is_asked():
    shares = Shares(torch.tensor([1.0, 0.0]).double(), ("a", "b"), torch.tensor([[2.0, -1.0], [0.0, 0.0]]).double())
    found = stretched(shares, torch.tensor([-3.0, 2.0]).double(), torch.tensor([-1.0, 2.0]).double())
    np.testing.assert_array_equal(found.values.numpy(), [[4.0, -2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(found.base.numpy(), [-3.0, 2.0])


@pytest.mark.parametrize("names", [tuple("abcdef"), ()])
def test_values_are_those_of_the_users_table(task, names):
    values, name = Values(dataclasses.replace(task, feature_names=names)), names[2] if names else "feature 2"
    around, more = (
        task.adjacency.to_dense()[20].nonzero().flatten(),
        (f"mean over 2 hops of {name}", NEIGHBOURHOOD + name),
    )
    made = Shares(torch.zeros(1), (name, f"mean of neighbours of {name}", *more, "direction 2"), torch.ones(1, 5))
    found = values.plain(made)
    assert found.names == (name, f"{name} of neighbours", "direction 2")
    assert found.values.tolist() == [[1.0, 3.0, 1.0]], "what is made of the neighbours' column is one"
    assert values.of(20, name).value == f"{float(task.x[20, 2]):.4g}"
    assert values.of(20, f"{name} of neighbours").value == f"{float(task.x[around, 2].mean()):.4g}"
    low, high = np.quantile(task.x[:, 2].double(), [0.05, 0.95])
    assert values.of(20, name).usual == f"{low:.4g} to {high:.4g}"
    assert values.of(20, "number of neighbours").value == str(around.numel())
    assert values.of(20, "direction 2") is None


def test_columns_that_are_called_as_ours_are_keep_their_names_and_values(task):
    """A user's "number of neighbours" is not the degree, nor is any other made column taken for one of theirs."""
    names = ("number of neighbours", "mean of neighbours of c", "c", "log degree", "neighbours' c", NEIGHBOURHOOD + "c")
    named = dataclasses.replace(task, feature_names=names)
    values, degree = Values(named), task.adjacency.to_dense()[20].nonzero().numel()
    more = (*names, "mean of neighbours of c in the graph")
    assert values.plain(Shares(torch.zeros(1), more, torch.ones(1, 7))).names == (*names, "c of neighbours")
    for i, name in enumerate(names):
        assert values.of(20, name).value == f"{float(task.x[20, i]):.4g}"
    assert values.of(20, "number of neighbours in the graph").value == str(degree)
    around = task.adjacency.to_dense()[20].nonzero().flatten()
    assert values.of(20, "c of neighbours").value == f"{float(task.x[around, 2].mean()):.4g}"
    trained = named.split.train
    trees = TreesTraining(kind="extra", rounds=12, patience=0, folds=2)
    for model in (
        ExplainableNetwork(MlpTraining(epochs=2).fit(named, trained), named),
        ExplainableTrees(trees.fit(named, trained), named),
        ExplainableNetwork(GcnTraining(epochs=2, hops=2).fit(named, trained), named),
    ):
        found = model.shares(NODES).names
        assert found[:6] == names
        assert len(set(found)) == len(found)
        assert {"number of neighbours in the graph", NEIGHBOURHOOD + "c in the graph"} & set(found)


def test_a_column_that_the_detector_does_not_read_is_not_the_degree(task):
    """A constant column is dropped: what is then called the number of neighbours is the degree."""
    named = dataclasses.replace(task, feature_names=("number of neighbours", *"bcdef"))
    assert Values(named, tuple("bcdef")).of(20, "number of neighbours").value == str(
        task.adjacency.to_dense()[20].nonzero().numel()
    )


def test_columns_of_typed_edges_are_told_in_words_with_their_values():
    task = with_relations(rare_task())
    task = dataclasses.replace(task, feature_names=tuple(f"f{i}" for i in range(task.n_features)))
    model = ExplainableNetwork(MlpTraining(epochs=20).fit(task, task.split.train), task)
    shares, values = model.shares(NODES[:1]), Values(task)
    names, plain = shares.names, values.plain(shares).names
    assert {"number of neighbours, pays to", "mean of neighbours (calls from) of f1"} <= set(names)
    assert not [name for name in names if "log degree" in name or name.startswith(("pays", "calls"))]
    pays = next(each for each in task.relations if each.name == "pays")
    node = int(pays.out.indptr.diff().argmax())
    around = pays.out.indices[pays.out.indptr[node] : pays.out.indptr[node + 1]].long()
    assert "f1 of neighbours (pays to)" in plain
    assert values.of(node, "number of neighbours, pays to").value == str(len(around))
    found = float(values.of(node, "f1 of neighbours (pays to)").value)
    assert found == pytest.approx(float(task.x[around, 1].mean()), rel=1e-3)
