"""What tells one graph from another: a checksum that a saved run and half-finished blocks are known by."""

from __future__ import annotations

import zlib

from torch import Tensor

from calirare._util.mapped import release
from calirare.graph.graph import Graph
from calirare_ext import Csr

CHECKED = 1 << 24  # numbers in one step of a checksum


def fingerprint(graph: Graph) -> str:
    """Returns a checksum of everything a training reads of a graph: edges, features and labels."""
    parts = [graph.adjacency.indptr, graph.adjacency.indices, graph.adjacency.values]
    parts += [graph.x.indptr, graph.x.indices, graph.x.values] if isinstance(graph.x, Csr) else [graph.x]
    parts += [] if graph.y is None else [graph.y]
    return "-".join(f"{_checksum(part):08x}" for part in parts)


def _checksum(tensor: Tensor) -> int:
    """Returns the CRC-32 of a tensor's bytes, a part at a time, so that a mapped one need not be in memory at once."""
    value, flat = 0, tensor.detach().reshape(-1)
    for part in flat.split(CHECKED):
        value = zlib.crc32(part.cpu().numpy().data, value)
        release(tensor)
    return value
