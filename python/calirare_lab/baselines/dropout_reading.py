"""Probabilities read with dropout on, as the authors' published code reads them: what that does to a table."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph, normalize_features
from calirare.models import GCN, ModuleFit
from calirare_ext import Csr, gcn_norm, propagate

SHARE = 0.5  # dropped, of the features and of the hidden units (Kipf & Welling 2017)


@torch.no_grad()
def dropout_probabilities(model: GCN, graph: Graph, seed: int) -> Tensor:
    """Returns every node's probabilities from one draw of dropout on features and hidden units.

    Args:
        model: a trained network; nothing in it is changed.
        graph: the graph.
        seed: of the draw.

    Returns:
        Probabilities [n, k].
    """
    generator = torch.Generator().manual_seed(seed)
    a, x = gcn_norm(graph.adjacency), normalize_features(graph).x
    if isinstance(x, Csr):
        hidden: Tensor | Csr = Csr(x.indptr, x.indices, _dropped(x.values, generator), x.n_cols)
    else:
        hidden = _dropped(x, generator)
    for level, (weight, bias) in enumerate(model.layers()):
        if level:
            assert isinstance(hidden, Tensor)
            hidden = _dropped(F.relu(hidden), generator)
        product = propagate(hidden, weight) if isinstance(hidden, Csr) else hidden @ weight
        hidden = propagate(a, product) + bias
    assert isinstance(hidden, Tensor)
    return torch.softmax(hidden, 1)


@torch.no_grad()
def dropout_probabilities_of_module(trained: ModuleFit, seed: int) -> Tensor:
    """Returns every node's probabilities from one draw of a module's own dropout.

    Args:
        trained: the network; it is left in evaluation mode.
        seed: of the draw.

    Returns:
        Probabilities [n, k].
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trained.model.train()
        try:
            return torch.softmax(trained.model(*trained.inputs), 1)
        finally:
            trained.model.eval()


def _dropped(x: Tensor, generator: torch.Generator) -> Tensor:
    return x * (torch.rand(x.shape, generator=generator) >= SHARE) / (1 - SHARE)
