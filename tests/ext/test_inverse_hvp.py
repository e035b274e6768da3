"""block_cg and solve_inverse_hvp: residuals recomputed here, and a status for everything that can go wrong."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare_ext import SolverResult, SolverStatus, block_cg, node_gradients, solve_inverse_hvp
from tests.helpers.compare import exact_network, exactly, solution_matches
from tests.helpers.problems import NETWORKS, network, normal, with_spectrum
from tests.helpers.tolerance import assert_identical, assert_within, unit_roundoff

CONVERGED, MAX_ITERATIONS, NEGATIVE_CURVATURE, NON_FINITE = SolverStatus


def product_with(matrix: torch.Tensor, like: torch.Tensor):
    """Returns v -> v A in the dtype and on the device of `like`."""
    matrix = matrix.to(like)
    return lambda v: v @ matrix


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("b", [1, 4])
def test_prescribed_condition_numbers(condition, b, device):
    p, tolerance = 40, 1e-9
    matrix = with_spectrum(torch.logspace(0, torch.tensor(condition).log10(), p).double(), seed=1)
    rhs = normal(b, p, seed=2).to(device)
    result = block_cg(product_with(matrix, rhs), rhs, tolerance=tolerance, max_iterations=4000)
    solution_matches(result, matrix, rhs, tolerance)
    exact = torch.linalg.solve(matrix, exactly(rhs).T).T
    error = (exactly(result.x) - exact).norm(dim=1) / exact.norm(dim=1)
    rounding = (p + 4) * unit_roundoff(torch.float64) * result.iterations.cpu()
    assert bool((error <= condition * (tolerance + rounding)).all()), "the error is at most cond times the residual"


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3])
def test_float32(condition, device):
    matrix = with_spectrum(torch.logspace(0, torch.tensor(condition).log10(), 40).double(), seed=3)
    rhs = normal(3, 40, seed=4).float().to(device)
    result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-4, max_iterations=2000)
    assert result.x.dtype == torch.float32
    assert result.residual_norm.dtype == torch.float64
    solution_matches(result, matrix.float().double(), rhs, 1e-4)


@given(st.integers(1, 6), st.integers(1, 30), st.floats(0, 4), st.integers(0, 10**6))
def test_random_systems(b, p, digits, seed):
    matrix, rhs = with_spectrum(torch.logspace(-digits / 2, digits / 2, p).double(), seed), normal(b, p, seed=seed + 1)
    result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-8, max_iterations=2000)
    solution_matches(result, matrix, rhs, 1e-8)


class TestStopping:
    """Right-hand side j is a sum of j + 1 eigenvectors, which CG solves in j + 1 iterations (p. 54, Greenbaum 1997)."""

    def staircase(self, device) -> tuple[torch.Tensor, torch.Tensor]:
        eigenvalues = torch.tensor([1.0, 2.0, 3.0, 5.0, 8.0], dtype=torch.float64)
        return torch.diag(eigenvalues), torch.tril(torch.ones(5, 5, dtype=torch.float64)).to(device)

    def test_each_right_hand_side_stops_on_its_own(self, device):
        matrix, rhs = self.staircase(device)
        result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-10)
        assert result.iterations.tolist() == [1, 2, 3, 4, 5]
        solution_matches(result, matrix, rhs, 1e-10)

    def test_a_right_hand_side_does_not_depend_on_its_company(self, device):
        """Elementwise products are exact per row, so alone and in a block must agree to the last bit."""
        matrix, rhs = self.staircase(device)
        eigenvalues = matrix.diagonal().to(device)
        together = block_cg(lambda v: v * eigenvalues, rhs, tolerance=1e-10)
        for j in range(5):
            alone = block_cg(lambda v: v * eigenvalues, rhs[j : j + 1], tolerance=1e-10)
            assert_identical(alone.x[0], together.x[j], f"right-hand side {j}")
            assert alone.iterations[0] == together.iterations[j]

    @pytest.mark.parametrize("check_every", [0, 1, 2, 7, 1000])
    def test_how_often_statuses_are_looked_at_changes_nothing(self, check_every, device):
        matrix, rhs = self.staircase(device)
        expected = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-10, max_iterations=60)
        result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-10, max_iterations=60, check_every=check_every)
        for name in SolverResult._fields:
            assert_identical(getattr(result, name), getattr(expected, name), name)


class TestStatus:
    """What each right-hand side reports; none is silent about a fault."""

    def test_max_iterations(self, device):
        matrix, rhs = with_spectrum(torch.logspace(0, 6, 40), seed=7), normal(2, 40, seed=8).to(device)
        result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-12, max_iterations=5)
        assert result.status.tolist() == [MAX_ITERATIONS] * 2
        assert result.iterations.tolist() == [5, 5]
        residual = (exactly(rhs) - exactly(result.x) @ matrix).norm(dim=1) / exactly(rhs).norm(dim=1)
        size = (exactly(result.x).abs() @ matrix.abs()).norm(dim=1) / exactly(rhs).norm(dim=1) + 1
        assert_within(result.residual_norm, residual, 50 * unit_roundoff(torch.float64) * size, "residual")

    def test_negative_curvature_at_once(self, device):
        rhs = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64, device=device)
        result = block_cg(lambda v: v * torch.tensor([1.0, -2.0], dtype=v.dtype, device=device), rhs)
        assert result.status.tolist() == [NEGATIVE_CURVATURE, CONVERGED]
        assert result.x.tolist() == [[0.0, 0.0], [1.0, 0.0]]
        assert result.iterations.tolist() == [0, 1]
        assert result.residual_norm.tolist() == [1.0, 0.0]

    def test_negative_curvature_later_keeps_the_last_good_iterate(self):
        eigenvalues = torch.tensor([4.0, 3.0, 2.0, 1.0, -0.1], dtype=torch.float64)
        result = block_cg(lambda v: v * eigenvalues, torch.ones(1, 5, dtype=torch.float64), tolerance=1e-12)
        assert result.status.tolist() == [NEGATIVE_CURVATURE]
        assert result.iterations[0] > 0
        assert 1e-12 < float(result.residual_norm[0]) < 10.0
        assert bool(torch.isfinite(result.x).all())

    @pytest.mark.slow
    @given(
        st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6),
        st.lists(st.floats(-10.0, -0.1), min_size=1, max_size=3),
        st.integers(0, 10**6),
    )
    def test_an_indefinite_matrix_never_returns_silently(self, positive, negative, seed):
        """With a part along every eigenvector, CG meets the negative one before it can converge."""
        eigenvalues = torch.tensor(positive + negative, dtype=torch.float64)
        matrix = with_spectrum(eigenvalues, seed)
        rhs = torch.linalg.eigh(matrix)[1].sum(1)[None]
        result = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-10, max_iterations=200)
        assert result.status.tolist() == [NEGATIVE_CURVATURE]

    def test_a_nan_in_one_right_hand_side(self, device):
        rhs = normal(3, 6, seed=9).to(device)
        rhs[1, 2] = float("nan")
        result = block_cg(lambda v: 2 * v, rhs)
        assert result.status.tolist() == [CONVERGED, NON_FINITE, CONVERGED]
        assert result.x[1].tolist() == [0.0] * 6
        assert bool(result.residual_norm[1].isnan())
        assert_identical(result.x[[0, 2]], rhs[[0, 2]] / 2, "the others")

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_a_product_that_breaks_down(self, bad):
        matrix, rhs = with_spectrum(torch.linspace(1, 9, 8), seed=10), normal(1, 8, seed=11)
        calls = []

        def product(v: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return v @ matrix if len(calls) != 3 else torch.full_like(v, bad)

        result = block_cg(product, rhs, tolerance=1e-12)
        assert result.status.tolist() == [NON_FINITE]
        assert result.iterations.tolist() == [2]
        assert bool(torch.isfinite(result.x).all()), "the last iterate before the fault"

    def test_a_zero_right_hand_side_is_solved_by_zero(self, device):
        rhs = torch.zeros(2, 5, device=device)
        rhs[1] = 1.0
        result = block_cg(lambda v: 3 * v, rhs)
        assert result.status.tolist() == [CONVERGED, CONVERGED]
        assert result.iterations.tolist() == [0, 1]
        assert result.x[0].tolist() == [0.0] * 5
        assert result.residual_norm.tolist()[0] == 0.0

    @pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
    def test_nothing_to_solve(self, shape, dtype, device):
        result = block_cg(lambda v: v, torch.zeros(shape, dtype=dtype, device=device))
        assert result.x.shape == shape
        assert result.status.tolist() == [CONVERGED] * shape[0]


@pytest.mark.parametrize("exponent", [-1000, -100, 600, 1000])
def test_scaling_the_right_hand_side_scales_the_solution(exponent, device):
    """A confident node's gradient can be tiny: its squared norm must not underflow into "solved by zero"."""
    power = 2.0**exponent
    matrix, rhs = with_spectrum(torch.logspace(0, 2, 12), seed=12), normal(2, 12, seed=13).to(device)
    plain = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-8)
    scaled = block_cg(product_with(matrix, rhs), power * rhs, tolerance=1e-8)
    assert_identical(scaled.x, power * plain.x, "x")
    assert_identical(scaled.status, plain.status, "status")
    assert_identical(scaled.iterations, plain.iterations, "iterations")


class TestPreconditioner:
    def badly_scaled(self, device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scale = torch.diag(torch.logspace(0, 3, 50).double())
        matrix = scale @ with_spectrum(torch.linspace(1, 3, 50), seed=16) @ scale
        return matrix, normal(3, 50, seed=17).to(device), (1 / matrix.diagonal()).to(device)

    def test_it_cuts_iterations_and_not_accuracy(self, device):
        matrix, rhs, inverse_diagonal = self.badly_scaled(device)
        plain = block_cg(product_with(matrix, rhs), rhs, tolerance=1e-6, max_iterations=5000)
        better = block_cg(
            product_with(matrix, rhs),
            rhs,
            tolerance=1e-6,
            max_iterations=5000,
            precondition=lambda r: r * inverse_diagonal,
        )
        solution_matches(plain, matrix, rhs, 1e-6)
        solution_matches(better, matrix, rhs, 1e-6)
        assert int(better.iterations.max()) * 4 < int(plain.iterations.min())


@pytest.mark.parametrize("curvature", ["exact", "ggn"])
@pytest.mark.parametrize("name", NETWORKS)
def test_inverse_of_the_networks_matrix(name, curvature, device):
    """Against the explicit matrix, damped just enough to be definite, so that a wrong Hessian shows."""
    tape = network(name, torch.float64, device).tape
    exact, identity = exact_network(tape), torch.eye(tape.n_parameters, dtype=torch.float64)
    damping = 0.02 + max(0.0, -float(torch.linalg.eigvalsh(exact.matrix(curvature))[0]))
    matrix, magnitude = (
        part + damping * identity for part in (exact.matrix(curvature), exact.absolute_matrix(curvature))
    )
    rhs = node_gradients(tape).dense()
    result = solve_inverse_hvp(tape, rhs, damping=damping, curvature=curvature, tolerance=1e-9, max_iterations=3000)
    solution_matches(result, matrix, rhs, 1e-9, magnitude, exact.terms)


def test_a_tape_with_an_indefinite_hessian_reports_it(device):
    tape = network("three layers, four classes", torch.float64, device).tape
    values, vectors = torch.linalg.eigh(exact_network(tape).hessian)
    assert values[0] < -1e-3
    rhs = torch.stack([vectors[:, 0], vectors.sum(1), vectors[:, -1]]).to(device)
    result = solve_inverse_hvp(tape, rhs, damping=0.0, tolerance=1e-10)
    assert result.status.tolist()[:2] == [NEGATIVE_CURVATURE, NEGATIVE_CURVATURE]
    assert result.iterations[0] == 0
    safe = solve_inverse_hvp(tape, rhs, damping=0.01, curvature="ggn", tolerance=1e-8, max_iterations=3000)
    assert safe.status.tolist() == [CONVERGED] * 3


TAPE_RHS = torch.ones(2, 47, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rhs": TAPE_RHS[:, :46]}, ValueError, r"rhs must have shape \[any, 47\], got \[2, 46\]"),
        ({"curvature": "hessian"}, ValueError, "curvature must be one of exact, ggn, got 'hessian'"),
        ({"tolerance": 1.0}, ValueError, r"tolerance must be in \(0.0, 1.0\), got 1.0"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1, got 0"),
        ({"check_every": -1}, ValueError, "check_every must be at least 0, got -1"),
    ],
)
def test_solve_inverse_hvp_refuses(change, error, message):
    with pytest.raises(error, match=f"solve_inverse_hvp: {message}"):
        solve_inverse_hvp(network("two layers").tape, **({"rhs": TAPE_RHS, "damping": 0.1} | change))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rhs": torch.ones(3)}, ValueError, r"rhs must have shape \[any, any\], got \[3\]"),
        ({"max_iterations": 2.5}, TypeError, "max_iterations must be a whole number, got 2.5"),
        ({"product": lambda v: None}, TypeError, "product must return a tensor, got NoneType"),
        ({"precondition": lambda v: v.tolist()}, TypeError, "precondition must return a tensor, got list"),
        ({"product": lambda v: v[:, :2]}, ValueError, r"product must return shape \[1, 3\] on cpu, got \[1, 2\]"),
        ({"product": lambda v: v.double()}, TypeError, "product must return Float, got Double"),
    ],
)
def test_block_cg_refuses(change, error, message):
    """A function that returns another shape would make the kernels read past its end."""
    with pytest.raises(error, match=f"block_cg: {message}"):
        block_cg(**({"product": lambda v: v, "rhs": torch.ones(1, 3)} | change))


def test_an_error_in_a_callback_reaches_the_caller():
    def fail(v: torch.Tensor) -> torch.Tensor:
        raise KeyError("from the callback")

    with pytest.raises(KeyError, match="from the callback"):
        block_cg(fail, torch.ones(1, 3))
    with pytest.raises(KeyError, match="from the callback"):
        block_cg(lambda v: v, torch.ones(1, 3), precondition=fail)
