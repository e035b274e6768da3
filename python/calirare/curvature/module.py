"""Any differentiable torch module linearised at its labelled nodes, by reverse mode alone.

GAT, GIN, SAGE or a user's own network goes through the same formulas as a GCN, slower. Only reverse-mode derivatives
are asked of the module, first and second order, so sparse and scatter propagation work. Nothing is written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from calirare.curvature.linearisation import Linearisation, logit_differences

_ABSENT: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}  # parameters the outputs do not depend on
PASS = 8_000_000  # numbers of a layer's gradients that are held at once
ROWS_OF_A_PASS = 10  # rows of J around a node that take the time of one pass through the whole graph
LABELS, HOPS = 4, 5  # nodes whose surroundings are evaluated together, and the most hops these have


@dataclass(frozen=True, eq=False)
class NodeField:
    """Nodes of a module that is evaluated at all nodes at once.

    Attributes:
        nodes: int64 [n_v].
    """

    nodes: Tensor

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The nodes alone: what else is read, the module knows."""
        return (self.nodes,)


class ModuleLinearisation(Linearisation):
    """`Linearisation` of any module.

    Args:
        module: the network in evaluation mode; module(*inputs) returns the logits of every node, [n, k]. All of its
            parameters that require a gradient take part.
        inputs: what it is called with, such as (x, edge_index).
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: w_i, [m].
    """

    def __init__(
        self, module: nn.Module, inputs: tuple[Any, ...], nodes: Tensor, targets: Tensor, sample_weights: Tensor
    ) -> None:
        self.module, self.inputs, self.field, self.targets = module, inputs, NodeField(nodes), targets
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._every, self._dense = _evaluated(module, inputs)
        self._hops = 1  # around a node that its logits read, found by trying; above HOPS: the whole graph
        self.logits = self._every.detach()[nodes]
        self.sample_weights = sample_weights.to(self.logits)

    @property
    def n_parameters(self) -> int:
        """Number of parameters, p."""
        return sum(p.numel() for p in self._parameters)

    @cached_property
    def jacobian(self) -> Tensor:
        """J at the labelled nodes, [m (k - 1), p]."""
        return self.jacobian_at(self.field)

    def jacobian_at(self, field: NodeField) -> Tensor:
        """Returns J at a field's nodes, [n_v (k - 1), p].

        Of a few nodes at a time, from the module on the nodes and edges around them where its logits there are those
        on the whole graph; else from the whole graph.

        Cost: n_v (k - 1) backward passes without the products of dense weights, in batches.
        """
        width = self._every.shape[1] - 1
        out = self._every.new_zeros(field.nodes.numel() * width, self.n_parameters)
        for nodes, rows in zip(field.nodes.split(LABELS), out.split(LABELS * width), strict=True):
            self._write_rows(rows, nodes)
        return out

    def surroundings(self, nodes: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        """Returns inputs on which the module has the same logits at some nodes, and where these are.

        The nodes and edges around them where that is enough, else the whole graph.
        """
        found = self._around(nodes)
        return (self.inputs, nodes) if found is None else found[:2]

    def _around(self, nodes: Tensor) -> tuple[tuple[Any, ...], Tensor, Tensor, list[_DenseCall]] | None:
        wanted = self._every.detach()[nodes]
        while self._hops <= HOPS and (part := around(self.inputs, nodes, self._hops)) is not None:
            every, dense = _evaluated(self.module, part[0])
            if torch.allclose(every[part[1]], wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max())):
                return *part, every, dense
            self._hops += 1
        self._hops = HOPS + 1
        return None

    def _write_rows(self, out: Tensor, nodes: Tensor) -> None:
        """Writes J at a few nodes, [b (k - 1), p]."""
        found = self._around(nodes)
        _, places, every, dense = (None, nodes, self._every, self._dense) if found is None else found
        _write_gradients(out, every, dense, places, self._parameters)

    def change_along(self, field: NodeField, directions: Tensor) -> Tensor:
        """See `Linearisation.change_along`; J v as the derivative of <J^T u, v> by u, one pass for each direction.

        At few nodes with their rows of J, which read only what is around them.
        """
        width = self._every.shape[1] - 1
        if field.nodes.numel() * width <= ROWS_OF_A_PASS * len(directions):
            moved = self.jacobian_at(field) @ directions.T.to(self._every)
            return moved.view(-1, width, len(directions))
        with torch.enable_grad():
            z = logit_differences(self._every[field.nodes])
            u = torch.zeros_like(z, requires_grad=True)
            pulled = self._pulled(z, u, create_graph=True)
        columns = [torch.autograd.grad(pulled, u, v.to(pulled), retain_graph=True)[0] for v in directions]
        return torch.stack(columns, 2) if columns else z.new_zeros(*z.shape, 0)

    def _pulled(self, z: Tensor, u: Tensor | None = None, *, create_graph: bool = False) -> Tensor:
        """Returns J^T u [p] of outputs z."""
        gradients = torch.autograd.grad(z, self._parameters, u, retain_graph=True, create_graph=create_graph, **_ABSENT)
        return _flat(gradients)


def around(inputs: tuple[Any, ...], nodes: Tensor, hops: int) -> tuple[tuple[Any, ...], Tensor] | None:
    """Returns the inputs (x, edge_index[, edge_weight]) of the nodes up to some hops away, and where the nodes are.

    None where the inputs are others.
    """
    if not 2 <= len(inputs) <= 3 or not all(isinstance(each, Tensor) for each in inputs):
        return None
    x, edges, n_edges = inputs[0], inputs[1], inputs[1].shape[-1]
    if x.layout != torch.strided or edges.layout != torch.strided or edges.dtype != torch.int64 or edges.dim() != 2:
        return None
    if edges.shape[0] != 2 or any(len(each) != n_edges for each in inputs[2:]):
        return None
    near = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    near[nodes] = True
    for _ in range(hops):
        near[edges[:, near[edges].any(0)].flatten()] = True
    place, kept = near.cumsum(0) - 1, near[edges].all(0)
    return (x[near], place[edges[:, kept]], *(each[kept] for each in inputs[2:])), place[nodes]


@dataclass(eq=False)
class _DenseCall:
    """One call of a dense layer, x W^T + b of x [n, d]; `output` None: it was called otherwise, or more than once."""

    weight: nn.Parameter
    input: Tensor | None = None
    output: Tensor | None = None
    calls: int = 0

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the layer read and returned: a forward hook."""
        del layer
        self.calls += 1
        plain = self.calls == 1 and len(inputs) == 1 and isinstance(output, Tensor) and inputs[0].dim() == 2
        self.input, self.output = (inputs[0].detach(), output) if plain and not inputs[0].is_sparse else (None, None)


def _evaluated(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor, list[_DenseCall]]:
    """Returns the logits with their gradient, and each dense layer whose weight is a parameter of no other part."""
    owners = [id(p) for part in module.modules() for p in part.parameters(recurse=False)]
    calls, hooks = list[_DenseCall](), []
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if not isinstance(weight, nn.Parameter) or type(part).__name__ != "Linear" or not weight.requires_grad:
            continue
        if owners.count(id(weight)) == 1 and set(part._parameters) <= {"weight", "bias"}:
            calls.append(_DenseCall(weight))
            hooks.append(part.register_forward_hook(calls[-1]))
    try:
        with torch.enable_grad():
            every = module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return every, [call for call in calls if call.output is not None]


def _write_gradients(
    out: Tensor, every: Tensor, dense: list[_DenseCall], nodes: Tensor, parameters: list[nn.Parameter]
) -> None:
    """Writes the gradients of logit differences at nodes by the parameters, [b (k - 1), p], zero before.

    Derivatives go to what each dense layer returns; only the rows that one node reads are not zero there, and their
    product with the layer's input is the gradient of the weight.
    """
    with torch.enable_grad():
        own = logit_differences(every[nodes])
    outputs = {id(call.weight): call.output for call in dense if call.output is not None}
    wanted = [outputs.get(id(p), p) for p in parameters]
    inputs = {id(call.weight): call.input for call in dense}
    step = max(1, PASS // (max(each.numel() for each in [*outputs.values(), every]) * own.shape[1]))
    for some, rows in zip(own.split(step), out.split(step * own.shape[1]), strict=True):
        columns = rows.split([p.numel() for p in parameters], 1)
        for p, each, into in zip(parameters, _batched(some, wanted), columns, strict=True):
            if id(p) not in outputs:
                into.copy_(each.flatten(1))
                continue
            by_node = each.view(*some.shape, *each.shape[1:])  # [b, k - 1, n, h]
            read = (by_node != 0).any(3).any(1)
            for block, gradient, rows_read in zip(into.split(some.shape[1]), by_node, read, strict=True):
                layer_input = inputs[id(p)]
                assert layer_input is not None
                block.copy_((gradient[:, rows_read].mT @ layer_input[rows_read]).flatten(1))


def _batched(outputs: Tensor, wanted: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the gradients of each of the outputs [b, k - 1], by what is wanted, each [b (k - 1), ..]."""
    seeds = torch.eye(outputs.numel(), dtype=outputs.dtype, device=outputs.device).view(-1, *outputs.shape)
    try:
        return torch.autograd.grad(outputs, wanted, seeds, retain_graph=True, is_grads_batched=True, **_ABSENT)
    except RuntimeError:  # an operator of the module's has no batched derivative
        passes = [torch.autograd.grad(outputs, wanted, seed, retain_graph=True, **_ABSENT) for seed in seeds]
        return tuple(torch.stack(each) for each in zip(*passes, strict=True))


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])
