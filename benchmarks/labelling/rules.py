"""Rules that say which nodes are labelled next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from calirare.models import HopColumns
from calirare.run import Outcome

MOST = 1000  # nodes that the peer looks at
Rule = Callable[[Outcome, np.ndarray, int, np.random.Generator], np.ndarray]


def value(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Ours: expected fall of the total expected error, in closed form."""
    return outcome.next_labels(k, torch.from_numpy(pool)).nodes


def uncertainty(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """P(rare) nearest to a half."""
    p = _p(outcome, pool)
    return pool[np.argsort(np.abs(p - 0.5), kind="stable")[:k]]


def likeliest(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """The highest P(rare): what an analyst who works through the queue labels anyway."""
    return pool[np.argsort(-_p(outcome, pool), kind="stable")[:k]]


def random(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Drawn at random."""
    return rng.permutation(pool)[:k]


def density(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Uncertainty times mean cosine similarity to the other nodes (information density, Settles and Craven 2008)."""
    rows = torch.nn.functional.normalize(_columns(outcome)[torch.from_numpy(pool)], dim=1)
    alike = (rows @ rows.mean(0)).numpy()
    p = _p(outcome, pool)
    return pool[np.argsort(-np.minimum(p, 1 - p) * (1 + alike), kind="stable")[:k]]


def mcpal(outcome: Outcome, pool: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Multi-class probabilistic active learning by a Parzen window (Kottke et al. 2021), of scikit-activeml.

    On the columns that trees read, standardised; of more than 1,000 nodes as many at random. Our detector is trained on
    what it asks for.
    """
    from skactiveml.classifier import ParzenWindowClassifier
    from skactiveml.pool import ProbabilisticAL

    some = rng.permutation(pool)[:MOST]
    x = _columns(outcome).numpy()
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    y = np.full(len(x), np.nan)
    y[outcome.fit.nodes.numpy()] = outcome.fit.targets.numpy()
    rows = np.concatenate([outcome.fit.nodes.numpy(), some])
    window = ParzenWindowClassifier(classes=[0, 1], metric_dict={"gamma": 1 / x.shape[1]})
    asked = ProbabilisticAL(random_state=int(rng.integers(2**31))).query(
        x[rows], y[rows], clf=window, candidates=np.arange(len(rows) - len(some), len(rows)), batch_size=k
    )
    return rows[asked]


def _columns(outcome: Outcome) -> torch.Tensor:
    """Returns own columns, neighbours' means and degree of every node, [n, d]."""
    x = HopColumns.fit(outcome.mapped).of(outcome.mapped).x
    assert isinstance(x, torch.Tensor)
    return x.double()


def _p(outcome: Outcome, pool: np.ndarray) -> np.ndarray:
    return outcome.probabilities("population")[:, 1].numpy()[pool]


RULES: dict[str, Rule] = {
    "value": value,
    "uncertainty": uncertainty,
    "density": density,
    "scikit-activeml McPAL": mcpal,
    "likeliest": likeliest,
    "random": random,
}
