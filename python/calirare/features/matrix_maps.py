"""What features become as one matrix: words above all, whose rows belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.features.raw_table import Stored
from calirare.graph import Graph, csr_of_scipy, normalize_features, scipy_of_csr
from calirare_ext import Csr

DIRECTIONS = 128  # of a singular value decomposition
SIZE = "log number of features"  # the column of how many features of a node are not 0


@dataclass(frozen=True, eq=False)
class MatrixMap(Stored):
    """What a matrix of features becomes; fitted, it knows no graph.

    Attributes:
        kind: "as is": the features as they are; "row": each row divided by its sum, see `normalize_features`; "tfidf":
            counts times the logarithm of how few nodes have the word, each row of length 1 (scikit-learn's); "svd":
            coordinates along the leading right singular vectors (scikit-learn's TruncatedSVD), of tf-idf where it
            fits, and a last column log(1 + number of non-zero features): rows of length 1 no longer have it, and how
            many words a node has often separates the rare class.
        idf: of each word, float64 [d]; None where features are taken as they are, as some are negative.
        directions: the singular vectors of "svd", float32 [k, d].
    """

    kind: str
    idf: NumpyArray | None = None
    directions: NumpyArray | None = None

    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns the features of a graph, float32 [n, d], dense or sparse."""
        if self.kind == "as is":
            return graph.x
        if self.kind == "row":
            return normalize_features(graph, "row").x
        words = weighted(graph, self.idf)
        if self.directions is None:
            return csr_of_scipy(words.astype(np.float32)).to(graph.device)
        size = np.log1p((_scipy_of(graph) != 0).sum(1))[:, None]
        dense = np.asarray(words @ self.directions.T.astype(np.float64))
        return torch.from_numpy(np.hstack([dense, size]).astype(np.float32)).to(graph.device)

    def names(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the columns it makes of columns with the given names."""
        if self.directions is None:
            return given
        return (*(f"direction {i + 1}" for i in range(len(self.directions))), SIZE)


def weighted(graph: Graph, idf: NumpyArray | None) -> Any:
    """Returns the features as a matrix of scipy, float64, weighted by tf-idf where `idf` is given."""
    import scipy.sparse as sp
    from sklearn.preprocessing import normalize

    words = _scipy_of(graph)
    if idf is None:
        return words
    _check_counts(graph, "tfidf")
    return normalize(words @ sp.diags_array(idf).tocsr(), copy=False)


def fit_tfidf(graph: Graph) -> MatrixMap:
    """Returns the weights of words by how many nodes of a graph have each."""
    from sklearn.feature_extraction.text import TfidfTransformer

    _check_counts(graph, "tfidf")
    return MatrixMap("tfidf", np.asarray(TfidfTransformer().fit(_scipy_of(graph)).idf_, dtype=np.float64))


def fit_svd(graph: Graph, seed: int) -> tuple[MatrixMap, float]:
    """Returns at most `DIRECTIONS` directions, and the proportion of the variance they keep."""
    from sklearn.decomposition import TruncatedSVD

    if graph.n_features <= DIRECTIONS:
        raise InputError(
            f"features: svd needs more than {DIRECTIONS} features, but graph {graph.name!r} has {graph.n_features}: "
            "take auto"
        )
    idf = fit_tfidf(graph).idf if least(graph) >= 0 else None
    words = weighted(graph, idf)
    reduced = TruncatedSVD(min(DIRECTIONS, *(size - 1 for size in words.shape)), random_state=seed).fit(words)
    share = float(reduced.explained_variance_ratio_.sum())
    return MatrixMap("svd", idf, np.ascontiguousarray(reduced.components_, dtype=np.float32)), share


def least(graph: Graph) -> float:
    """Returns the least number among the features, 0 at most."""
    values = graph.x.values if isinstance(graph.x, Csr) else graph.x
    return min(0.0, float(values.min())) if values.numel() else 0.0


def _check_counts(graph: Graph, how: str) -> None:
    if least(graph) < 0:
        raise InputError(
            f"features: {how} needs features >= 0, but graph {graph.name!r} has {least(graph):g}: take auto or svd"
        )


def _scipy_of(graph: Graph) -> Any:
    """Returns the features as a sparse matrix of scipy, float64."""
    import scipy.sparse as sp

    x = graph.x
    if not isinstance(x, Csr):
        return sp.csr_array(x.cpu().numpy().astype(np.float64))
    return scipy_of_csr(x.to(torch.float64))
