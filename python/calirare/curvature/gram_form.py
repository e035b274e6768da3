"""K = J J^T of a graph convolutional network's logits in Gram form: nothing of the size of the parameters is made."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from calirare.curvature.linearisation import logit_differences
from calirare_ext import (
    Csr,
    GcnTape,
    Inputs,
    ReceptiveField,
    as_dense,
    gcn_forward,
    in_panels,
    masked_gram,
    propagate,
    rows_of_inputs,
    times,
)

BLOCK_NUMBERS = 1_000_000  # numbers held per block of rows: measured best, 1.3 times faster than eight times as many
KEPT_BYTES = 128_000_000  # of products kept for later, with what making them takes


def gram(tape: GcnTape, field: ReceptiveField, products: Tensor | None = None, first: Tensor | None = None) -> Tensor:
    """Returns the kernel between the logit differences at some nodes and those at the labelled nodes.

    K[(v, c), (i, c')] = <d (z_c - z_0)(v) / d theta, d (z_c' - z_0)(i) / d theta>. For two layers, z = A relu(S W_1 +
    b_1) W_2 + b_2 with S = A X, let H be the hidden layer, m_uh = 1[unit h is on at u] and d_c = W_2[:, c] - W_2[:, 0].
    Then d (z_c - z_0)(v) / d (W_1, b_1)[:, h] = d_ch sum_u A_vu m_uh (S_u, 1), so the first layer's share is

        sum over u, u' of A_vu A_iu' (S S^T + 1)_uu' sum_h d_ch d_c'h m_uh m_u'h

    where the sum over h is the product of two thin matrices, and all is made for a block of rows u at a time: A (G * M)
    A_T^T, G = S S^T + 1 and M = m diag(d_c d_c') m^T. The second layer's derivatives are (A H)_v and 1 at class c and
    minus them at class 0, so its share is (1 + [c = c']) (<(A H)_v, (A H)_i> + 1).

    Of more than two classes the first layer's share is taken a hidden unit at a time, sum_h d_ch d_c'h Phi_h with
    Phi_h = (A m_h) G (m_h A_T^T), the columns of A where the unit is on: no class or pair of classes costs a pass.

    Args:
        tape: the network at the labelled nodes; one or two layers.
        field: receptive field of the nodes v.
        products: S_R S^T + 1 from `inputs_gram`, where it is known; None: computed. For two layers.
        first: the first layer's output at the rows of `field` [r, h], where it is known; None: computed.

    Returns:
        [n_v, k - 1, m, k - 1], dtype and device of the tape.

    Raises:
        ValueError: the network has more than two layers.
    """
    n_layers, k = len(tape.layers), tape.n_classes - 1
    if n_layers > 2:
        raise ValueError(f"gram: the Gram form needs one or two layers, got {n_layers}")
    shared = torch.ones(k, k, dtype=tape.logits.dtype, device=tape.logits.device).fill_diagonal_(2.0)
    if n_layers == 1:
        return _outer(_dense_gram(field.features, tape.field.features) + 1, shared)
    if field is tape.field:
        active, aggregated = tape.masks[0], tape.aggregated[0]
    else:
        if first is None:
            first = gcn_forward(ReceptiveField(field.rows[:1], field.features, ()), tape.layers[:1])
        hidden = torch.relu(first.detach())
        active, aggregated = torch.sign(hidden), propagate(field.blocks[0], hidden)
    top = aggregated @ tape.aggregated[0].T + 1
    out = _outer(top, shared)
    difference = logit_differences(tape.layers[1][0])  # of the last layer's weights, [h, k - 1]
    if k == 1:
        out[:, 0, :, 0] += _first_layer_share(tape, field, active, difference[:, 0].square(), products)
    else:
        _add_units(out, tape, field, active, difference)
    return out


def _add_units(out: Tensor, tape: GcnTape, field: ReceptiveField, active: Tensor, difference: Tensor) -> None:
    """Adds sum_h d_ch d_c'h Phi_h to K [n_v, k - 1, m, k - 1], some hidden units at a time."""
    n, k, m, _ = out.shape
    h = active.shape[1]
    below = (active.shape[0] * m + 2 * n * m) * out.element_size()
    together = max(1, min(h, KEPT_BYTES // max(below, 1)))
    for units in torch.arange(h).split(together):
        phi = _units_share(tape, field, active, units).view(units.numel(), n * m)
        for a in range(k):
            for b in range(a, k):
                scale = difference[units, a] * difference[units, b]
                share = (scale @ phi).view(n, m)
                out[:, a, :, b] += share
                if a != b:
                    out[:, b, :, a] += share


def _units_share(tape: GcnTape, field: ReceptiveField, active: Tensor, units: Tensor) -> Tensor:
    """Returns Phi_h for some hidden units [s, n_v, m], a block of rows of G at a time."""
    mask, labelled = tape.masks[0], tape.field.blocks[0]
    sides = [where_on(labelled, mask[:, unit]) for unit in units]
    n_rows = active.shape[0]
    below = mask.new_empty(units.numel(), n_rows, tape.n_nodes)
    for rows, g in _blocks_of_products(tape, field, keep=True):
        for place, side in enumerate(sides):
            below[place, rows] = propagate(side, g).T
    pairs = zip(units, below, strict=True)
    return torch.stack([propagate(where_on(field.blocks[0], active[:, unit]), part) for unit, part in pairs])


def where_on(block: Csr, on: Tensor) -> Csr:
    """Returns A diag(on), entries of units that are off left out."""
    kept = on[block.indices.long()] > 0
    before = torch.zeros(block.nnz + 1, dtype=torch.int64, device=on.device)
    torch.cumsum(kept, 0, out=before[1:])
    return Csr(before[block.indptr], block.indices[kept], block.values[kept], block.n_cols)


def _blocks_of_products(tape: GcnTape, field: ReceptiveField, keep: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields some rows of the field and G = S_R S^T + 1 there, [r_R, s]; `keep`: that of the tape's own field."""
    seen, n_rows = tape.field.features, field.rows[0].numel()
    every = torch.arange(n_rows, device=seen.device)
    small = keep and seen.shape[0] * n_rows * tape.logits.element_size() <= KEPT_BYTES
    if field is tape.field and small:
        if "products" not in field._cache:
            field._cache["products"] = _dense_gram(seen, seen).add_(1)
        yield every, field._cache["products"]
        return
    step = max(16, BLOCK_NUMBERS // max(seen.shape[0], 1))
    for rows in every.split(step):
        yield rows, _dense_gram(seen, rows_of_inputs(field.features, rows)).add_(1)


def _outer(nodes: Tensor, classes: Tensor) -> Tensor:
    """Returns [n, m] and [k, k] multiplied to [n, k, m, k]."""
    return nodes[:, None, :, None] * classes[:, None, :]


def _first_layer_share(
    tape: GcnTape, field: ReceptiveField, active: Tensor, scale: Tensor, products: Tensor | None
) -> Tensor:
    """Returns A (G * M) A_T^T [n_v, m], G = S S_R^T + 1 and M = (m diag(scale)) m_R^T, a block of rows at a time."""
    mask = tape.masks[0]
    n_rows = active.shape[0]
    scaled = active * scale
    if products is not None:
        return propagate(field.blocks[0], masked_gram(tape.field.blocks[0], products, mask, scaled))
    below = torch.empty(n_rows, tape.n_nodes, dtype=mask.dtype, device=mask.device)
    for rows, g in _blocks_of_products(tape, field):
        g.mul_(mask @ scaled[rows].T)
        below[rows] = propagate(tape.field.blocks[0], g).T
    return propagate(field.blocks[0], below)


def inputs_gram(seen: Inputs, inputs: Inputs) -> Tensor | None:
    """Returns S_R S^T + 1 `in_panels`, which no parameter changes, for `gram` again and again; None where it is large.

    Args:
        seen: S_R, the inputs of the tape's field, [r_R, d].
        inputs: S, those of the nodes v, [r, d].
    """
    numbers = (seen.shape[0] + inputs.shape[1]) * inputs.shape[0]
    return None if numbers * seen.dtype.itemsize > KEPT_BYTES else in_panels(_dense_gram(seen, inputs).add_(1))


def _dense_gram(a: Inputs, b: Inputs) -> Tensor:
    """Returns a b^T as a dense matrix."""
    if isinstance(a, Tensor):
        return a @ b.T if isinstance(b, Tensor) else times(b, a.T.contiguous()).T
    return times(a, as_dense(b).T.contiguous())
