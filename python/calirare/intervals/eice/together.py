"""Labelled nodes and the nodes to be evaluated in one receptive field: what they share is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, Kernels, gram, inputs_gram
from calirare.graph import Propagation
from calirare.leave_one_out import LooResult, alo_change, change_of_logits, fits, loo_coefficients, own_change
from calirare_ext import Csr, ReceptiveField


@dataclass(frozen=True, eq=False)
class Together:
    """One receptive field of the labelled nodes and of the nodes to be evaluated.

    Attributes:
        own: of the labelled nodes alone.
        field: of all of them, each once.
        labelled: where the labelled nodes stand among its nodes, int64 [m].
        evaluated: where the nodes to be evaluated stand, int64 [n].
        rows: where the rows of the labelled nodes' own field stand among its rows, int64.
    """

    own: ReceptiveField
    field: ReceptiveField
    labelled: Tensor
    evaluated: Tensor
    rows: Tensor

    @cached_property
    def products(self) -> Tensor | None:
        """Products of the first layer's inputs (`gram.inputs_gram`), which stay the same while a network is trained.

        With sparse inputs and two layers they are most of the work. None where they are large or would not help.
        """
        mine, every = self.own.inputs, self.field.inputs
        if self.own.n_layers != 2 or not isinstance(mine, Csr) or not isinstance(every, Csr):
            return None
        return inputs_gram(mine, every)


def together(graph: Propagation, own: ReceptiveField, evaluated: Tensor) -> Together:
    """Returns the field of a network's labelled nodes and of others.

    Args:
        graph: what a graph convolution reads of the graph.
        own: receptive field of the labelled nodes.
        evaluated: the nodes to be evaluated, int64 [n], distinct.

    Returns:
        The two in one.
    """
    others = evaluated[~torch.isin(evaluated, own.nodes)]
    field = graph.field(torch.cat([own.nodes, others]), own.n_layers)
    labelled = torch.arange(own.nodes.numel(), device=evaluated.device)
    return Together(own, field, labelled, _places(field.nodes, evaluated), _places(field.rows[0], own.rows[0]))


def change_together(
    linearised: GcnLinearisation, both: Together, damping: float, first: Tensor | None = None
) -> LooResult:
    """Returns what `alo` returns for the nodes to be evaluated, the fastest way there is.

    Where the products of the inputs are known, from one kernel that holds the labelled nodes' own; otherwise, with two
    layers and two classes, from the messages.

    Args:
        linearised: the network at the labelled nodes.
        both: the nodes.
        damping: mu > 0.
        first: the first layer's output at the rows of `both.field` [r, h], where it is known; None: computed.

    Returns:
        The changes.
    """
    if both.products is not None:
        kernel = gram(linearised, both.field, products=both.products, first=first)
        size = linearised.n_nodes * (linearised.n_classes - 1)
        own = kernel[both.labelled].reshape(size, size)
        alpha, leverage = loo_coefficients(linearised, own, damping)
        evaluated = Kernels(own, kernel[both.evaluated])
        change = linearised.change_of(both.field, evaluated, alpha)
        return LooResult(change, own_change(linearised, own, alpha).to(linearised.logits.dtype), leverage, damping)
    every = (change_of_logits if fits(linearised) else alo_change)(linearised, both.field, damping)
    return LooResult(every.change[both.evaluated], every.own, every.leverage, damping)


def _places(nodes: Tensor, wanted: Tensor) -> Tensor:
    """Returns where each wanted node stands in `nodes`, which has it."""
    order = torch.argsort(nodes)
    return order[torch.searchsorted(nodes[order], wanted)]
