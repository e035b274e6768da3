"""The peers: cleanlab, as it comes, on five-fold cross-validated models of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

FOLDS = 5
PEERS: dict[str, Callable[[], ClassifierMixin]] = {
    "cleanlab, logistic regression": lambda: LogisticRegression(max_iter=2000),
    "cleanlab, boosting": lambda: HistGradientBoostingClassifier(random_state=0),
}


def issues(name: str, columns: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns how doubtful each of m labels is, [m], and which of them are issues, bool [m]."""
    from cleanlab.classification import CleanLearning

    found = CleanLearning(PEERS[name](), cv_n_folds=FOLDS, seed=0).find_label_issues(columns, given)
    return 1 - found["label_quality"].to_numpy(), found["is_label_issue"].to_numpy()
