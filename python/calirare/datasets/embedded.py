"""The embedded data set: a nearest-neighbour graph of scikit-learn's handwritten digits, one digit the rare class.

Real data with real overlap, and no download: 1,797 images of 8 x 8 pixels with 0 to 16 ink each. Digit 8 is the rare
class (174 images, 9.68 %), because of all ten it has the most neighbours of other classes: with k = 10, 11 % of the
edges at an 8 lead to another digit, and a GCN is least sure about it.
"""

from __future__ import annotations

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Graph

NEIGHBOURS = 10
MAX_INK = 16


def digits(k: int = NEIGHBOURS) -> Graph:
    """Returns the k-nearest-neighbour graph of the digits with all ten classes.

    Two images are joined where either is among the k nearest of the other; all weights are 1. Distances are whole
    numbers and ties go to the image that comes first, so the graph is the same everywhere. Features are the 64
    pixels divided by 16.

    Args:
        k: neighbours per image, from 1 to 1,796.

    Returns:
        The graph, without a split; `rare(8)` makes it the rare-class task.

    Raises:
        InputError: `k` is out of range.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    edges = nearest_neighbours(pixels.astype(np.int64), k)
    x = (pixels / MAX_INK).astype(np.float32)
    return Graph.from_edges(edges, x, labels, name="digits", symmetrize=True)


def nearest_neighbours(points: NumpyArray, k: int) -> NumpyArray:
    """Returns the edges int64 [n * k, 2] from points int64 [n, d] to their k nearest, ties to the lower number."""
    n = len(points)
    if not 1 <= k < n:
        raise InputError(f"nearest_neighbours: k must be from 1 to {n - 1}, one less than the nodes, got {k}")
    square = (points**2).sum(1)
    # Whole numbers below 2^53 multiply exactly in float64, and many times faster than as integers.
    product = (points.astype(np.float64) @ points.T.astype(np.float64)).astype(np.int64)
    distance = square[:, None] + square[None, :] - 2 * product
    np.fill_diagonal(distance, int(distance.max()) + 1)
    # Distance first, then the number of the point: no two keys of a row are equal.
    key = distance * n + np.arange(n)
    nearest = np.sort(np.argpartition(key, k - 1, axis=1)[:, :k], axis=1)
    return np.stack([np.repeat(np.arange(n), k), nearest.ravel()], axis=1)
