from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare.leave_one_out import leave_one_out
from calirare_ext.reference import hessian
from calirare_lab.leave_one_out import HessianRange, Influence, Newton, hessian_times, safe_damping, spectrum_ends
from tests.calirare.leave_one_out.cases import close, dense_jacobian, linearised_network, run
from tests.calirare.leave_one_out.test_modules import WHERE, both
from tests.helpers.problems import NETWORKS, normal, with_spectrum

SHALLOW = [name for name, spec in NETWORKS.items() if spec.n_layers <= 2]


def exact(problem) -> Tensor:
    return hessian(problem.field, problem.layers, problem.targets, problem.sample_weights)


@pytest.mark.parametrize("name", SHALLOW)
def test_the_range_solves_with_the_exact_hessian(name: str) -> None:
    problem = linearised_network(name)
    full, tape = exact(problem), problem.tape
    small, combinations = HessianRange(tape), normal(5, tape.n_nodes * (tape.n_classes - 1), seed=3)
    system = full + 0.7 * torch.eye(full.shape[0], dtype=torch.float64)
    rhs = combinations @ dense_jacobian(tape).flatten(0, 1)
    assert close(small.solve(combinations, 0.7) @ system, rhs, 1e-9)
    values = torch.linalg.eigvalsh(full)
    assert small.ends() == pytest.approx((min(float(values[0]), 0.0), float(values[-1])), rel=1e-8, abs=1e-12)


def directions_of(problem, damping: float, *, newton_step: bool) -> Tensor:
    """(H + damping - J_i^T D_i J_i)^-1 g_i / m or without the leverage term, one dense system per node."""
    jacobian = dense_jacobian(problem.tape)
    curvature, error = problem.tape.loss_terms
    system = exact(problem) + damping * torch.eye(jacobian.shape[2], dtype=torch.float64)
    out = []
    for i in range(len(error)):
        without = system - jacobian[i].T @ curvature[i] @ jacobian[i] if newton_step else system
        out.append(torch.linalg.solve(without, jacobian[i].T @ error[i]))
    return torch.stack(out)


DAMPING = 2.0  # above the lowest curvature of every network here


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS)[::2])
@pytest.mark.parametrize("solver", ["cg", "lowrank"])
@pytest.mark.parametrize("method", [Influence, Newton])
def test_every_solver_gives_the_dense_answer(name: str, solver: str, method) -> None:
    problem = linearised_network(name)
    if solver == "lowrank" and NETWORKS[name].n_layers > 2:
        pytest.skip("the low-rank structure stops at two layers")
    damping = max(DAMPING, -1.5 * float(torch.linalg.eigvalsh(exact(problem))[0]))
    found = run(problem, damping, method(solver=solver, tolerance=1e-12, max_iterations=500))
    assert found.damping == damping
    delta = directions_of(problem, damping, newton_step=method is Newton)
    moved = torch.einsum("vap,ip->vai", dense_jacobian(problem.tape), delta)
    assert close(found.change, moved, 1e-7)
    assert close(found.own, moved.diagonal(dim1=0, dim2=2).T, 1e-7)


def test_negative_curvature_raises_the_damping_and_says_so() -> None:
    problem = linearised_network("two layers")
    lowest = float(torch.linalg.eigvalsh(exact(problem))[0])
    assert lowest < -1e-3
    for solver in ("cg", "lowrank"):
        found = run(problem, 1e-3, Influence(solver=solver, max_iterations=500))
        assert found.damping > -lowest
        assert found.diagnostics is not None
        assert "raised from 1.00e-03" in found.diagnostics.damping_reason
        assert found.diagnostics.lowest_curvature == pytest.approx(lowest, rel=1e-3)


@pytest.mark.parametrize("name", ["two layers", "four layers"])
def test_negative_curvature_is_never_stepped_over(name: str) -> None:
    problem = linearised_network(name)
    settings = Influence(solver="cg", automatic_damping=False)
    with pytest.raises(NotConvergedError, match="NEGATIVE_CURVATURE"):
        run(problem, 1e-3, settings)


def test_too_few_iterations_are_an_error() -> None:
    problem = linearised_network("two layers")
    settings = Influence(solver="cg", max_iterations=1, tolerance=1e-12)
    with pytest.raises(NotConvergedError, match="MAX_ITERATIONS"):
        run(problem, DAMPING, settings)


@pytest.mark.parametrize("size", [1, 2, 40])
def test_lanczos_finds_the_ends(size: int) -> None:
    values = torch.linspace(-0.03, 2.0, size, dtype=torch.float64)
    matrix = with_spectrum(values, seed=2)
    low, high = spectrum_ends(lambda v: v @ matrix, size, matrix)
    assert low == pytest.approx(float(values[0]), rel=1e-6)
    assert high == pytest.approx(float(values[-1]), rel=1e-6)


@pytest.mark.parametrize(
    ("lowest", "wanted", "damping"), [(0.0, 0.01, 0.01), (-0.005, 0.01, 0.01), (-0.02, 0.01, 0.032)]
)
def test_rule_for_the_damping(lowest: float, wanted: float, damping: float) -> None:
    assert safe_damping(lowest, wanted)[0] == pytest.approx(damping)


@pytest.mark.slow
@pytest.mark.parametrize("method", [Influence, Newton])
def test_a_module_gets_what_the_gcn_gets(method) -> None:
    fit, graph, module = both(3, 2)
    vectors = torch.randn(4, fit.linearisation.n_parameters, dtype=torch.float64)
    here, there = (hessian_times(each.linearisation, vectors, damping=0.3) for each in (fit, module))
    assert close(there, here, 1e-10)
    wanted = leave_one_out(fit, graph, method(solver="cg", tolerance=1e-10), nodes=WHERE)
    found = leave_one_out(module, method=method(solver="cg", tolerance=1e-10), nodes=WHERE)
    assert close(found.change, wanted.change, 1e-6)
    with pytest.raises(ValueError, match="must have a GCN, got another module: take solver='cg'"):
        leave_one_out(module, method=method(solver="lowrank"), nodes=WHERE)


def test_conventions_change_sign_or_damping() -> None:
    fit, graph, _ = both(2, 1)
    right, printed = (leave_one_out(fit, graph, Influence(convention=each)) for each in ("corrected", "paper"))
    assert float((right.change + printed.change).abs().max()) < 1e-3 * float(right.change.abs().max())
    assert leave_one_out(fit, graph, Influence(convention="official")).damping == 1e-2, "the authors' own"
    with pytest.raises(ValueError, match="convention must be one of"):
        Influence(convention="mine")  # type: ignore[arg-type]
