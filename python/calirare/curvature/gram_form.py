"""K = J J^T of a graph convolutional network's logits in Gram form: nothing of the size of the parameters is made."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext import Csr, GcnTape, ReceptiveField, gcn_forward, in_panels, masked_gram, propagate

BLOCK_NUMBERS = 1_000_000  # numbers held per block of rows: measured best, 1.3 times faster than eight times as many
KEPT_BYTES = 128_000_000  # of products kept for later, with what making them takes


def contrasts(weight: Tensor) -> Tensor:
    """Returns the last layer's weights [h, k] against class 0: columns W_c - W_0, [h, k - 1].

    A softmax depends on the k - 1 differences z_c - z_0 alone, so every Jacobian is taken of these.
    """
    return weight[:, 1:] - weight[:, :1]


def gram(tape: GcnTape, field: ReceptiveField, products: Tensor | None = None, first: Tensor | None = None) -> Tensor:
    """Returns the kernel between the logit differences at some nodes and those at the labelled nodes.

    K[(v, c), (i, c')] = <d (z_c - z_0)(v) / d theta, d (z_c' - z_0)(i) / d theta>. For two layers, z = A relu(S W_1 +
    b_1) W_2 + b_2 with S = A X, let H be the hidden layer, m_uh = 1[unit h is on at u] and d_c = W_2[:, c] - W_2[:, 0].
    Then d (z_c - z_0)(v) / d (W_1, b_1)[:, h] = d_ch sum_u A_vu m_uh (S_u, 1), so the first layer's share is

        sum over u, u' of A_vu A_iu' (S S^T + 1)_uu' sum_h d_ch d_c'h m_uh m_u'h

    where the sum over h is the product of two thin matrices, and all is made for a block of rows u at a time: A (G * M)
    A_T^T, G = S S^T + 1 and M = m diag(d_c d_c') m^T. The second layer's derivatives are (A H)_v and 1 at class c and
    minus them at class 0, so its share is (1 + [c = c']) (<(A H)_v, (A H)_i> + 1).

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
        return _outer(_dense_gram(field.inputs, tape.field.inputs) + 1, shared)
    if field is tape.field:
        active, aggregated = tape.masks[0], tape.aggregated[0]
    else:
        known = gcn_forward(_first_layer(field), tape.layers[:1]) if first is None else first.detach()
        hidden = torch.relu(known)
        active, aggregated = torch.sign(hidden), propagate(field.blocks[0], hidden)
    top = aggregated @ tape.aggregated[0].T + 1
    out = _outer(top, shared)
    difference = contrasts(tape.layers[1][0])
    for a in range(k):
        for b in range(a, k):
            scale = difference[:, a] * difference[:, b]
            share = _first_layer_share(tape, field, active, scale, products)
            out[:, a, :, b] += share
            if a != b:
                out[:, b, :, a] += share
    return out


def _outer(nodes: Tensor, classes: Tensor) -> Tensor:
    """Returns [n, m] and [k, k] multiplied to [n, k, m, k]."""
    return nodes[:, None, :, None] * classes[:, None, :]


def _first_layer(field: ReceptiveField) -> ReceptiveField:
    """Returns the field of the first layer alone."""
    return ReceptiveField(field.rows[:1], field.inputs, ())


def _first_layer_share(
    tape: GcnTape, field: ReceptiveField, active: Tensor, scale: Tensor, products: Tensor | None
) -> Tensor:
    """Returns A (G * M) A_T^T [n_v, m], G = S S_R^T + 1 and M = (m diag(scale)) m_R^T, a block of rows at a time."""
    seen, mask = tape.field.inputs, tape.masks[0]
    n_rows = active.shape[0]
    scaled = active * scale
    if products is not None:
        return propagate(field.blocks[0], masked_gram(tape.field.blocks[0], products, mask, scaled))
    below = torch.empty(n_rows, tape.n_nodes, dtype=mask.dtype, device=mask.device)
    step = max(16, BLOCK_NUMBERS // max(mask.shape[0], 1))
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        g = _dense_gram(seen, _rows(field.inputs, rows)).add_(1)  # [r_R, block]
        g.mul_(mask @ scaled[rows].T)
        below[rows] = propagate(tape.field.blocks[0], g).T
    return propagate(field.blocks[0], below)


def inputs_gram(seen: Tensor | Csr, inputs: Tensor | Csr) -> Tensor | None:
    """Returns S_R S^T + 1 `in_panels`, which no parameter changes, for `gram` again and again; None where it is large.

    Args:
        seen: S_R, the inputs of the tape's field, [r_R, d].
        inputs: S, those of the nodes v, [r, d].
    """
    like = seen.values if isinstance(seen, Csr) else seen
    numbers = (seen.shape[0] + inputs.shape[1]) * inputs.shape[0]
    return None if numbers * like.element_size() > KEPT_BYTES else in_panels(_dense_gram(seen, inputs).add_(1))


def _rows(x: Tensor | Csr, rows: slice) -> Tensor | Csr:
    if isinstance(x, Csr):
        return x.select_rows(torch.arange(rows.start, rows.stop, device=x.device))
    return x[rows]


def _dense_gram(a: Tensor | Csr, b: Tensor | Csr) -> Tensor:
    """Returns a b^T as a dense matrix."""
    if isinstance(a, Csr):
        return propagate(a, (b.to_dense() if isinstance(b, Csr) else b).T.contiguous())
    return a @ b.T if isinstance(b, Tensor) else _dense_gram(b, a).T
