"""Labelled nodes and the nodes to be judged in one receptive field: what they share is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.curvature.gram import gram, inputs_gram
from calirare.graph.convolution import Propagation
from calirare.leave_one_out.alo import alo, along_kernel, loo_coefficients, own_change
from calirare.leave_one_out.left_out import change_of_logits, fits
from calirare.leave_one_out.result import LooChange
from calirare_ext import Csr, GcnTape, ReceptiveField


@dataclass(frozen=True, eq=False)
class Together:
    """One receptive field of the labelled nodes and of the nodes to be judged.

    Attributes:
        own: of the labelled nodes alone.
        field: of all of them, each once.
        labelled: where the labelled nodes stand among its nodes, int64 [m].
        judged: where the nodes to be judged stand, int64 [n].
        rows: where the rows of the labelled nodes' own field stand among its rows, int64.
    """

    own: ReceptiveField
    field: ReceptiveField
    labelled: Tensor
    judged: Tensor
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


def together(graph: Propagation, own: ReceptiveField, judged: Tensor) -> Together:
    """Returns the field of a network's labelled nodes and of others.

    Args:
        graph: what a graph convolution reads of the graph.
        own: receptive field of the labelled nodes.
        judged: the nodes to be judged, int64 [n], distinct.

    Returns:
        The two in one.
    """
    others = judged[~torch.isin(judged, own.nodes)]
    field = graph.field(torch.cat([own.nodes, others]), own.n_layers)
    labelled = torch.arange(own.nodes.numel(), device=judged.device)
    return Together(own, field, labelled, _places(field.nodes, judged), _places(field.rows[0], own.rows[0]))


def change_together(tape: GcnTape, both: Together, damping: float, first: Tensor | None = None) -> LooChange:
    """Returns what `alo` returns for the nodes to be judged, the fastest way there is.

    Where the products of the inputs are known, from one kernel that holds the labelled nodes' own; otherwise, with two
    layers and two classes, from the messages.

    Args:
        tape: the network at the labelled nodes.
        both: the nodes.
        damping: mu > 0.
        first: the first layer's output at the rows of `both.field` [r, h], where it is known; None: computed.

    Returns:
        The changes.
    """
    if both.products is not None:
        kernel = gram(tape, both.field, products=both.products, first=first)
        size = tape.n_nodes * (tape.n_classes - 1)
        own = kernel[both.labelled].reshape(size, size)
        alpha, leverage = loo_coefficients(tape, own, damping)
        change = along_kernel(kernel[both.judged], alpha)
        return LooChange(change, own_change(tape, own, alpha).to(tape.logits.dtype), leverage, damping)
    every = (change_of_logits if fits(tape) else alo)(tape, both.field, damping)
    return LooChange(every.change[both.judged], every.own, every.leverage, damping)


def _places(nodes: Tensor, wanted: Tensor) -> Tensor:
    """Returns where each wanted node stands in `nodes`, which has it."""
    order = torch.argsort(nodes)
    return order[torch.searchsorted(nodes[order], wanted)]
