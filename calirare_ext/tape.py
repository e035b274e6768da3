"""A graph convolutional network's forward and backward pass, kept for per-node gradients and Hessian products."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare_ext._backend import _C
from calirare_ext._checks import check_like, check_shape, dtype_name
from calirare_ext.csr import Csr
from calirare_ext.first_layer import times
from calirare_ext.inputs import Factored, Inputs, as_matrix
from calirare_ext.propagate import compiled, propagate
from calirare_ext.receptive_field import ReceptiveField

Layer = tuple[Tensor, Tensor]  # weight [d, h], bias [h]


def gcn_forward(
    field: ReceptiveField,
    layers: Sequence[Layer],
    between: Callable[[Tensor], Tensor] | None = None,
    *,
    first: Tensor | None = None,
) -> Tensor:
    """Returns the logits of the field's nodes: z_l = s_l W_l + b_l, s_1 = A_hat X, s_l = A_hat relu(z_{l-1}).

    Args:
        field: receptive field with as many layers.
        layers: weight [d, h] and bias [h] of each layer, first to last.
        between: applied to every hidden state after the ReLU (dropout); None: nothing.
        first: z_1 [r_1, h], where several passes over one field share it; None: computed.

    Returns:
        Logits [m, k], differentiable in the weights and biases.

    Raises:
        TypeError: a dtype differs from the inputs'.
        ValueError: the number of layers, a shape or a device does not fit.
    """
    _check_layers("gcn_forward", field, layers)
    z = _affine(field.features, *layers[0]) if first is None else first
    for block, layer in zip(field.blocks, layers[1:], strict=True):
        hidden = F.relu(z)
        z = _affine(propagate(block, hidden if between is None else between(hidden)), *layer)
    return z


def _check_layers(op: str, field: ReceptiveField, layers: Sequence[Layer]) -> Tensor:
    """Raises TypeError or ValueError unless the layers fit the field; returns a tensor with its dtype and device."""
    if len(layers) != field.n_layers:
        raise ValueError(f"{op}: layers must be {field.n_layers} as in the field, got {len(layers)}")
    width = field.features.shape[1]
    like = torch.empty(0, dtype=field.features.dtype, device=field.features.device)
    for number, (weight, bias) in enumerate(layers, 1):
        check_like(op, f"weight {number}", weight, like, "the field's inputs")
        check_shape(op, f"weight {number}", weight, (width, None))
        width = weight.shape[1]
        check_like(op, f"bias {number}", bias, like, "the field's inputs")
        check_shape(op, f"bias {number}", bias, (width,))
    return like


def _check_inputs(op: str, inputs: Inputs) -> None:
    """Raises ValueError where `node_gradients` would write one number from two threads of a GPU."""
    row = inputs.repeated_row() if isinstance(inputs, Csr) else None
    if row is not None:
        raise ValueError(
            f"{op}: inputs must name a column once in a row, row {row} of the field names one more than once: "
            "Csr.from_coo(..., sum_duplicates=True) adds up"
        )


def _affine(x: Inputs, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight) if isinstance(x, Tensor) else times(x, weight) + bias


@dataclass(frozen=True, eq=False)
class GcnTape:
    """One forward and backward pass of loss = sum_i w_i l_i / m at fixed parameters, l_i the cross-entropy of node i.

    Attributes:
        field: where the network was evaluated; its m nodes are the labelled ones.
        layers: weight and bias of each layer, detached.
        targets: int64 [m], class of each node.
        sample_weights: w_i [m], such as class weights; the loss is their weighted mean over m.
        aggregated: s_2 .. s_L, [r_l, h_{l-1}].
        masks: 1[z_l > 0] for l < L, [r_l, h_l], in the dtype of the weights.
        logits: z_L [m, k].
        probabilities: softmax of the logits [m, k].
    """

    field: ReceptiveField
    layers: tuple[Layer, ...]
    targets: Tensor
    sample_weights: Tensor
    aggregated: tuple[Tensor, ...]
    masks: tuple[Tensor, ...]
    logits: Tensor
    probabilities: Tensor
    _cache: dict[str, _C.GcnTape] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the compiled face out of copies and files."""
        return {**self.__dict__, "_cache": {}}

    @property
    def n_parameters(self) -> int:
        """Number of parameters p."""
        return sum(weight.numel() + bias.numel() for weight, bias in self.layers)

    @property
    def n_nodes(self) -> int:
        """Number of labelled nodes m."""
        return self.targets.numel()

    @property
    def n_classes(self) -> int:
        """Number of classes k."""
        return self.logits.shape[1]

    @cached_property
    def deltas(self) -> tuple[Tensor, ...]:
        """Loss gradients d loss / d z_l, l = 1 .. L, made when first asked for: the kernel K = J J^T needs none."""
        deltas = [self.loss_gradient_at_logits() / max(self.n_nodes, 1)]
        for level in range(len(self.layers) - 1, 0, -1):
            back = propagate(self.field.blocks[level - 1].transpose(), deltas[0] @ self.layers[level][0].T)
            deltas.insert(0, back * self.masks[level - 1])
        return tuple(deltas)

    def loss_gradient_at_logits(self) -> Tensor:
        """Returns w_i (p_i - onehot(y_i)) [m, k], the gradient of each node's weighted loss at its logits."""
        right = F.one_hot(self.targets, self.n_classes).to(self.probabilities)
        return self.sample_weights[:, None] * (self.probabilities - right)

    def compiled(self) -> _C.GcnTape:
        """Returns the compiled face of the tape, made once and kept."""
        if "tape" not in self._cache:
            self._cache["tape"] = _compile(self)
        return self._cache["tape"]


def record(
    field: ReceptiveField,
    layers: Sequence[Layer],
    targets: Tensor,
    sample_weights: Tensor | None = None,
    *,
    first: Tensor | None = None,
) -> GcnTape:
    """Returns the tape of one pass over the field's nodes.

    Args:
        field: receptive field of the labelled nodes.
        layers: weight [d, h] and bias [h] of each layer; dtype and device of the field's inputs.
        targets: int64 [m], in [0, k).
        sample_weights: w_i > 0, [m]; None: ones.
        first: z_1 [r_1, h], where it is known; None: computed.

    Returns:
        The tape.

    Raises:
        TypeError: a dtype differs from the inputs', or `targets` is not int64.
        ValueError: the number of layers, a shape or a device does not fit, a target is out of range, or a row of sparse
            inputs names a column more than once.
    """
    op = "record"
    like = _check_layers(op, field, layers)
    _check_inputs(op, field.features)
    fixed = tuple((weight.detach().contiguous(), bias.detach().contiguous()) for weight, bias in layers)
    if targets.dtype != torch.int64:
        raise TypeError(f"{op}: targets must be int64, got {dtype_name(targets.dtype)}")
    check_shape(op, "targets", targets, (field.nodes.numel(),))
    n_classes = fixed[-1][1].numel()
    if targets.numel() and (int(targets.min()) < 0 or int(targets.max()) >= n_classes):
        raise ValueError(f"{op}: targets must be in [0, {n_classes}), got {int(targets.min())} to {int(targets.max())}")
    weights = torch.ones(targets.numel(), dtype=like.dtype, device=like.device)
    if sample_weights is not None:
        weights = sample_weights.detach().to(like)
        check_shape(op, "sample_weights", weights, (targets.numel(),))
    with torch.no_grad():
        z = _affine(field.features, *fixed[0]) if first is None else first.detach()
        aggregated, masks = [], []
        for block, layer in zip(field.blocks, fixed[1:], strict=True):
            masks.append((z > 0).to(z.dtype))
            aggregated.append(propagate(block, F.relu(z)))
            z = _affine(aggregated[-1], *layer)
        probabilities = torch.softmax(z, 1)
    return GcnTape(field, fixed, targets, weights, tuple(aggregated), tuple(masks), z, probabilities)


def _compile(tape: GcnTape) -> _C.GcnTape:
    out = _C.GcnTape()
    inputs = tape.field.features
    if isinstance(inputs, Factored) and not isinstance(inputs.x, Factored):
        out.first_block, out.first_block_t = compiled(inputs.a), compiled(inputs.a.transpose())
        inputs = inputs.x
    inputs = as_matrix(inputs)
    if isinstance(inputs, Csr):
        out.sparse_inputs, out.sparse_inputs_t = compiled(inputs), compiled(inputs.transpose())
    else:
        out.dense_inputs = inputs
    out.blocks = [compiled(block) for block in tape.field.blocks]
    out.blocks_t = [compiled(block.transpose()) for block in tape.field.blocks]
    out.aggregated, out.masks, out.deltas = list(tape.aggregated), list(tape.masks), list(tape.deltas)
    out.weights = [weight for weight, _ in tape.layers]
    out.probabilities = tape.probabilities
    out.loss_weights = tape.sample_weights / max(tape.n_nodes, 1)
    return out
