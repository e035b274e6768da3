"""Any torch module through the interface of the GCN: the same numbers, and retraining as the judge."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from calirare import GCN, Split
from calirare.curvature import GgnInverse
from calirare.datasets import synthetic_rare
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.leave_one_out import (
    ALO,
    Grouped,
    jackknife,
    leave_one_out,
    quality,
)
from calirare.models import GcnFit, GcnTraining, ModuleFit, fit_of
from tests.calirare.leave_one_out.cases import close, trained

WHERE = torch.tensor([0, 5, 149])


class Convolutions(nn.Module):
    """The GCN of `calirare.models.gcn` again, from dense matrices; parameters in the same order."""

    def __init__(self, of: GCN) -> None:
        super().__init__()
        pairs = list(zip(of.weights, of.biases, strict=True))
        self.layers = nn.ParameterList(p.detach().clone() for pair in pairs for p in pair)
        self.unused = nn.Parameter(torch.ones(1, dtype=torch.float64), requires_grad=False)

    def forward(self, a: Tensor, inputs: Tensor) -> Tensor:
        z = inputs @ self.layers[0] + self.layers[1]
        for weight, bias in zip(self.layers[2::2], self.layers[3::2], strict=True):
            z = a @ torch.relu(z) @ weight + bias
        return z


def both(n_classes: int, n_layers: int) -> tuple[GcnFit, Graph, ModuleFit]:
    """A GCN and the same function as a plain module."""
    fit, graph = trained(n_classes, n_layers)
    kept = propagation(graph).to(torch.float64)
    inputs = kept.inputs if isinstance(kept.inputs, Tensor) else kept.inputs.to_dense()
    module = Convolutions(fit.model).eval()
    arguments = (kept.a_hat.to_dense(), inputs)
    return fit, graph, ModuleFit(module, arguments, fit.nodes, fit.targets, fit.sample_weights, fit.weight_decay)


SETTINGS = {
    "alo": ALO(form="jacobian"),
    "alo, primal": ALO(form="primal"),
    "grouped": Grouped(n_groups=4),
    "alo, some labels": ALO(n_models=5),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_classes", "n_layers"),
    [
        *((name, 3, 2) for name in SETTINGS),
        ("alo", 2, 2),
    ],
)
def test_every_method_gives_a_module_what_it_gives_the_gcn(name: str, n_classes: int, n_layers: int) -> None:
    fit, graph, module = both(n_classes, n_layers)
    before = copy.deepcopy(module.model.state_dict())
    wanted = leave_one_out(fit, graph, SETTINGS[name], nodes=WHERE)
    found = leave_one_out(module, method=SETTINGS[name], nodes=WHERE)
    known = torch.isfinite(wanted.own).all(1)
    assert close(found.change, wanted.change, 1e-6)
    assert close(found.own[known], wanted.own[known], 1e-6)
    assert torch.equal(torch.isfinite(found.own).all(1), known)
    assert torch.equal(found.samples()[0], wanted.samples()[0])
    assert found.damping == pytest.approx(wanted.damping, rel=0.05)
    assert all(torch.equal(before[key], value) for key, value in module.model.state_dict().items())


@pytest.mark.slow
def test_derivatives_are_those_of_the_gcn() -> None:
    fit, _, module = both(3, 2)
    ours, theirs = fit.linearisation, module.linearisation
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(4, ours.n_parameters, generator=generator, dtype=torch.float64)
    u = torch.randn(4, ours.n_nodes, 2, generator=generator, dtype=torch.float64)
    assert theirs.n_parameters == ours.n_parameters
    assert close(theirs.logits, ours.logits, 1e-12)
    assert close(theirs.jacobian, ours.jacobian, 1e-10)
    assert close(theirs.jvp(v), ours.jvp(v), 1e-10)
    assert close(theirs.vjp(u), ours.vjp(u), 1e-10)
    assert close(GgnInverse(theirs, 0.05)(v), GgnInverse(ours, 0.05)(v), 1e-9)
    assert module.gradient_norm() == pytest.approx(fit.gradient_norm(), rel=1e-5, abs=1e-12)


def test_the_jackknife_of_a_module_is_that_of_the_gcn() -> None:
    fit, graph, module = both(2, 2)
    wanted, found = jackknife(fit, graph), jackknife(module, method=ALO())
    assert found.nodes.tolist() == list(range(graph.n_nodes))
    for part in ("lower", "upper", "uncertainty", "confidence", "ice", "residuals", "own_loo_logits", "leverage"):
        assert close(getattr(found, part), getattr(wanted, part), 1e-5), part
    for fact, value in wanted.diagnostics.items():
        if fact != "seconds":
            assert found.diagnostics[fact] == pytest.approx(value, rel=1e-4, abs=1e-9), fact
    plain, theirs = (quality(one, leave_one_out(one, graph)) for one in (fit, module))
    assert (plain.verdict, theirs.verdict) == ("trust", "caution")  # no label that it has not seen was asked
    assert theirs.loo_nll == pytest.approx(plain.loo_nll)


def test_a_bare_network_at_a_minimum_raises_no_doubt() -> None:
    fit, graph, _ = both(2, 1)
    graph = graph.with_split(Split(fit.nodes, torch.tensor([1]), torch.tensor([2])))
    trained, _ = GcnTraining(n_layers=1, hidden=4).fit_to_convergence(graph, fit.nodes, tolerance=1e-8)
    assert jackknife(trained.model, graph, nodes=WHERE).note == jackknife(trained, graph, nodes=WHERE).note
    with torch.no_grad():
        trained.model.weights[0].mul_(0.05)
    assert "say so with labels= and class_weight=" in jackknife(trained.model, graph, nodes=WHERE).note


@pytest.fixture(scope="module")
def rare() -> Graph:
    return synthetic_rare(240, seed=0, share=0.25, n_features=6, separation=2.0)


@pytest.mark.slow
def test_a_users_module_needs_no_more_than_the_graph(rare: Graph) -> None:
    from torch_geometric.nn import SAGEConv

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.norm, self.second = SAGEConv(6, 8), nn.BatchNorm1d(8), SAGEConv(8, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            hidden = torch.dropout(torch.relu(self.norm(self.first(x, edge_index))), 0.5, self.training)
            return self.second(hidden, edge_index)

    model = Own()
    parts = torch.arange(240).split([20, 20, 200])
    with pytest.warns(UserWarning, match="cannot be relied on"):  # it was not trained at all
        result = jackknife(model, rare.with_split(Split(*parts)), ALO(damping=0.05))
    assert model.training, "as it was found"
    assert result.lower.shape == (240,)
    assert bool((result.lower <= result.upper).all())
    assert 0 < result.eice < 1
    fit = fit_of(model, rare, torch.arange(20), weight_decay=0.05)
    assert isinstance(fit, ModuleFit)
    assert bool(leave_one_out(fit).own.isfinite().all())


def test_what_a_module_cannot_do_is_said() -> None:
    fit, graph, module = both(2, 2)
    with pytest.raises(ValueError, match="must have a GCN, got another module: take form='auto'"):
        leave_one_out(module, method=ALO(form="gram"), nodes=WHERE)
    for wrong in ("magic", Grouped):
        with pytest.raises(TypeError, match=r"method must be one such as ALO\(\) or Grouped\(\), got"):
            jackknife(fit, graph, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="graph must be given"):
        leave_one_out(fit)
    with pytest.raises(ValueError, match="data must be given"):
        jackknife(fit)
    with pytest.raises(ValueError, match="inputs must be None with a GCN"):
        fit_of(fit.model, graph, fit.nodes, inputs=())
    arguments = (module.nodes, module.targets, module.sample_weights, 0.1)
    with pytest.raises(ValueError, match="evaluation mode"):
        ModuleFit(Convolutions(fit.model), module.inputs, *arguments)
    frozen = Convolutions(fit.model).eval().requires_grad_(False)
    with pytest.raises(ValueError, match="parameters that require a gradient, got none"):
        ModuleFit(frozen, module.inputs, *arguments)
    a, x = module.inputs
    with pytest.raises(ValueError, match=r"nodes must be in \[0, 50\), got \d+ to 117"):
        ModuleFit(module.model, (a[:50, :50], x[:50]), *arguments)


class Linear(nn.Module):
    """A module that misbehaves as told."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.fault = fault

    def forward(self, x: Tensor, edges: Tensor) -> object:
        if self.fault == "in place":
            x = x.relu_()
        z = self.layer(x)
        if self.fault == "random":
            return z + torch.randn_like(z)
        return {"tuple": (z, edges), "detached": z.detach(), "vector": z[:, 0], "short": z[:12]}.get(self.fault, z)


@pytest.fixture
def ring() -> Graph:
    torch.manual_seed(0)
    edges = torch.stack([torch.arange(30), torch.arange(1, 31) % 30], 1)
    edges = torch.cat([edges, edges.flip(1)])
    graph = Graph.from_edges(edges, torch.randn(30, 4), (torch.arange(30) % 3 == 1).long())
    return graph.with_split(Split(torch.arange(12), torch.arange(12, 16), torch.arange(16, 30)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("tuple", r"must return logits \[n, k\], got tuple: wrap it"),
        ("vector", r"must return logits \[n, k\], got \[30\]"),
        ("detached", "logits must depend on the parameters"),
        ("in place", "must leave its inputs alone"),
        ("random", "the same logits at every call"),
        ("short", "must return logits of all 30 nodes, got 12 rows"),
    ],
)
def test_a_module_that_misbehaves_is_refused(ring: Graph, fault: str, message: str) -> None:
    x = torch.as_tensor(ring.x).clone()
    with pytest.raises(ValueError, match=message):
        jackknife(Linear(fault), ring)
    assert torch.equal(torch.as_tensor(ring.x), x)


def test_labels_of_a_module_are_checked(ring: Graph) -> None:
    inputs = (ring.x, torch.zeros(2, 0, dtype=torch.int64))
    nodes, targets, weights = torch.arange(6), ring.y[:6], torch.ones(6)  # type: ignore[index]
    model = Linear().eval()
    mask = torch.arange(30) < 6
    for arguments, kind, message in (
        ((mask, targets, weights, 0.1), TypeError, r"node numbers, got a mask: take mask\.nonzero"),
        ((nodes.int(), targets, weights, 0.1), TypeError, "nodes must be int64, got int32"),
        (([0, 1], targets, weights, 0.1), TypeError, "must be an int64 tensor, got list"),
        ((nodes - 1, targets, weights, 0.1), ValueError, r"nodes must be in \[0, 30\), got -1 to 4"),
        ((nodes // 2, targets, weights, 0.1), ValueError, "nodes must be distinct"),
        ((nodes[:0], targets[:0], weights[:0], 0.1), ValueError, "at least one labelled node, got none"),
        ((nodes, targets[:5], weights, 0.1), ValueError, r"targets must have shape \[6\]"),
        ((nodes, targets.float(), weights, 0.1), TypeError, "targets must be int64"),
        ((nodes, targets + 1, weights, 0.1), ValueError, "with k > 2 classes"),
        ((nodes, targets, weights[:1], 0.1), ValueError, r"sample_weights must have shape \[6\]"),
        ((nodes, targets, None, 0.1), TypeError, "sample_weights must be a tensor, got NoneType"),
        ((nodes, targets, -weights, 0.1), ValueError, "sample_weights must be finite and >= 0, got -1.0 at place 0"),
        ((nodes, targets, weights, float("nan")), ValueError, "weight_decay must be finite and >= 0, got nan"),
    ):
        with pytest.raises(kind, match=message):
            ModuleFit(model, inputs, *arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameters must be float32 or float64"):
        ModuleFit(Linear().half().eval(), (ring.x.half(), inputs[1]), nodes, targets, weights, 0.1)  # type: ignore[union-attr]


def test_without_weight_decay_a_damping_must_be_given(ring: Graph) -> None:
    for model in (Linear(), GCN(4, 2)):
        bare = fit_of(model, ring, weight_decay=0.0)
        with pytest.raises(ValueError, match="damping must be given where the weight decay is 0"):
            leave_one_out(bare, ring)
        found = jackknife(bare, ring, ALO(damping=0.1), folds=0)
        assert bool(torch.isfinite(found.lower).all())
        assert quality(bare, leave_one_out(bare, ring, ALO(damping=0.1))).verdict != "trust"
        for damping in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="damping must be positive and finite"):
                jackknife(bare, ring, ALO(damping=damping))
