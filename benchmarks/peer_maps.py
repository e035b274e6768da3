"""Maps from a network's logit to P(rare) by other hands: one column of logits and labels in, probabilities out."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from calirare.calibration import make_calibrator

SETUPS = ("per-class", "50/25/25", "all-train", "40/20/40", "enriched")
PREVALENCES = (0.01, 0.03, 0.1, 0.3)
RARE = (5, 10, 20, 50, 200)  # labels
BINS, DRAWS, TINY = 15, 40, 1e-15  # of an ECE, of its floor, and the least P of a log loss
Map = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of z, y and scored: P(rare) of the scored


def columns(z: np.ndarray) -> torch.Tensor:
    """Returns the logits [n, 2] of which z is the log-odds of the rare class."""
    return torch.from_numpy(np.stack([np.zeros(len(z)), z], 1))


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are its only column, as scikit-learn's calibrators want one."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Scores:
        self.classes_ = np.array([0, 1])
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (X[:, 0] > 0).astype(int)


def scikit_learn(method: str) -> Map:
    def apply(z: np.ndarray, y: np.ndarray, scored: np.ndarray) -> np.ndarray:
        if np.bincount(y, minlength=2).min() < 2:  # its two folds need two of each class
            return np.full(len(scored), y.mean())
        column = Scores().fit(z[:, None], y)
        fitted = CalibratedClassifierCV(FrozenEstimator(column), method=method, ensemble=False, cv=2)
        return fitted.fit(z[:, None], y).predict_proba(scored[:, None])[:, 1]

    return apply


def of_package(name: str) -> Map:
    def apply(z: np.ndarray, y: np.ndarray, scored: np.ndarray) -> np.ndarray:
        return make_calibrator(name, "population").fit(columns(z), torch.from_numpy(y)).transform(scored)

    return apply


def venn_abers(z: np.ndarray, y: np.ndarray, scored: np.ndarray) -> np.ndarray:
    from venn_abers import VennAbers

    both = [np.stack([1 - expit(at), expit(at)], 1) for at in (z, scored)]
    va = VennAbers()
    va.fit(both[0], y)
    return va.predict_proba(both[1])[0][:, 1]


def peers() -> dict[str, Map]:
    """Returns the maps, Venn-Abers where it is installed."""
    out: dict[str, Map] = {
        "raw": lambda z, y, scored: expit(scored),
        "temperature": of_package("temperature"),
        "platt": of_package("platt"),
        "sklearn sigmoid": scikit_learn("sigmoid"),
        "sklearn isotonic": scikit_learn("isotonic"),
    }
    try:
        import venn_abers as _  # noqa: F401
    except ImportError:
        return out
    return out | {"venn-abers": venn_abers}


def mapped(z: np.ndarray, y: np.ndarray, scored: np.ndarray) -> dict[str, np.ndarray]:
    """Returns P(rare) of the scored nodes by each peer."""
    if len(set(y.tolist())) < 2:  # of one class alone no peer makes a map
        return dict.fromkeys(peers(), np.full(len(scored), (y.sum() + 0.5) / (len(y) + 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: apply(z, y, scored) for name, apply in peers().items()}


def binned_error(p: np.ndarray, y: np.ndarray, bins: int) -> np.ndarray:
    """Returns the ECE of bins of equal numbers for labels [.., n] of the same probabilities; a rest is cut."""
    n = len(p) // bins * bins
    order = np.argsort(p, kind="stable")[:n]
    gaps = (y[..., order] - p[order]).reshape(*y.shape[:-1], bins, -1).mean(-1)
    return np.abs(gaps).mean(-1)
