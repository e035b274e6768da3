"""Interval ends of many nodes from the messages of left-out models: no leave-one-out logit is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.torch_state import threads_for
from calirare.curvature import GcnLinearisation
from calirare.leave_one_out import LeftOut, pre_activation, readable
from calirare_ext import ReceptiveField, loo_messages, message_interval, propagate


def evaluate(
    left: LeftOut,
    linearised: GcnLinearisation,
    field: ReceptiveField,
    residuals: Tensor,
    levels: tuple[float, float],
    *,
    scale: float = 1.0,
    bias: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns logits [n, 2], lower and upper interval ends [n] of the nodes of a receptive field.

    Args:
        left: the models.
        linearised: the network.
        field: receptive field of the nodes.
        residuals: r_i, [m].
        levels: of the lower and the upper quantile.
        scale: of a map scale z + bias on every logit difference before f is taken.
        bias: of the map.

    Returns:
        The network's own logits before the map, lower ends, upper ends.
    """
    known = left.seen if left.seen is not None and left.seen.field is field else None
    z = pre_activation(linearised.layers, field.features) if known is None else known.pre_activation
    a, (weight, shift) = field.blocks[0], linearised.layers[1]
    with threads_for(z.shape[1] * (a.nnz + z.shape[0])):
        logits = torch.addmm(shift, propagate(a, z.relu()), weight)
    if known is None or left.directions.mix is None:
        sent = loo_messages(readable(field.features, left.directions), z, left.directions)
    else:
        sent = known.along @ left.directions.mix
    difference = logits[:, 1] - logits[:, 0]
    return logits, *message_interval(a, sent, difference, left.shift, residuals, *levels, scale=scale, bias=bias)
