"""The graph convolutional network (Kipf & Welling 2017) on CaliRare's own propagation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from calirare.graph import Graph, Order, Propagation, propagation
from calirare_ext import ReceptiveField, gcn_forward


class GCN(nn.Module):
    """L graph convolutions with ReLU between them: z_l = A_hat h_{l-1} W_l + b_l.

    The same function as a stack of PyG's GCNConv. Dropout acts on the hidden states; the features are propagated once
    and never dropped, so that a step costs only the receptive field of the labelled nodes.

    Args:
        n_features: width d of the features.
        n_classes: number of classes k.
        hidden: width of the hidden layers.
        n_layers: number of layers L, >= 1.
        dropout: probability of dropping a hidden unit while training, in [0, 1).
        hops: how often features are propagated before the first weights, see `propagation`; 0: nothing is ever
            propagated, the network is a perceptron.
        order: of the products with sparse features, see `propagation`.
        generator: of the weights; None: torch's own.

    Raises:
        ValueError: a size is not positive or the dropout is outside [0, 1).
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int = 2,
        *,
        hidden: int = 16,
        n_layers: int = 2,
        dropout: float = 0.5,
        hops: int = 1,
        order: Order = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("n_features", n_features), ("hidden", hidden), ("n_layers", n_layers), ("hops", hops)):
            if size < (name != "hops"):
                raise ValueError(f"GCN: {name} must be at least {int(name != 'hops')}, got {size}")
        if n_classes < 2:
            raise ValueError(f"GCN: n_classes must be at least 2, got {n_classes}")
        if not 0 <= dropout < 1:
            raise ValueError(f"GCN: dropout must be in [0, 1), got {dropout}")
        widths = [n_features, *[hidden] * (n_layers - 1), n_classes]
        self.dropout, self.hops, self.order = dropout, hops, order
        self.weights = nn.ParameterList(torch.empty(d, h, dtype=torch.float32) for d, h in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(h, dtype=torch.float32) for h in widths[1:])
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws Glorot-uniform weights and sets the biases to 0 (PyG's GCNConv)."""
        with torch.no_grad():
            for weight in self.weights:
                nn.init.xavier_uniform_(weight, generator=generator)
            for bias in self.biases:
                bias.zero_()

    @property
    def n_layers(self) -> int:
        """Number of layers L."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Width of the features."""
        return self.weights[0].shape[0]

    @property
    def n_classes(self) -> int:
        """Number of classes k."""
        return self.weights[-1].shape[1]

    @property
    def hidden(self) -> int:
        """Width of the hidden layers; 0 for a single layer."""
        return self.weights[0].shape[1] if self.n_layers > 1 else 0

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Returns weight [d, h] and bias [h] of each layer."""
        return list(zip(self.weights, self.biases, strict=True))

    def propagation(self, graph: Graph) -> Propagation:
        """Returns what the network reads of a graph, in the dtype of its weights."""
        return propagation(graph, self.hops, self.order).to(self.weights[0].dtype)

    def forward(
        self, at: Graph | ReceptiveField, nodes: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Returns logits.

        Args:
            at: a graph, or the receptive field of some nodes.
            nodes: with a graph: the nodes wanted, int64 [m]; None: all.
            generator: of the dropout; None: torch's own.

        Returns:
            Logits [m, k].

        Raises:
            ValueError: the features have another width than the network.
        """
        if isinstance(at, ReceptiveField):
            field = at
        else:
            if at.n_features != self.n_features:
                raise ValueError(
                    f"GCN: the network was built for {self.n_features} features, graph {at.name!r} has {at.n_features}"
                )
            wanted = torch.arange(at.n_nodes, device=at.device) if nodes is None else nodes
            field = self.propagation(at).field(wanted, self.n_layers)
        return gcn_forward(field, self.layers(), self.dropping(generator))

    def dropping(self, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor] | None:
        """Returns what drops hidden units while training; None where nothing is dropped."""
        return (lambda h: dropped(h, self.dropout, generator)) if self.training and self.dropout > 0 else None

    @torch.no_grad()
    def logits(self, graph: Graph) -> Tensor:
        """Returns the logits of every node [n, k], without dropout and without gradients."""
        was_training = self.training
        self.eval()
        out = self(graph)
        self.train(was_training)
        return out


def dropped(h: Tensor, probability: float, generator: torch.Generator | None) -> Tensor:
    """Returns h with entries dropped and the rest scaled up; a third of the time of torch's own on a CPU.

    Of hidden states [r, h], or of those of networks side by side [r, b, h], which then all drop the same.
    """
    shape = (h.shape[0], 1, h.shape[2]) if h.dim() == 3 else h.shape
    luck = torch.rand(shape, dtype=h.dtype, device=h.device, generator=generator)
    return h * luck.ge_(probability).div_(1 - probability)  # in place: fresh memory costs more than the arithmetic
