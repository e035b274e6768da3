from __future__ import annotations

import copy

import pytest
import torch

from calirare._util.errors import InputError
from calirare.leave_one_out import (
    ALO,
    METHODS,
    alo_change,
    leave_one_out,
    sampled_leverages,
)
from calirare.leave_one_out.alo import grouped, quantile_error
from calirare.models import GCN, fit_of
from tests.calirare.leave_one_out.cases import close, dense_jacobian, linearised_network, trained


@pytest.mark.parametrize("name", ["two layers", "three classes", "three layers, four classes", "one layer"])
def test_groups_of_one_are_leave_one_out(name: str) -> None:
    problem = linearised_network(name)
    one = grouped(problem.tape, problem.field, 0.05, torch.arange(problem.tape.n_nodes))
    plain = alo_change(problem.tape, problem.field, 0.05)
    assert close(one.change, plain.change)
    assert close(one.own, plain.own)
    assert close(one.leverage, plain.leverage)


def test_a_group_is_left_out_together() -> None:

    problem = linearised_network("three classes")
    jacobian = dense_jacobian(problem.tape)
    curvature, error = problem.tape.loss_terms
    groups = torch.tensor([0, 1, 0, 1, 1])
    found = grouped(problem.tape, problem.field, 0.05, groups)
    for g in (0, 1):
        kept = (groups != g).nonzero().flatten()
        left = (groups == g).nonzero().flatten()
        matrix = torch.einsum("iap,iab,ibq->pq", jacobian[kept], curvature[kept], jacobian[kept])
        matrix = matrix + 0.05 * torch.eye(jacobian.shape[2], dtype=torch.float64)
        delta = torch.linalg.solve(matrix, torch.einsum("iap,ia->p", jacobian[left], error[left]))
        moved = jacobian @ delta
        assert close(found.change[:, :, g], moved)
        assert close(found.own[left], moved[left])
    with pytest.raises(ValueError, match="groups must name groups"):
        grouped(problem.tape, problem.field, 0.05, torch.tensor([0, 2, 0, 2, 2]))


def test_quantile_error_holds_in_simulation() -> None:
    m, s, rounds = 400, 60, 400
    generator = torch.Generator().manual_seed(0)
    values = torch.sort(torch.randn(m, generator=generator)).values
    bound = quantile_error(s, m)
    worst = []
    for _ in range(rounds):
        drawn = torch.sort(values[torch.randperm(m, generator=generator)[:s]]).values
        share = torch.searchsorted(drawn, values, right=True) / s
        worst.append(float((share - torch.arange(1, m + 1) / m).abs().max()))
    missed = sum(w > bound for w in worst) / rounds
    assert missed <= 0.05
    assert sum(w > bound / 2 for w in worst) / rounds > 0.2  # not a bound that anything meets
    assert quantile_error(m, m) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two layers", "three classes", "three layers, four classes"])
def test_sampled_leverages_near_the_exact_ones(name: str) -> None:
    problem = linearised_network(name)
    exact = alo_change(problem.tape, problem.field, 0.05).leverage
    assert float((sampled_leverages(problem.tape, 0.05, samples=20_000) - exact).abs().max()) < 0.02
    few = [sampled_leverages(problem.tape, 0.05, samples=400, seed=seed) for seed in range(6)]
    assert all(0 <= float(each.min()) <= float(each.max()) < 1 for each in few)
    assert float((torch.stack(few).mean(0) - exact).abs().max()) < 0.05


@pytest.mark.parametrize("method", ["alo", "grouped"])
def test_every_method_behind_one_function(method: str) -> None:
    fit, graph = trained(2, 1)
    options = {"n_models": 3} if method == "alo" else {"n_groups": 4}
    found = leave_one_out(fit, graph, METHODS[method](**options), nodes=torch.tensor([3, 4]))
    facts = found.diagnostics
    assert facts is not None
    assert facts.method == method
    assert facts.damping == found.damping > 0
    assert facts.seconds > 0
    assert facts.estimated_bytes > 0
    places, models = found.samples()
    assert places.numel() == models.numel()
    assert int(models.max()) == found.change.shape[2] - 1
    assert found.change.shape[:2] == (2, 1)


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    fit, graph = trained(2, 2)
    with pytest.raises(InputError, match=r"GB are needed and 0.10 GB are allowed: take method='alo'"):
        leave_one_out(fit, graph, ALO(memory_limit=100_000_000))


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("alo", {"form": "odd"}, "form must be one of"),
        ("alo", {"damping": -1.0}, "damping must be positive"),
        ("grouped", {"n_groups": 1}, "n_groups must be at least 2"),
    ],
)
def test_options_out_of_range(method: str, option: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{method}: {message}"):
        METHODS[method](**option)


def test_a_gcn_that_is_none_is_refused() -> None:
    fit, graph = trained()

    class Doubled(GCN):
        def forward(self, *arguments):
            return 2 * super().forward(*arguments)

    with pytest.raises(ValueError, match="got a Doubled that is derived or has frozen parameters"):
        fit_of(Doubled(graph.n_features).double(), graph, fit.nodes)
    frozen = copy.deepcopy(fit.model)
    frozen.biases[0].requires_grad_(False)
    with pytest.raises(ValueError, match="got a GCN that is derived or has frozen parameters"):
        fit_of(frozen, graph, fit.nodes)
