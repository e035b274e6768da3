"""What tells one graph from another: a checksum that a saved run and half-finished blocks are known by."""

from __future__ import annotations

from zlib import crc32

from calirare._util.array_files import checksum
from calirare.graph.columns import columns_to_text
from calirare.graph.graph import Graph
from calirare_ext import Csr


def same_but_labels(graph: Graph, other: str) -> bool:
    """Returns whether a graph has the edges and features, and so the nodes, of one whose `fingerprint` is known."""
    place = 6 if isinstance(graph.x, Csr) else 4  # of the labels' checksum, after those of edges and features
    own, parts = fingerprint(graph).split("-"), other.split("-")
    if graph.y is not None:
        del own[place]
    return own == parts[:place] + parts[place + 1 :]


def fingerprint(graph: Graph) -> str:
    """Returns a checksum of everything a training reads of a graph: edges, features and what they mean, labels."""
    matrices = [graph.adjacency] + ([graph.x] if isinstance(graph.x, Csr) else [])
    parts = [part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.values)]
    parts += [] if isinstance(graph.x, Csr) else [graph.x]
    parts += [] if graph.y is None else [graph.y]
    parts += [part for each in graph.relations for part in (each.out.indptr, each.out.indices, each.out.values)]
    sums = [checksum(part) for part in parts]
    if graph.columns:
        sums.append(crc32(columns_to_text(graph.columns).encode()))
    return "-".join(f"{each:08x}" for each in sums)
