"""Mixup for nodes (Wang et al. 2021): two branches, each with one node's neighbours, around one mixed centre."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph, propagated_features
from calirare.models import GCN, GcnTraining, cross_entropy
from calirare_ext import Csr, ReceptiveField, propagate
from calirare_lab.baselines.losses import optimise

ALPHA = 4.0  # both parameters of the Beta distribution, as Wang et al. set it for citation graphs


def train_mixup(graph: Graph, nodes: Tensor, settings: GcnTraining, *, alpha: float = ALPHA) -> GCN:
    """Trains the graph convolution on pairs of labelled nodes, mixed before every layer.

    Each epoch pairs the labelled nodes at random and draws one share ~ Beta(alpha, alpha); the loss is mixed alike.
    Prediction is the plain network's.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        settings: how to train.
        alpha: > 0; large: shares near one half.

    Returns:
        The network in evaluation mode.

    Raises:
        ValueError: alpha is not positive.
    """
    if not alpha > 0:
        raise ValueError(f"train_mixup: alpha must be positive, got {alpha}")
    start = settings.start(graph, nodes)
    targets, weights = start.targets, start.sample_weights
    centres = _rows(propagated_features(graph, settings.hops), nodes)
    generator = np.random.default_rng(settings.seed)

    def loss() -> Tensor:
        partner = torch.from_numpy(generator.permutation(nodes.numel())).to(nodes.device)
        share = float(generator.beta(alpha, alpha))
        logits = mixed_logits(start.model, start.field, centres, partner, share)
        own = cross_entropy(logits, targets, weights)
        return share * own + (1 - share) * cross_entropy(logits, targets[partner], weights[partner])

    return optimise(start.model, settings, loss)


def mixed_logits(model: GCN, field: ReceptiveField, centres: Tensor | Csr, partner: Tensor, share: float) -> Tensor:
    """Returns the logits of mixed nodes (Wang et al. 2021, Eq. 5 and 6, with the graph convolution's weights).

    Row i mixes node i with j = partner[i]. Before each layer the mixed state m takes the centre's place in both
    neighbourhoods: with s_i = (A_hat h)_i, it becomes the layer's value of
    share (s_i + a_ii (m - h_i)) + (1 - share) (s_j + a_jj (m - h_j)).

    Args:
        model: the network.
        field: receptive field of the labelled nodes.
        centres: their features, scaled but not propagated, [m, d].
        partner: int64 [m], a permutation of 0 .. m - 1.
        share: of node i itself, in [0, 1].

    Returns:
        Logits [m, k].

    Raises:
        ValueError: the network has a single layer.
    """
    if not field.blocks:
        raise ValueError(f"train_mixup: the network must have at least 2 layers, got {field.n_layers}")
    diagonal = _diagonal(field)[:, None]
    hidden: Tensor | Csr = centres
    mixed: Tensor | None = None
    everywhere: Tensor | None = None
    for layer, (weight, bias) in enumerate(model.layers()):
        place = _places(field, layer)
        source = field.inputs if everywhere is None else propagate(field.blocks[layer - 1], everywhere)
        # The layer is linear up to its bias: states are multiplied first and mixed afterwards.
        product, own = _times(source, weight), _times(hidden, weight)
        centre = share * own + (1 - share) * own[partner] if mixed is None else mixed @ weight
        aggregated = product[place]
        moved = aggregated + diagonal * (centre - own)
        moved_partner = aggregated[partner] + diagonal[partner] * (centre - own[partner])
        mixed = share * moved + (1 - share) * moved_partner + bias
        if layer == model.n_layers - 1:
            break
        everywhere = F.dropout(F.relu(product + bias), model.dropout, model.training)
        hidden = everywhere[place]
        mixed = F.dropout(F.relu(mixed), model.dropout, model.training)
    assert mixed is not None
    return mixed


def _times(x: Tensor | Csr, weight: Tensor) -> Tensor:
    return propagate(x, weight) if isinstance(x, Csr) else x @ weight


def _rows(x: Tensor | Csr, rows: Tensor) -> Tensor | Csr:
    return x.select_rows(rows) if isinstance(x, Csr) else x[rows]


def _places(field: ReceptiveField, layer: int) -> Tensor:
    """Returns where the labelled nodes stand among the rows of a layer; earlier layers' rows ascend."""
    if layer == field.n_layers - 1:
        return torch.arange(field.nodes.numel(), device=field.nodes.device)
    return torch.searchsorted(field.rows[layer], field.nodes)


def _diagonal(field: ReceptiveField) -> Tensor:
    """Returns a_ii of the labelled nodes, [m], from the last block."""
    block = field.blocks[-1]
    is_own = field.rows[-2][block.indices.long()] == field.nodes[block.rows()]
    return block.values.new_zeros(block.n_rows).index_add(0, block.rows()[is_own], block.values[is_own])
