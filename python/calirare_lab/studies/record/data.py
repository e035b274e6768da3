"""The graphs of the record, with features as each protocol takes them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from calirare._util.errors import InputError
from calirare.datasets import read_graph
from calirare.features import FeatureMap
from calirare.graph import Graph
from calirare_ext import Csr
from calirare_lab.published import data_root
from calirare_lab.studies.record.protocol import Protocol

FILES = {"computers": "amazon_computers.npz"}  # of the data; other names are known to the library


def load(protocol: Protocol, dataset: str, seed: int) -> Graph:
    """Returns a data set with features as the protocol maps them and the split of a draw; InputError as of `raw`."""
    graph = raw(protocol, dataset, seed)
    assert graph.split is not None
    scale = protocol.scales.get(dataset, "row")
    return FeatureMap.fit(graph, scale, nodes=graph.split.train).own(graph)  # type: ignore[arg-type]


def raw(protocol: Protocol, dataset: str, seed: int) -> Graph:
    """Returns a data set with the split of a draw, its features as they are.

    Raises:
        InputError: the data set is unknown or not there.
    """
    if dataset not in protocol.datasets:
        known = ", ".join(protocol.datasets)
        raise InputError(f"study {protocol.name}: datasets must be among {known}, got {dataset!r}")
    graph, _ = read_graph(str(data_root() / FILES[dataset]) if dataset in FILES else dataset)
    if dataset in protocol.largest:
        graph = largest_component(graph)
    assert graph.y is not None
    return graph.with_split(protocol.split(graph.y, protocol.draw(seed)))


def largest_component(graph: Graph) -> Graph:
    """Returns the graph of the nodes in the largest connected component."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    a = graph.adjacency
    arrays = (a.values.numpy(), a.indices.numpy(), a.indptr.numpy())
    _, part = connected_components(csr_matrix(arrays, shape=a.shape), directed=False)
    kept = torch.from_numpy(np.flatnonzero(part == np.bincount(part).argmax()))
    place = torch.full((graph.n_nodes,), -1, dtype=torch.int64)
    place[kept] = torch.arange(kept.numel())
    rows = a.select_rows(kept)
    inside = Csr.from_coo(rows.rows(), place[rows.indices.long()], rows.values, (kept.numel(), kept.numel()))
    x = graph.x.select_rows(kept) if isinstance(graph.x, Csr) else graph.x[kept]
    assert graph.y is not None
    return dataclasses.replace(graph, adjacency=inside, x=x, y=graph.y[kept], split=None)
