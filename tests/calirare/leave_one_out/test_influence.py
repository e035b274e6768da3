from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare.curvature import GgnInverse, HessianRange, linearise, safe_damping, spectrum_ends
from calirare.curvature.exact_hessian import residual_factors
from calirare.leave_one_out import Influence, Newton
from calirare_ext import Csr, ReceptiveField, hessian_product, solve_inverse_hvp
from calirare_ext.reference import ggn, hessian
from tests.calirare.leave_one_out.cases import close, dense_jacobian, linearised_network, run, trained
from tests.helpers.problems import NETWORKS, normal, with_spectrum

SHALLOW = [name for name, spec in NETWORKS.items() if spec.n_layers <= 2]


def exact(problem) -> Tensor:
    return hessian(problem.field, problem.layers, problem.targets, problem.sample_weights)


@pytest.mark.parametrize("name", SHALLOW)
def test_residual_factors_are_what_gauss_newton_drops(name: str) -> None:
    problem = linearised_network(name)
    q, e = residual_factors(problem.tape)
    dropped = exact(problem) - ggn(problem.field, problem.layers, problem.sample_weights)
    scale = float(exact(problem).abs().max())
    assert float((q.T @ e + e.T @ q - dropped).abs().max()) <= 1e-12 * scale


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


def test_ggn_solver_is_plain_gauss_newton() -> None:
    problem = linearised_network("three classes")
    found = run(problem, 0.1, Influence(solver="ggn"))
    matrix = ggn(problem.field, problem.layers, problem.sample_weights)
    matrix = matrix + 0.1 * torch.eye(matrix.shape[0], dtype=torch.float64)
    _, error = problem.tape.loss_terms
    jacobian = dense_jacobian(problem.tape)
    gradients = torch.einsum("iap,ia->ip", jacobian, error)
    moved = torch.einsum("vap,ip->vai", jacobian, torch.linalg.solve(matrix, gradients.T).T)
    assert close(found.change, moved, 1e-8)


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


@pytest.mark.parametrize("case", ["independent", "repeated", "dependent"])
def test_range_of_more_parameters_than_columns(case: str) -> None:
    fit, _ = trained()
    tape = fit.linearisation
    block = tape.field.blocks[0].to_dense()
    if case == "repeated":  # two labelled nodes with the same neighbours and, so, the same row of the Jacobian
        block[1] = block[0]
    elif case == "dependent":  # the last layer is linear: a node whose neighbours are those of two others
        block[2] = (block[0] + block[1]) / 2
    field = ReceptiveField(tape.field.rows, tape.field.inputs, (Csr.from_dense(block),))
    tape = linearise(field, fit.model.layers(), fit.targets, fit.sample_weights)
    small = HessianRange(tape)
    assert small.hessian.shape[0] < tape.n_parameters
    combinations = normal(4, tape.n_nodes, seed=2)
    rhs = combinations @ dense_jacobian(tape).flatten(0, 1)
    damping = safe_damping(small.ends()[0], fit.weight_decay)[0]
    assert close(hessian_product(tape, small.solve(combinations, damping), damping=damping), rhs, 1e-8)


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


def test_gauss_newton_preconditioner_saves_iterations() -> None:
    fit, _ = trained()
    tape = fit.linearisation
    lowest, _ = spectrum_ends(lambda v: hessian_product(tape, v), tape.n_parameters, tape.logits)
    damping, _ = safe_damping(lowest, fit.weight_decay)
    rhs = normal(4, tape.n_parameters, seed=1)
    plain = solve_inverse_hvp(tape, rhs, damping=damping, tolerance=1e-8)
    helped = solve_inverse_hvp(tape, rhs, damping=damping, tolerance=1e-8, precondition=GgnInverse(tape, damping))
    assert bool((plain.status == 1).all())
    assert bool((helped.status == 1).all())
    assert int(helped.iterations.max()) < int(plain.iterations.max())


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


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match="solver must be one of auto, cg, ggn, lowrank"):
        Influence(solver="lu")  # type: ignore[arg-type]
