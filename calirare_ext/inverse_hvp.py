"""Operator 3, solve_inverse_hvp: (H + damping I) X = G by block conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_range, check_shape, check_whole
from calirare_ext.tape import GcnTape

CURVATURES = ("exact", "ggn")


class SolverStatus(IntEnum):
    """How a right-hand side ended."""

    CONVERGED = 1
    MAX_ITERATIONS = 2
    NEGATIVE_CURVATURE = 3
    NON_FINITE = 4


class SolverResult(NamedTuple):
    """Solutions and what became of each right-hand side.

    Attributes:
        x: [b, p]. Where the status is not CONVERGED, the last iterate before the fault.
        status: int32 [b], values of SolverStatus.
        iterations: int32 [b].
        residual_norm: float64 [b], |g - A x| / |g|, recomputed with one more product; 0 where g = 0.
    """

    x: Tensor
    status: Tensor
    iterations: Tensor
    residual_norm: Tensor

    def summary(self) -> str:
        """Returns one line: how many right-hand sides ended how, and the largest residual."""
        counts = [f"{int((self.status == code).sum())} {code.name}" for code in SolverStatus]
        seen = [text for text in counts if not text.startswith("0 ")]
        worst = float(self.residual_norm.max()) if self.residual_norm.numel() else 0.0
        return f"{', '.join(seen) or 'no right-hand side'}; largest relative residual {worst:.3g}"


def hessian_product(tape: GcnTape, vectors: Tensor, *, curvature: str = "exact", damping: float = 0.0) -> Tensor:
    """Returns (H + damping I) v for each row v, H the Hessian of sum_i w_i l_i / m (paper, below Eq. 7).

    Args:
        tape: the network at its parameters.
        vectors: [b, p], dtype and device of the tape; parameters in the order W_1, b_1, .., W_L, b_L, row-major.
        curvature: "exact", or "ggn" for the generalised Gauss-Newton part, which is never indefinite.
        damping: added to the diagonal, such as the weight decay; any real number.

    Returns:
        [b, p]; no derivative is tracked.

    Raises:
        TypeError: another dtype.
        ValueError: another shape, device or curvature.
    """
    _check(tape, vectors, "hessian_product", "vectors", curvature)
    return _C.hessian_product(tape.compiled(), vectors.contiguous(), curvature, damping)


def move_logits(tape: GcnTape, vectors: Tensor) -> Tensor:
    """Returns J v for each row v: how the field's logits move, to first order, when the parameters move by v.

    Args:
        tape: the network at its parameters.
        vectors: [b, p].

    Returns:
        [m, b, k]; no derivative is tracked.

    Raises:
        TypeError: another dtype.
        ValueError: another shape or device.
    """
    _check(tape, vectors, "move_logits", "vectors", "ggn")
    return _C.move_logits(tape.compiled(), vectors.contiguous()).view(tape.n_nodes, vectors.shape[0], tape.n_classes)


def solve_inverse_hvp(
    tape: GcnTape,
    rhs: Tensor,
    *,
    damping: float,
    curvature: str = "exact",
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    precondition: Callable[[Tensor], Tensor] | None = None,
    check_every: int | None = None,
) -> SolverResult:
    """Returns (H + damping I)^-1 g for each row g (paper, Eq. 7: H^-1 grad L(i)).

    Every right-hand side stops on its own. The exact Hessian of a ReLU network is often indefinite: a direction of
    negative curvature ends its right-hand side with NEGATIVE_CURVATURE and is never stepped over.

    Args:
        tape: the network at its parameters.
        rhs: G [b, p], dtype and device of the tape.
        damping: added to the diagonal; the weight decay belongs here.
        curvature: "exact" or "ggn".
        tolerance: on the relative residual |g - A x| / |g|, in (0, 1).
        max_iterations: per right-hand side, >= 1.
        precondition: maps residuals [b, p] to M^-1 r, M symmetric positive definite; None: the identity.
        check_every: iterations between looks at the statuses; 0: never, so that a GPU is not waited for; None: 1 on
            the CPU, 8 on a GPU.

    Returns:
        Solutions and statuses.

    Raises:
        TypeError: another dtype.
        ValueError: another shape, device, curvature or range.

    Precision: vectors in the dtype of the tape, dot products in float64.
    Cost: per iteration one product with H for all right-hand sides at once, about 4 m_1 nnz(S) h b / m multiply-adds.
    """
    op = "solve_inverse_hvp"
    _check(tape, rhs, op, "rhs", curvature)
    every = _check_solver(op, rhs, tolerance, max_iterations, check_every)
    prepared = None if precondition is None else _checked("precondition", precondition)
    return SolverResult(
        *_C.solve_inverse_hvp(
            tape.compiled(), rhs.contiguous(), curvature, damping, tolerance, max_iterations, every, prepared
        )
    )


def block_cg(
    product: Callable[[Tensor], Tensor],
    rhs: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    precondition: Callable[[Tensor], Tensor] | None = None,
    check_every: int | None = None,
) -> SolverResult:
    """Returns A^-1 g for each row g, for any symmetric A given by its product.

    Args:
        product: maps [b, p] to [b, p], row v to A v.
        rhs: G, float32 or float64 [b, p].
        tolerance: as in `solve_inverse_hvp`.
        max_iterations: as in `solve_inverse_hvp`.
        precondition: as in `solve_inverse_hvp`.
        check_every: as in `solve_inverse_hvp`.

    Returns:
        Solutions and statuses.

    Raises:
        TypeError: dtype is not float32 or float64, or a function returns another one.
        ValueError: shape or range is wrong, or a function returns another shape.
    """
    check_float("block_cg", "rhs", rhs)
    check_shape("block_cg", "rhs", rhs, (None, None))
    every = _check_solver("block_cg", rhs, tolerance, max_iterations, check_every)
    prepared = None if precondition is None else _checked("precondition", precondition)
    return SolverResult(
        *_C.block_cg(_checked("product", product), rhs.contiguous(), tolerance, max_iterations, every, prepared)
    )


def _checked(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns the function with a check that it returns a tensor; the compiled solver checks which."""

    def checked(v: Tensor) -> Tensor:
        out = function(v)
        if not isinstance(out, Tensor):
            raise TypeError(f"block_cg: {name} must return a tensor, got {type(out).__name__}")
        return out

    return checked


def _check(tape: GcnTape, vectors: Tensor, op: str, name: str, curvature: str) -> None:
    check_like(op, name, vectors, tape.logits, "the tape")
    check_shape(op, name, vectors, (None, tape.n_parameters))
    if curvature not in CURVATURES:
        raise ValueError(f"{op}: curvature must be one of {', '.join(CURVATURES)}, got {curvature!r}")


def _check_solver(op: str, rhs: Tensor, tolerance: float, max_iterations: int, check_every: int | None) -> int:
    check_range(op, "tolerance", tolerance, 0.0, 1.0, closed=False)
    check_whole(op, "max_iterations", max_iterations)
    if max_iterations < 1:
        raise ValueError(f"{op}: max_iterations must be at least 1, got {max_iterations}")
    if check_every is None:
        return 8 if rhs.is_cuda else 1
    check_whole(op, "check_every", check_every)
    if check_every < 0:
        raise ValueError(f"{op}: check_every must be at least 0, got {check_every}")
    return check_every
