"""The peers: confident learning on cross-validated probabilities of scikit-learn, as cleanlab does it by default."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from calirare.audit import confident_joint

FOLDS = 5
PEERS: dict[str, Callable[[], ClassifierMixin]] = {
    "confident learning, logistic regression": lambda: LogisticRegression(max_iter=2000),
    "confident learning, boosting": lambda: HistGradientBoostingClassifier(random_state=0),
}


def probabilities(name: str, columns: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns P of each class of labelled nodes by models without their fold, [m, 2]."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    return cross_val_predict(PEERS[name](), columns, given, cv=folds, method="predict_proba")


def margin(p: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns how much likelier the other class is than the given one, [m]: what issues are ranked by."""
    own = p[np.arange(len(given)), given]
    return 1 - 2 * own


def pruned(p: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns which labels are issues, bool [m]: of each class as many as are counted wrong, the largest margins."""
    joint = confident_joint(torch.from_numpy(p), torch.from_numpy(given)).numpy()
    out = np.zeros(len(given), dtype=bool)
    for c in (0, 1):
        mine = np.flatnonzero(given == c)
        number = round(joint[c, 1 - c])
        out[mine[np.argsort(-margin(p, given)[mine], kind="stable")[:number]]] = True
    return out
