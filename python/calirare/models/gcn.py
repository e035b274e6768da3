"""The graph convolutional network (Kipf & Welling 2017) on CaliRare's own propagation, alone or many at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.graph import Graph, Order, Propagation, propagation
from calirare_ext import ReceptiveField, gcn_forward, propagate, times, turned_times


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


Shapes = Sequence[tuple[Sequence[int], Sequence[int]]]  # of weight [d, h] and bias [h] of each layer


class ManyGcns:
    """b networks side by side: the first product is one of width b h, and what is propagated later has width b h_l.

    Args:
        field: receptive field of the nodes whose logits are wanted.
        shapes: shapes of each layer's weight and bias, first to last.
    """

    def __init__(self, field: ReceptiveField, shapes: Shapes) -> None:
        self.field, self.shapes = field, shapes
        self._answers: tuple[Tensor, Tensor] | None = None

    def numbers_of_a_model(self) -> int:
        """Returns how many numbers a forward pass of one network makes."""
        return sum(rows.numel() * (w[1] + 1) for rows, (w, _) in zip(self.field.rows, self.shapes, strict=True))

    def logits(self, parameters: Tensor) -> Tensor:
        """Returns the logits [m, b, k] of networks with parameters [b, p], in the order W_1, b_1, .., W_L, b_L."""
        return self._forward(self._layers(parameters))[0]

    def penalised_loss(
        self, parameters: Tensor, targets: Tensor, sample_weights: Tensor, weight_decay: float
    ) -> tuple[Tensor, Tensor]:
        """Returns sum_i w_i l_i / m + mu / 2 |theta|^2 of each network, and its gradient.

        Args:
            parameters: theta, [b, p].
            targets: classes of the field's nodes, int64 [m].
            sample_weights: w of each network, [b, m].
            weight_decay: mu.

        Returns:
            Losses [b] and gradients [b, p].
        """
        loss, gradient = self.loss(parameters, targets, sample_weights)
        return weight_decay / 2 * parameters.square().sum(1) + loss, gradient.add_(parameters, alpha=weight_decay)

    def loss(
        self,
        parameters: Tensor,
        targets: Tensor,
        sample_weights: Tensor,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns sum_i w_i l_i / m of each network, and its gradient, without automatic differentiation.

        Args:
            parameters: theta, [b, p].
            targets: classes of the field's nodes, int64 [m].
            sample_weights: w of each network, [b, m].
            dropout: probability of dropping a hidden unit.
            generator: of the dropout.

        Returns:
            Losses [b] and gradients [b, p].
        """
        layers = self._layers(parameters)
        logits, hidden = self._forward(layers, dropout, generator)
        m = max(targets.numel(), 1)
        log_p = torch.log_softmax(logits, 2)
        own = log_p.gather(2, targets[:, None, None].expand(-1, parameters.shape[0], 1)).squeeze(2)  # [m, b]
        share = sample_weights.T / m
        gradient, delta = torch.empty_like(parameters), log_p.exp().sub_(self._right(targets, logits))
        self._backward(layers, hidden, delta.mul_(share[:, :, None]), self._layers(gradient), 1 / (1 - dropout))
        return -(share * own).sum(0), gradient

    def _right(self, targets: Tensor, like: Tensor) -> Tensor:
        """Returns the right answers [m, 1, k], made once for the same targets."""
        if self._answers is None or self._answers[0] is not targets:
            right = F.one_hot(targets, like.shape[2]).to(like)
            self._answers = (targets, right[:, None, :])
        return self._answers[1]

    def _layers(self, parameters: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Returns views of weights [b, d, h] and biases [b, h]."""
        out, start = [], 0
        for weight, bias in self.shapes:
            middle = start + math.prod(weight)
            end = middle + math.prod(bias)
            out.append((parameters[:, start:middle].unflatten(1, tuple(weight)), parameters[:, middle:end]))
            start = end
        return out

    def _forward(
        self, layers: list[tuple[Tensor, Tensor]], dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits [m, b, k] and every hidden state after ReLU and dropout, [r_l, b, h_l]."""
        (weight, bias), *later = layers
        b, d, h = weight.shape
        z = times(self.field.features, weight.transpose(0, 1).reshape(d, b * h)).view(-1, b, h).add_(bias)
        hidden = []
        for block, (weight, bias) in zip(self.field.blocks, later, strict=True):
            hidden.append(z.relu_() if dropout == 0 else dropped(z.relu_(), dropout, generator))
            # The narrow product first: the logits' layer then propagates k numbers per network, not h.
            product = _each(hidden[-1].transpose(0, 1), weight).transpose(0, 1).flatten(1)
            z = propagate(block, product).view(-1, b, weight.shape[2]).add_(bias)
        return z, hidden

    def _backward(
        self,
        layers: list[tuple[Tensor, Tensor]],
        hidden: list[Tensor],
        delta: Tensor,
        into: list[tuple[Tensor, Tensor]],
        scale: float = 1.0,
    ) -> None:
        """Writes the gradients of each layer, from d loss / d logits [m, b, k]; hidden units were scaled by `scale`."""
        b = delta.shape[1]
        for level in range(len(layers) - 1, 0, -1):
            weight, below = layers[level][0], hidden[level - 1]
            into[level][1].copy_(delta.sum(0))
            back = propagate(self.field.blocks[level - 1].transpose(), delta.flatten(1)).view(-1, b, weight.shape[2])
            back = back.transpose(0, 1)  # [b, r, h_l]
            into[level][0].copy_(_each(below.permute(1, 2, 0), back))
            delta = _each(back, weight.transpose(1, 2)).transpose(0, 1)
            delta = torch.ops.aten.threshold_backward(delta, below, 0)  # where the unit was on
            delta = delta if scale == 1 else delta.mul_(scale)
        into[0][1].copy_(delta.sum(0))
        d, h = self.shapes[0][0]
        product = turned_times(self.field.features, delta.flatten(1))
        into[0][0].copy_(product.view(d, b, h).transpose(0, 1))


def _each(a: Tensor, b: Tensor) -> Tensor:
    """Returns the product of each pair of matrices; of a single one without the detour of a batch."""
    return (a[0] @ b[0])[None] if a.shape[0] == 1 else torch.bmm(a, b)
