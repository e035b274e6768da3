"""The loss of graph convolutional networks side by side with its gradient, and what else a step of training takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_range, check_shape
from calirare_ext.csr import Csr
from calirare_ext.inputs import Factored, Inputs
from calirare_ext.layouts import factor
from calirare_ext.receptive_field import ReceptiveField

Widths = Sequence[tuple[int, int]]  # of each layer, in and out


@dataclass(frozen=True, eq=False)
class NetworkField:
    """What b networks side by side read: a receptive field whose matrices lie as the products' widths want.

    Attributes:
        n_networks: b.
        n_nodes: the field's nodes, m.
        n_parameters: of a network, p.
        compiled: the compiled face.
    """

    n_networks: int
    n_nodes: int
    n_parameters: int
    compiled: _C.NetworkField


def network_field(field: ReceptiveField, widths: Widths, n_networks: int, products: int = 0) -> NetworkField:
    """Returns a receptive field as networks side by side read it.

    Args:
        field: of the nodes whose logits are wanted.
        widths: of each layer, in and out.
        n_networks: b >= 1.
        products: how often each matrix will multiply, about: for many its layout is chosen now.

    Returns:
        The field; what `field` holds must not change.

    Raises:
        ValueError: the number of layers does not fit.
    """
    if len(widths) != field.n_layers:
        raise ValueError(f"network_field: widths must be of {field.n_layers} layers as in the field, got {len(widths)}")
    out = _C.NetworkField()
    first = n_networks * widths[0][1]
    out.inputs, out.inputs_t = _factors(field.features, first, products), _turned(field.features, first, products)
    after = [n_networks * h for _, h in widths[1:]]
    out.blocks = [factor(a, width, products) for a, width in zip(field.blocks, after, strict=True)]
    out.blocks_t = [factor(a.transpose(), width, products) for a, width in zip(field.blocks, after, strict=True)]
    out.widths = [(int(d), int(h)) for d, h in widths]
    return NetworkField(n_networks, field.nodes.numel(), sum((d + 1) * h for d, h in widths), out)


def _factors(inputs: Inputs, width: int, products: int) -> list[_C.Factor]:
    """Returns what W is multiplied by, first to last."""
    if isinstance(inputs, Factored):
        return [*_factors(inputs.x, width, products), factor(inputs.a, width, products)]
    return [factor(inputs, width, products) if isinstance(inputs, Csr) else _C.Factor(inputs)]


def _turned(inputs: Inputs, width: int, products: int) -> list[_C.Factor]:
    """Returns what a gradient is multiplied by, first to last."""
    if isinstance(inputs, Factored):
        return [factor(inputs.a.transpose(), width, products), *_turned(inputs.x, width, products)]
    return [factor(inputs.transpose(), width, products) if isinstance(inputs, Csr) else _C.Factor(inputs.T)]


def network_logits(field: NetworkField, parameters: Tensor) -> Tensor:
    """Returns the logits [m, b, k] of networks with parameters [b, p], W_1, b_1, .., W_L, b_L; without a derivative."""
    check_shape("network_logits", "parameters", parameters, (field.n_networks, field.n_parameters))
    contiguous = parameters.detach().contiguous()
    k = field.compiled.widths[-1][1]
    products = _C.network_products(field.compiled, contiguous)
    return products.view(field.n_nodes, field.n_networks, k).add_(contiguous[:, -k:])


def network_loss(
    field: NetworkField,
    parameters: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    factors: Sequence[Tensor] = (),
    scale: float = 1.0,
    composed: bool = False,
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the loss sum_i w_i l_i of each network, l_i the cross-entropy of node i, and its gradient.

    Between sparse products the CPU takes one pass over memory; elsewhere torch's operators do the same.

    Args:
        field: see `network_field`.
        parameters: of b networks, W_1, b_1, .., W_L, b_L, row-major, float32 or float64 [b, p].
        targets: classes of the field's nodes, int64 [m].
        weights: w of each network, [b, m]; where it is 0 a node plays no part.
        factors: what the units of each hidden layer are multiplied with, all networks alike, [r_l, h_l] (dropout).
        scale: the factor of units that are kept.
        composed: by torch's operators on the CPU too.
        into: where the gradient is written, contiguous, [b, p]; None: in new memory.

    Returns:
        Losses, float64 [b], and gradients [b, p] in the dtype of the parameters; no derivative is tracked.

    Raises:
        TypeError: a dtype differs.
        ValueError: a shape or device does not fit, or a target is out of range.

    Precision: sums over nodes in float64, over stretches of them in the dtype, in an order fixed by shapes: threads do
        not change a bit.
    """
    parameters = parameters.contiguous()  # shapes and dtypes are checked where they are read, once a step
    gradient = torch.empty_like(parameters) if into is None else into
    given = (targets, weights.contiguous(), [f.contiguous() for f in factors], scale, composed)
    return _C.network_loss(field.compiled, parameters, *given, gradient), gradient


def dropout_factors(rows: int, units: int, probability: float, key: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns 0 with a probability, else 1 / (1 - probability), for each unit of each row, on the CPU.

    By counting: what a unit draws hangs on the key, its row and its number alone, not on shapes or threads.

    Args:
        rows: r.
        units: h.
        probability: of 0, in [0, 1).
        key: of the draw, an integer in [0, 2^64).
        dtype: of the result.

    Returns:
        [r, h].

    Raises:
        ValueError: the probability or the key is out of range.
    """
    check_range("dropout_factors", "probability", probability, 0.0, 1 - 2.0**-32)
    check_range("dropout_factors", "key", key, 0, 2**64 - 1)
    out = torch.empty(rows, units, dtype=dtype)
    _C.dropout_factors(out, probability, key)
    return out


def adam_step_(
    theta: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *rates: *tuple[float, float, float, float, float, float],
) -> None:
    """Takes a step of Adam (Kingma & Ba 2015, algorithm 1) on the CPU in one pass over memory, all in place.

    Args:
        theta: parameters of any shape, contiguous.
        gradient: like `theta`.
        first: first moment, like `theta`.
        second: second moment, like `theta`.
        rates: mu (mu theta is added to the gradient), beta1, beta2, alpha / (1 - beta1^t), sqrt(1 - beta2^t), and
            epsilon, added to the root of the second moment over the last but one.

    Raises:
        TypeError: a dtype differs.
        ValueError: a shape or device does not fit.
    """
    _C.adam_step(theta, gradient, first, second, *rates)
