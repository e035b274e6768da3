"""Other 128 columns of FaceBook's words: how much the paper's FaceBook rows depend on columns that we do not have.

The paper read PyG's 128 columns through PyG's `NormalizeFeatures`. Neither our data nor this module has those columns;
what is here answers one question: what do other columns of the same words do to a row?
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import lru_cache

import numpy as np
import torch

from calirare.datasets import load_dataset
from calirare.graph import Graph
from calirare_ext import Csr

NAME = "facebook_nmf"
INSTEAD_OF = "facebook"  # the data set whose rows of the paper it is compared with
N_COLUMNS = 128
STEPS = 60


def with_other_columns(graph: Graph) -> Graph:
    """Returns `facebook_bag` with its words reduced to 128 columns, scaled as the authors' code scales features.

    The columns are non-negative factors of the word matrix (Frobenius norm, 60 steps from a non-negative singular value
    decomposition), with mean 0 and standard deviation 1 over all nodes; then `NormalizeFeatures`: the smallest entry of
    the matrix is taken off and each row is divided by its sum.

    Args:
        graph: with words as sparse features.

    Returns:
        The graph with float32 features [n, 128].
    """
    return dataclasses.replace(graph, x=_columns(), name=NAME, feature_normalisation="none")


@lru_cache(maxsize=1)
def _columns() -> torch.Tensor:
    """Returns the scaled columns of every node: a minute's work, done once in a process."""
    import scipy.sparse
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    words = load_dataset("facebook_bag").x
    assert isinstance(words, Csr)
    parts = (part.cpu().numpy() for part in (words.values, words.indices, words.indptr))
    matrix = scipy.sparse.csr_matrix(tuple(parts), shape=words.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        factors = NMF(N_COLUMNS, init="nndsvda", max_iter=STEPS, random_state=0).fit_transform(matrix)
    spread = factors.std(0)
    columns = (factors - factors.mean(0)) / np.where(spread > 0, spread, 1)
    return normalised(torch.from_numpy(columns)).float()


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Returns what PyG's `NormalizeFeatures` makes of features [n, d]: (x - min x) / max(1, its row's sum)."""
    x = x - x.min()
    return x / x.sum(1, keepdim=True).clamp(min=1)
