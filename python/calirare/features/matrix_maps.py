"""What features become as one matrix: words above all, whose rows belong together."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Graph, csr_of_scipy, normalize_features
from calirare_ext import Csr

DIRECTIONS = 128  # of a singular value decomposition
SIZE = "log number of features"  # the column of how many features of a node are not 0


@dataclass(frozen=True, eq=False)
class MatrixMap(ABC):
    """What a matrix of features becomes; fitted, it knows no graph."""

    kind: ClassVar[str]

    @abstractmethod
    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns the features of a graph, float32 [n, d], dense or sparse."""

    def names(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the columns it makes."""
        return given

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the arrays by name, and the kind."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: torch.from_numpy(v) for name, v in values.items() if v is not None}, {"kind": self.kind}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor]) -> Self:
        """Returns the map of a `state`."""
        return cls(**{name: tensor.numpy() for name, tensor in tensors.items()})


@dataclass(frozen=True, eq=False)
class AsIs(MatrixMap):
    """The features as they are."""

    kind: ClassVar[str] = "as is"

    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns the features themselves."""
        return graph.x


@dataclass(frozen=True, eq=False)
class RowSums(MatrixMap):
    """Each row divided by its sum; see `calirare.graph.normalize_features`."""

    kind: ClassVar[str] = "row"

    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns the rows divided."""
        return normalize_features(graph, "row").x


@dataclass(frozen=True, eq=False)
class TfIdf(MatrixMap):
    """Counts times the logarithm of how few nodes have the word, each row of length 1 (scikit-learn's).

    Attributes:
        idf: of each word, float64 [d].
    """

    kind: ClassVar[str] = "tfidf"
    idf: NumpyArray

    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns sparse features."""
        return csr_of_scipy(weighted(graph, self.idf).astype(np.float32)).to(graph.device)


@dataclass(frozen=True, eq=False)
class Svd(MatrixMap):
    """Coordinates along the leading right singular vectors (scikit-learn's TruncatedSVD), of tf-idf where it fits.

    A last column holds log(1 + number of non-zero features), which rows of length 1 no longer have: how many words a
    node has often tells the rare class by itself.

    Attributes:
        directions: the singular vectors, float32 [k, d].
        idf: of each word, float64 [d]; None where features are taken as they are, as some are negative.
    """

    kind: ClassVar[str] = "svd"
    directions: NumpyArray
    idf: NumpyArray | None = None

    def of(self, graph: Graph) -> Tensor | Csr:
        """Returns dense features [n, k]."""
        dense = np.asarray(weighted(graph, self.idf) @ self.directions.T.astype(np.float64))
        size = np.log1p((_scipy_of(graph) != 0).sum(1))[:, None]
        return torch.from_numpy(np.hstack([dense, size]).astype(np.float32)).to(graph.device)

    def names(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Returns names of the directions, and of the size."""
        del given
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


def fit_tfidf(graph: Graph) -> TfIdf:
    """Returns the map by how many nodes of a graph have each word.

    Raises:
        InputError: a feature is negative.
    """
    from sklearn.feature_extraction.text import TfidfTransformer

    _check_counts(graph, "tfidf")
    return TfIdf(np.asarray(TfidfTransformer().fit(_scipy_of(graph)).idf_, dtype=np.float64))


def fit_svd(graph: Graph, seed: int) -> tuple[Svd, float]:
    """Returns the map along at most `DIRECTIONS` directions, and the share of the variance they keep.

    Args:
        graph: with more features than that.
        seed: of the randomised decomposition.

    Raises:
        InputError: there are too few features to reduce.
    """
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
    return Svd(np.ascontiguousarray(reduced.components_, dtype=np.float32), idf), share


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
    parts = (x.values.cpu().numpy().astype(np.float64), x.indices.cpu().numpy(), x.indptr.cpu().numpy())
    return sp.csr_array(parts, shape=x.shape)
