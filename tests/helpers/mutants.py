"""Known wrong versions of the operators that have a table here; the tests reject each of them.

test_mutants.py, test_influence.py and test_masked_gram.py hold them against the comparison helpers. Other operators
have their faults elsewhere: eice_term in tests/calirare/test_eice.py; loo_messages, message_interval,
confidence_bins and the layouts of propagate in tests/ext/test_self_check.py; bugs in copies of the CUDA sources in
kernel_mutants.py. row_sums and move_logits have none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from calirare_ext import (
    Csr,
    GcnTape,
    JackknifeInterval,
    SolverResult,
    block_cg,
    hessian_product,
    in_panels,
    jackknife_interval,
    masked_gram,
    node_gradients,
    record,
    reference,
)


def _without(x: Tensor, place: tuple) -> Tensor:
    """Returns x with zeros at the place."""
    out = x.clone()
    out[place] = 0.0
    return out


def _first_entries(a: Csr) -> Csr:
    """Returns a without the last entry of each row that has one."""
    rows = a.rows()
    last = torch.ones_like(rows, dtype=torch.bool)
    last[:-1] = rows[1:] != rows[:-1]
    return Csr.from_coo(rows[~last], a.indices[~last], a.values[~last], a.shape)


PROPAGATE: dict[str, Callable[[Csr, Tensor], Tensor]] = {
    "all zeros": lambda a, x: torch.zeros(a.n_rows, x.shape[1], dtype=x.dtype),
    "adjacency transposed": lambda a, x: reference.propagate(a.transpose(), x),
    "row lost": lambda a, x: _without(reference.propagate(a, x), (-1,)),
    "last column lost": lambda a, x: _without(reference.propagate(a, x), (slice(None), -1)),
    "last entry of each row lost": lambda a, x: reference.propagate(_first_entries(a), x),
    "weights ignored": lambda a, x: reference.propagate(Csr(a.indptr, a.indices, a.values.sign(), a.n_cols), x),
    "rows shifted": lambda a, x: reference.propagate(a, x).roll(1, 0),
    "columns shifted": lambda a, x: reference.propagate(a, x).roll(1, 1),
    "rounded to half the digits": lambda a, x: (
        reference.propagate(a, x).to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32).to(x.dtype)
    ),
}


NEIGHBOUR_MEANS: dict[str, Callable[[Csr, Tensor], Tensor]] = {
    "sums in the numbers that are stored": lambda a, x: (
        reference.propagate(a, x) / reference.propagate(a, torch.ones_like(x[:, :1]))
    ).nan_to_num(),
    "sums, not means": lambda a, x: reference.propagate(a, x),
    "divided by the number of neighbours": lambda a, x: (
        reference.propagate(a, x) / a.indptr.diff().clamp(min=1)[:, None]
    ),
    "NaN of a row without neighbours": lambda a, x: (
        reference.propagate(a.to(torch.float64), x.double()) / a.to_dense().double().sum(1, keepdim=True)
    ).to(x.dtype),
    "weights ignored": lambda a, x: reference.neighbour_means(
        Csr(a.indptr, a.indices, a.values.sign(), a.n_cols), x
    ).to(x.dtype),
    "row lost": lambda a, x: _without(reference.neighbour_means(a, x), (-1,)).to(x.dtype),
    "last column lost": lambda a, x: _without(reference.neighbour_means(a, x), (slice(None), -1)).to(x.dtype),
    "last entry of each row lost": lambda a, x: reference.neighbour_means(_first_entries(a), x).to(x.dtype),
    "divided by the sums of the columns": lambda a, x: (
        (reference.propagate(a, x).double() / reference.propagate(a.transpose(), torch.ones_like(x[:, :1])))
        .to(x.dtype)
        .nan_to_num()
    ),
}


def _normalised(dense: Tensor, *, left: float, right: float) -> Csr:
    degree = dense.sum(1)
    degree[degree == 0] = 1.0
    return Csr.from_dense(degree[:, None] ** left * dense * degree[None, :] ** right)


def _with_loops(a: Csr) -> Tensor:
    dense = a.to_dense()
    return dense + torch.diag((dense.diagonal() == 0).to(dense.dtype))


GCN_NORM: dict[str, Callable[[Csr], Csr]] = {
    "without self loops": lambda a: _normalised(a.to_dense(), left=-0.5, right=-0.5),
    "self loops added twice": lambda a: _normalised(
        a.to_dense() + torch.eye(a.n_rows, dtype=a.dtype), left=-0.5, right=-0.5
    ),
    "normalised by rows": lambda a: _normalised(_with_loops(a), left=-1.0, right=0.0),
    "degrees of the columns": lambda a: _normalised(_with_loops(a).T, left=-0.5, right=-0.5).transpose(),
    "not normalised": lambda a: Csr.from_dense(_with_loops(a)),
}


def _unmasked(tape: GcnTape) -> GcnTape:
    """The tape of a network whose ReLU lets everything pass backwards."""
    return dataclasses.replace(tape, masks=tuple(torch.ones_like(mask) for mask in tape.masks))


def _transposed(tape: GcnTape) -> GcnTape:
    """The tape with each adjacency turned; the field must be square."""
    field = dataclasses.replace(tape.field, blocks=tuple(block.transpose() for block in tape.field.blocks))
    return dataclasses.replace(tape, field=field)


def _unweighted(tape: GcnTape) -> GcnTape:
    return record(tape.field, tape.layers, tape.targets)


def _bias_columns(tape: GcnTape) -> Tensor:
    """Returns which of the p parameters are biases."""
    return torch.cat([torch.cat([torch.zeros(w.numel()), torch.ones(b.numel())]) for w, b in tape.layers]).bool()


NODE_GRADIENTS: dict[str, Callable[[GcnTape], Tensor]] = {
    "all zeros": lambda tape: torch.zeros_like(node_gradients(tape).dense()),
    "mask dropped": lambda tape: node_gradients(_unmasked(tape)).dense(),
    "bias gradient lost": lambda tape: _without(node_gradients(tape).dense(), (slice(None), _bias_columns(tape))),
    "row lost": lambda tape: _without(node_gradients(tape).dense(), (-1,)),
    "divided by m": lambda tape: node_gradients(tape).dense() / tape.n_nodes,
    "sample weights dropped": lambda tape: node_gradients(_unweighted(tape)).dense(),
    "adjacency transposed": lambda tape: node_gradients(_transposed(tape)).dense(),
    "sign flipped": lambda tape: -node_gradients(tape).dense(),
    "the mean instead of each node": lambda tape: node_gradients(tape).dense().mean(0).expand(tape.n_nodes, -1),
}

HESSIAN_PRODUCT: dict[str, Callable[[GcnTape, Tensor, float], Tensor]] = {
    "Gauss-Newton instead of exact": lambda tape, v, mu: hessian_product(tape, v, curvature="ggn", damping=mu),
    "damping forgotten": lambda tape, v, mu: hessian_product(tape, v),
    "damping doubled": lambda tape, v, mu: hessian_product(tape, v, damping=2 * mu),
    "1/m dropped": lambda tape, v, mu: hessian_product(tape, v) * tape.n_nodes + mu * v,
    "sample weights dropped": lambda tape, v, mu: hessian_product(_unweighted(tape), v, damping=mu),
    "mask dropped": lambda tape, v, mu: hessian_product(_unmasked(tape), v, damping=mu),
    "adjacency transposed": lambda tape, v, mu: hessian_product(_transposed(tape), v, damping=mu),
    "biases lost": lambda tape, v, mu: _without(
        hessian_product(tape, v, damping=mu), (slice(None), _bias_columns(tape))
    ),
    "row lost": lambda tape, v, mu: _without(hessian_product(tape, v, damping=mu), (-1,)),
}


def _inverse_hvp(tape: GcnTape, rows: Tensor, damping: float, curvature: str = "exact") -> Tensor:
    matrix = hessian_product(tape, torch.eye(tape.n_parameters, dtype=rows.dtype), curvature=curvature, damping=damping)
    return torch.linalg.solve(matrix, rows.T).T


# The change of the parameters per unit of each node's weight taken out: + (H + damping)^-1 g_i / m.
INFLUENCE: dict[str, Callable[[GcnTape, float], Tensor]] = {
    "sign flipped, as printed": lambda tape, mu: -_inverse_hvp(tape, node_gradients(tape).dense(), mu) / tape.n_nodes,
    "1/m dropped": lambda tape, mu: _inverse_hvp(tape, node_gradients(tape).dense(), mu),
    "damping forgotten": lambda tape, mu: _inverse_hvp(tape, node_gradients(tape).dense(), 1e-9) / tape.n_nodes,
    "Gauss-Newton instead of exact": lambda tape, mu: (
        _inverse_hvp(tape, node_gradients(tape).dense(), mu, "ggn") / tape.n_nodes
    ),
    "inverse forgotten": lambda tape, mu: node_gradients(tape).dense() / tape.n_nodes,
}


def _short(matrix: Tensor, rhs: Tensor) -> SolverResult:
    return block_cg(lambda v: v @ matrix, rhs, tolerance=1e-10, max_iterations=3)


def _claimed(result: SolverResult) -> SolverResult:
    """The result, all marked as converged with no residual left."""
    return result._replace(status=torch.ones_like(result.status), residual_norm=torch.zeros_like(result.residual_norm))


SOLVE: dict[str, Callable[[Tensor, Tensor], SolverResult]] = {
    "stopped early": _short,
    "stopped early, status claimed": lambda a, g: _claimed(_short(a, g)),
    "zeros returned": lambda a, g: _claimed(_short(a, g))._replace(x=torch.zeros_like(g)),
    "sign flipped": lambda a, g: _claimed(block_cg(lambda v: -v @ -a, -g, tolerance=1e-10)),
    "damping forgotten": lambda a, g: _claimed(block_cg(lambda v: v @ a - 0.01 * v, g, tolerance=1e-10)),
    "residual not recomputed": lambda a, g: _claimed(block_cg(lambda v: v @ a, g, tolerance=1e-3)),
    "right-hand sides swapped": lambda a, g: (r := block_cg(lambda v: v @ a, g, tolerance=1e-10))._replace(
        x=r.x.flip(0)
    ),
}


def _at_rank(samples: Tensor, position: float) -> tuple[Tensor, Tensor]:
    """Returns the interpolated value and the places around a position in the sorted row."""
    ordered, order = samples.double().sort(dim=1, stable=True)
    low = min(max(int(position), 0), samples.shape[1] - 1)
    high = min(low + 1, samples.shape[1] - 1)
    value = torch.lerp(ordered[:, low], ordered[:, high], position - int(position))
    return value.to(samples.dtype), order[:, [low, high]]


def _interval(scores: Tensor, residuals: Tensor, low: float, high: float, sign: float = 1.0) -> JackknifeInterval:
    """The interval by positions in the sorted rows instead of quantiles."""
    (lower, lower_places), (upper, upper_places) = (
        _at_rank(scores - sign * residuals, low),
        _at_rank(scores + sign * residuals, high),
    )
    return JackknifeInterval(lower, upper, lower_places, upper_places)


def _ranked_from_the_right(s: Tensor, r: Tensor, a: float, b: float) -> JackknifeInterval:
    turned, m = jackknife_interval(s.flip(1), r.flip(0), a, b), s.shape[1]
    return turned._replace(lower_places=m - 1 - turned.lower_places, upper_places=m - 1 - turned.upper_places)


def _off_by_one_rounding(s: Tensor, r: Tensor, a: float, b: float) -> JackknifeInterval:
    result = jackknife_interval(s, r, a, b)
    return result._replace(lower=torch.nextafter(result.lower, torch.full_like(result.lower, torch.inf)))


JACKKNIFE_INTERVAL: dict[str, Callable[[Tensor, Tensor, float, float], JackknifeInterval]] = {
    "rank off by one": lambda s, r, a, b: _interval(s, r, a * (s.shape[1] - 1) + 1, b * (s.shape[1] - 1)),
    "rank of m instead of m - 1": lambda s, r, a, b: _interval(s, r, a * s.shape[1], b * s.shape[1]),
    "not interpolated": lambda s, r, a, b: _interval(s, r, int(a * (s.shape[1] - 1)), int(b * (s.shape[1] - 1))),
    "residual sign": lambda s, r, a, b: _interval(s, r, a * (s.shape[1] - 1), b * (s.shape[1] - 1), sign=-1.0),
    "wrong quantile side": lambda s, r, a, b: jackknife_interval(s, r, b, a),
    "ends swapped": lambda s, r, a, b: (x := jackknife_interval(s, r, a, b))._replace(lower=x.upper, upper=x.lower),
    "residuals dropped": lambda s, r, a, b: jackknife_interval(s, torch.zeros_like(r), a, b),
    "row lost": lambda s, r, a, b: (x := jackknife_interval(s, r, a, b))._replace(upper=_without(x.upper, (-1,))),
    "one model lost": lambda s, r, a, b: jackknife_interval(s[:, :-1], r[:-1], a, b),
    "off by one rounding": _off_by_one_rounding,
    "equal samples ranked from the right": _ranked_from_the_right,
}


def _masked_gram(a: Csr, products: Tensor, mask: Tensor, scaled: Tensor) -> Tensor:
    return masked_gram(a, in_panels(products), mask, scaled)


MASKED_GRAM: dict[str, Callable[[Csr, Tensor, Tensor, Tensor], Tensor]] = {
    "mask ignored": lambda a, g, m, s: _masked_gram(a, g, torch.ones_like(m), s),
    "mask turned round": lambda a, g, m, s: _masked_gram(a, g, 1 - m, s),
    "last unit lost": lambda a, g, m, s: _masked_gram(a, g, m[:, :-1], s[:, :-1]),
    "products ignored": lambda a, g, m, s: _masked_gram(a, torch.ones_like(g), m, s),
    "products of the next row": lambda a, g, m, s: _masked_gram(a, g.roll(1, 0), m, s),
    "panels swapped": lambda a, g, m, s: masked_gram(a, in_panels(g).roll(1, 0), m, s),
    "products of the next column": lambda a, g, m, s: _masked_gram(a, g.roll(1, 1), m, s),
    "weights ignored": lambda a, g, m, s: _masked_gram(Csr(a.indptr, a.indices, a.values.sign(), a.n_cols), g, m, s),
    "last entry of each row lost": lambda a, g, m, s: _masked_gram(_first_entries(a), g, m, s),
    "last row lost": lambda a, g, m, s: _without(_masked_gram(a, g, m, s), (-1,)),
    "labels shifted": lambda a, g, m, s: _masked_gram(a, g, m, s).roll(1, 1),
    "rows shifted": lambda a, g, m, s: _masked_gram(a, g, m, s).roll(1, 0),
}
