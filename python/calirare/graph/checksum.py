"""What tells one graph from another: a checksum that a saved run and half-finished blocks are known by."""

from __future__ import annotations

from calirare._util.array_files import checksum
from calirare.graph.graph import Graph
from calirare_ext import Csr


def fingerprint(graph: Graph) -> str:
    """Returns a checksum of everything a training reads of a graph: edges, features and labels."""
    matrices = [graph.adjacency] + ([graph.x] if isinstance(graph.x, Csr) else [])
    parts = [part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.values)]
    parts += [] if isinstance(graph.x, Csr) else [graph.x]
    parts += [] if graph.y is None else [graph.y]
    return "-".join(f"{checksum(part):08x}" for part in parts)
