"""Operator 2, node_gradients: each labelled node's own gradient, in closed form from its receptive field."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_index, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.propagate import compiled, propagate
from calirare_ext.receptive_field import ReceptiveField
from calirare_ext.tape import GcnTape


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """One layer's gradients as sums of rank-one terms: node i owns entries entry_ptr[i] .. entry_ptr[i + 1].

    Entry e stands for inputs[nodes[e], :]^T delta[e, q, :] (weight) and delta[e, q, :] (bias), for each seed q.

    Attributes:
        entry_ptr: int64 [m + 1].
        nodes: int32 [n_entries], rows of the layer's inputs.
        delta: [n_entries, s, h], the gradient at the layer's output for each of s seeds.
        inputs: the layer's inputs s_l, [r_l, d], dense or sparse, in the dtype of `delta`.

    Raises:
        TypeError: a dtype is wrong or differs.
        ValueError: a shape or device does not fit, entry_ptr does not rise from 0 to n_entries, or a node is no row.
    """

    entry_ptr: Tensor
    nodes: Tensor
    delta: Tensor
    inputs: Tensor | Csr

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Checks what memory safety rests on, O(n_entries); again before each use, as tensors can change in place."""
        op = "LayerFactors"
        like = self.inputs.values if isinstance(self.inputs, Csr) else self.inputs
        check_float(op, "inputs", like)
        if like is self.inputs:
            check_shape(op, "inputs", like, (None, None))
        check_like(op, "delta", self.delta, like, "inputs")
        for name, index, dtype in (("entry_ptr", self.entry_ptr, torch.int64), ("nodes", self.nodes, torch.int32)):
            check_index(op, name, index, dtype, like.device)
        check_shape(op, "delta", self.delta, (self.nodes.numel(), None, None))
        ends = self.entry_ptr
        falls = bool((ends[1:] < ends[:-1]).any())
        if not ends.numel() or int(ends[0]) != 0 or int(ends[-1]) != self.nodes.numel() or falls:
            raise ValueError(f"{op}: entry_ptr must rise from 0 to {self.nodes.numel()}, the number of entries")
        if self.nodes.numel():
            low, high = (int(end) for end in torch.aminmax(self.nodes))
            if low < 0 or high >= self.inputs.shape[0]:
                raise ValueError(f"{op}: nodes must be in [0, {self.inputs.shape[0]}), got {low} to {high}")

    @property
    def n_parameters(self) -> int:
        """Weights and biases of the layer."""
        d = self.inputs.n_cols if isinstance(self.inputs, Csr) else self.inputs.shape[1]
        return (d + 1) * self.delta.shape[2]


@dataclass(frozen=True, eq=False)
class NodeGradients:
    """Per-node gradients in factored form, never [m, p].

    Attributes:
        layers: the factors of each layer, first to last.

    Raises:
        TypeError: the dtypes of the layers differ.
        ValueError: there is no layer, or layers have other nodes, seeds or devices.
    """

    layers: tuple[LayerFactors, ...]

    def __post_init__(self) -> None:
        """Checks that the layers are of one network."""
        op = "NodeGradients"
        if not self.layers:
            raise ValueError(f"{op}: layers must hold at least one layer, got none")
        first = self.layers[0]
        for layer in self.layers[1:]:
            check_like(op, "layers", layer.delta, first.delta, "the first layer")
            check_shape(op, "layers", layer.delta, (None, first.delta.shape[1], None))
            check_shape(op, "layers", layer.entry_ptr, tuple(first.entry_ptr.shape))

    @property
    def n_parameters(self) -> int:
        """Number of parameters p."""
        return sum(layer.n_parameters for layer in self.layers)

    def dense(self) -> Tensor:
        """Returns the gradients as rows [m * s, p]; parameters in the order W_1, b_1, .., W_L, b_L, row-major.

        Node i's seed q is row i * s + q.
        """
        first = self.layers[0]
        m, seeds = first.entry_ptr.numel() - 1, first.delta.shape[1]
        out = torch.empty(m, seeds, self.n_parameters, dtype=first.delta.dtype, device=first.delta.device)
        start = 0
        for layer in self.layers:
            layer.check()
            inputs = compiled(layer.inputs) if isinstance(layer.inputs, Csr) else layer.inputs
            for q in range(seeds):
                part = out[:, q, start : start + layer.n_parameters]
                _C.node_gradients_out(layer.entry_ptr, layer.nodes, layer.delta[:, q].contiguous(), inputs, part)
            start += layer.n_parameters
        return out.view(m * seeds, self.n_parameters)


def node_gradients(tape: GcnTape, seeds: Tensor | None = None) -> NodeGradients:
    """Returns the gradient of each labelled node's loss, or of any linear function of its logits.

    Computes g_i = w_i grad_theta l_i (paper, Algorithm 1, line 3: grad L(i; theta)), not divided by m. A ReLU network
    is piecewise linear, so each gradient is a sum of outer products over the node's receptive field; no other node is
    touched and nothing of size [m, p] is made.

    Args:
        tape: forward and backward pass of the labelled nodes.
        seeds: [m, s, k], gradients at the logits to pull back, s per node; None: the loss gradient w_i (p_i - y_i).

    Returns:
        The factored gradients; `.dense()` gives them as rows.

    Raises:
        TypeError: `seeds` has another dtype.
        ValueError: `seeds` has another shape or device.

    Cost: the sum over nodes of the receptive field sizes, times s * h.
    """
    if seeds is None:
        seeds = tape.loss_gradient_at_logits()[:, None, :]
    check_like("node_gradients", "seeds", seeds, tape.logits, "the tape")
    check_shape("node_gradients", "seeds", seeds, (tape.n_nodes, None, tape.n_classes))
    plans = entry_plans(tape.field)
    inputs: list[Tensor | Csr] = [tape.field.inputs, *tape.aggregated]
    delta = seeds.detach()
    factors = [LayerFactors(plans[-1].entry_ptr, plans[-1].nodes, delta, inputs[-1])]
    for level in range(tape.field.n_layers - 2, -1, -1):
        plan, weight = plans[level], tape.layers[level + 1][0]
        back = delta @ weight.T  # [entries of the layer above, s, h]
        flat = back.reshape(back.shape[0], back.shape[1] * back.shape[2])
        delta = propagate(plan.gather, flat).view(plan.nodes.numel(), *back.shape[1:])
        delta = delta * tape.masks[level][plan.nodes.long()][:, None, :]
        factors.insert(0, LayerFactors(plan.entry_ptr, plan.nodes, delta, inputs[level]))
    return NodeGradients(tuple(factors))


@dataclass(frozen=True, eq=False)
class EntryPlan:
    """Which (node, row) pairs a layer's gradients touch, and how they gather from the layer above."""

    entry_ptr: Tensor  # int64 [m + 1]
    nodes: Tensor  # int32 [n_entries], rows of the layer
    gather: Csr  # [n_entries, n_entries of the layer above]: the adjacency weight of each path


def entry_plans(field: ReceptiveField) -> tuple[EntryPlan, ...]:
    """Returns the plan of every layer, first to last; computed once per field and kept."""
    if "plans" not in field._cache:
        field._cache["plans"] = _entry_plans(field)
    return field._cache["plans"]


def _entry_plans(field: ReceptiveField) -> tuple[EntryPlan, ...]:
    m, device = field.nodes.numel(), field.nodes.device
    own = torch.arange(m, device=device)
    nothing = torch.empty(0, dtype=field.features.dtype, device=device)
    none = Csr.unchecked(torch.zeros(m + 1, dtype=torch.int64, device=device), own[:0].int(), nothing, 0)
    plans = [EntryPlan(torch.arange(m + 1, device=device), own.int(), none)]
    owner, nodes = own, own  # the labelled node and the row of every entry of the layer above
    for block in reversed(field.blocks):
        paths = block.select_rows(nodes)  # row e: the neighbours of entry e's node
        above = paths.rows()
        key = owner[above] * block.n_cols + paths.indices.long()
        keys, entry = torch.unique(key, return_inverse=True)
        owner, nodes = keys // max(block.n_cols, 1), keys % max(block.n_cols, 1)
        gather = Csr.from_coo(entry, above, paths.values, (keys.numel(), paths.n_rows))
        entry_ptr = torch.zeros(m + 1, dtype=torch.int64, device=device)
        entry_ptr[1:] = torch.cumsum(torch.bincount(owner, minlength=m), 0) if m else 0
        plans.insert(0, EntryPlan(entry_ptr, nodes.int(), gather))
    return tuple(plans)
