"""The graph convolutional network (Kipf & Welling 2017) on CaliRare's own propagation, alone or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from calirare.graph import Graph, Order, Propagation, propagation
from calirare_ext import (
    NetworkField,
    ReceptiveField,
    dropout_factors,
    gcn_forward,
    network_field,
    network_logits,
    network_loss,
)


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
        sizes: dict[str, Any] = {"n_features": n_features, "n_classes": n_classes, "hidden": hidden}
        self.settings = sizes | {"n_layers": n_layers, "dropout": dropout, "hops": hops, "order": order}
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

    @classmethod
    def of(cls, settings: dict[str, Any]) -> GCN:
        """Returns a network of `settings` in evaluation mode, its parameters to be overwritten."""
        return cls(**settings, generator=torch.Generator()).eval()  # not the caller's draws

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
        return (lambda h: _dropped(h, self.dropout, generator)) if self.training and self.dropout > 0 else None

    @torch.no_grad()
    def logits(self, graph: Graph) -> Tensor:
        """Returns the logits of every node [n, k], without dropout and without gradients."""
        was_training = self.training
        self.eval()
        out = self(graph)
        self.train(was_training)
        return out


def _dropped(h: Tensor, probability: float, generator: torch.Generator | None) -> Tensor:
    """Returns hidden states with entries dropped and the rest scaled up, as published numbers were drawn."""
    luck = torch.rand(h.shape, dtype=h.dtype, device=h.device, generator=generator)
    return h * luck.ge_(probability).div_(1 - probability)  # in place: fresh memory costs more than the arithmetic


class Dropout:
    """Draws what hidden units are multiplied with: 0 where dropped, else 1 / (1 - probability).

    Args:
        probability: of dropping, in [0, 1).
        seed: of the draws.
    """

    def __init__(self, probability: float, seed: int) -> None:
        self.probability, self.seed, self._drawn = probability, seed, 0

    @property
    def scale(self) -> float:
        """Factor of units that are kept."""
        return 1 / (1 - self.probability)

    def factors(self, rows: int, units: int, like: Tensor) -> Tensor:
        """Returns the next draw, [rows, units], in the dtype and on the device of `like`."""
        self._drawn += 1
        key = ((self.seed << 32) + self._drawn) % 2**64
        if like.device.type == "cpu":
            return dropout_factors(rows, units, self.probability, key, like.dtype)
        generator = torch.Generator(like.device).manual_seed(key)
        luck = torch.rand(rows, units, dtype=like.dtype, device=like.device, generator=generator)
        return luck.ge_(self.probability).mul_(self.scale)


Shapes = Sequence[tuple[Sequence[int], Sequence[int]]]  # of weight [d, h] and bias [h] of each layer


class ManyGcns:
    """b networks side by side: the first product is one of width b h, and what is propagated later has width b h_l.

    Args:
        field: receptive field of the nodes whose logits are wanted.
        shapes: shapes of each layer's weight and bias, first to last.
        products: how often each matrix will multiply, about; see `network_field`.
    """

    def __init__(self, field: ReceptiveField, shapes: Shapes, products: int = 0) -> None:
        self.field, self.shapes, self.products = field, shapes, products
        self._compiled: dict[int, NetworkField] = {}

    def numbers_of_a_model(self) -> int:
        """Returns how many numbers a forward pass of one network makes."""
        return sum(rows.numel() * (w[1] + 1) for rows, (w, _) in zip(self.field.rows, self.shapes, strict=True))

    def logits(self, parameters: Tensor) -> Tensor:
        """Returns the logits [m, b, k] of networks with parameters [b, p], in the order W_1, b_1, .., W_L, b_L."""
        return network_logits(self._of(parameters.shape[0]), parameters)

    def loss(
        self,
        parameters: Tensor,
        targets: Tensor,
        weights: Tensor,
        dropout: Dropout | None = None,
        into: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns sum_i w_i l_i of each network, and its gradient, without automatic differentiation.

        Args:
            parameters: theta, [b, p].
            targets: classes of the field's nodes, int64 [m].
            weights: w of each network, [b, m].
            dropout: what drops hidden units, the same in all networks; None: nothing.
            into: where the gradients are written, contiguous, [b, p]; None: in new memory.

        Returns:
            Losses, float64 [b], and gradients [b, p].
        """
        factors, scale = list[Tensor](), 1.0
        if dropout is not None and dropout.probability > 0:
            units = zip(self.field.rows, self.shapes[:-1], strict=False)
            factors = [dropout.factors(rows.numel(), bias[0], parameters) for rows, (_, bias) in units]
            scale = dropout.scale
        field = self._of(parameters.shape[0])
        return network_loss(field, parameters, targets, weights, factors=factors, scale=scale, into=into)

    def _of(self, n_networks: int) -> NetworkField:
        if n_networks not in self._compiled:
            widths = [(weight[0], weight[1]) for weight, _ in self.shapes]
            self._compiled[n_networks] = network_field(self.field, widths, n_networks, self.products)
        return self._compiled[n_networks]
