"""The detectors we are compared with, every one a classifier of scikit-learn's kind on rows of a table."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from detection.columns import Tables, scipy_of
from detection.networks import NetworkClassifier
from detection.tasks import Draw

CALIBRATED = ", calibrated"  # behind a peer's name: by scikit-learn's CalibratedClassifierCV on the same labels
FOLDS = 5


@dataclass(frozen=True)
class Peer:
    """A detector: the table it reads and how it is made; `needs`: a package it cannot do without.

    `by_node`: its rows are not columns but places, [0 for the graph that trains or 1 for the scored one, node].
    """

    table: str
    make: Callable[[Tables, Draw], Any]
    needs: str | None = None
    by_node: bool = False


class Balanced(ClassifierMixin, BaseEstimator):
    """A classifier whose rare rows weigh as much as the others together, as GADBench weighs them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, rows: np.ndarray, y: np.ndarray) -> Balanced:
        self.classes_ = np.unique(y)
        self.inner.fit(rows, y, sample_weight=np.where(y == 1, (y == 0).sum() / (y == 1).sum(), 1.0))
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return self.inner.predict_proba(rows)


class Graphspot(ClassifierMixin, BaseEstimator):
    """A detector of graphspot, which makes its own columns: mean, maximum and spread over neighbours, twice."""

    def __init__(self, kind: str, tables: Tables, seed: int) -> None:
        self.kind, self.tables, self.seed = kind, tables, seed

    def __sklearn_clone__(self) -> Graphspot:
        return Graphspot(self.kind, self.tables, self.seed)

    def fit(self, rows: np.ndarray, y: np.ndarray) -> Graphspot:
        import graphspot
        from graphspot import detectors

        task = self.tables.task
        graphs = [task.graph] if task.later is None else [task.graph, task.later]
        pairs = zip(graphs, self.tables.get("graphspot"), strict=False)
        given = [graphspot.Graph(adj=scipy_of(graph.adjacency), x=x) for graph, x in pairs]
        labels = np.full(task.graph.n_nodes, -1)
        labels[rows[:, 1]] = y
        self.classes_ = np.unique(y)
        detector = getattr(detectors, self.kind)(random_state=self.seed, params={"n_jobs": 1}).fit(given[0], y=labels)
        self.scores_ = [detector.decision_function(graph) for graph in given]
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        p = np.array([self.scores_[min(graph, len(self.scores_) - 1)][node] for graph, node in rows])
        return np.column_stack([1 - p, p])


def xgboost(tables: Tables, draw: Draw) -> Any:
    """Returns XGBoost's defaults; GADBench's own learning rate of .01 goes by a name that XGBoost ignores."""
    from xgboost import XGBClassifier

    return Balanced(XGBClassifier(tree_method="hist", n_jobs=1, random_state=draw.seed))


def network(kind: str) -> Peer:
    return Peer("network", lambda tables, draw: NetworkClassifier(kind, tables, draw), "torch_geometric", by_node=True)


def graphspot(kind: str) -> Peer:
    return Peer("graphspot", lambda tables, draw: Graphspot(kind, tables, draw.seed), "graphspot", by_node=True)


PEERS = {
    "boosting": Peer(
        "hops", lambda t, draw: HistGradientBoostingClassifier(early_stopping=False, random_state=draw.seed)
    ),
    "extra trees": Peer("hops", lambda t, draw: ExtraTreesClassifier(300, n_jobs=1, random_state=draw.seed)),
    "logistic": Peer("ranked hops", lambda t, draw: LogisticRegression(max_iter=2000)),
    "perceptron": Peer("ranked hops", lambda t, draw: MLPClassifier((64,), random_state=draw.seed)),
    "XGBGraph": Peer("gadbench", xgboost, "xgboost"),
    "RFGraph": Peer(
        "gadbench", lambda t, draw: Balanced(RandomForestClassifier(100, n_jobs=1, random_state=draw.seed))
    ),
    "graphspot XGBGraph": graphspot("XGBGraph"),
    "graphspot RFGraph": graphspot("RFGraph"),
    "GCN": network("GCN"),
    "SAGE": network("SAGE"),
    "GAT": network("GAT"),
}


def missing(name: str) -> str | None:
    """Returns the package that a peer needs and that is not installed."""
    needs = PEERS[name.removesuffix(CALIBRATED)].needs
    return needs if needs is not None and importlib.util.find_spec(needs) is None else None


def score(name: str, tables: Tables, draw: Draw) -> np.ndarray:
    """Returns a peer's P(rare) of the test nodes, float64."""
    peer = PEERS[name.removesuffix(CALIBRATED)]
    estimator = peer.make(tables, draw)
    if name.endswith(CALIBRATED):
        estimator = CalibratedClassifierCV(estimator, method="sigmoid", cv=FOLDS)
    train, test = draw.labelled, draw.test
    if peer.by_node:
        rows = [np.column_stack([np.full_like(nodes, k), nodes]) for k, nodes in enumerate((train, test))]
    else:
        first, scored = tables.get(peer.table)
        rows = [first[train], scored[test]]
    with warnings.catch_warnings():  # a perceptron's 200 epochs may end before it has converged
        warnings.filterwarnings("ignore", message="Stochastic Optimizer")
        estimator.fit(rows[0], draw.y[train])
    return np.asarray(estimator.predict_proba(rows[1])[:, 1], dtype=np.float64)
