"""A scikit-learn classifier of a graph's nodes or a table's rows, for cross-validation, grid searches, pipelines."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from calirare._util.array_files import NumpyArray as Array
from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.calibration import Target
from calirare.datasets import Task
from calirare.graph import Graph, Split, check_graph
from calirare.graph.arrays import as_array, as_features, numbers_of
from calirare.leave_one_out import LeaveOneOutMethod, LogitMap
from calirare.run import Scorer, Settings, ignored_settings, train
from calirare_ext import Csr

LEFT_OUT = ("model", "hops", "scale", "prevalence")  # settings that None leaves to the rest


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """`calirare.train` as a scikit-learn classifier, calibrated on out-of-fold predictions of its labels.

    **With a graph** X holds node numbers, [n] or [n, 1], and y their labels; labels the graph itself has are never
    read. It is transductive: features and edges of all nodes are seen in every fit, also those of nodes held out by a
    cross-validation, whose labels are not. Scores so measured hold for further nodes of this graph. A prediction at a
    node of `fit` has seen its label: judge by held-out nodes (`cross_val_predict`). A node can be given only once, and
    only target nodes (`Graph.scored`), no auxiliary ones.

    **Without a graph** X is a table of features, dense or sparse, [n, d], and every row a node without edges, so that
    trees and perceptrons are what is left of the detectors, with the same calibration; rows that were never seen are
    predicted. NaN is a missing value, and columns are scaled by what they hold, see `--scale`.

    All labels of `fit` train and calibrate; they are taken for a random sample of the population. Where they are none
    (as many of each class), only the target "balanced" means what it says.

    Args:
        graph: with features; None: X is a table.
        preset: "default", or "paper": the graph convolution of the paper on features as they are, calibrated as there.
        model: the detector, as `--model` names it; None: that of the preset, "auto" or "gcn".
        calibrate_for: what `predict_proba` is calibrated for: "population" (the true base rate, as log loss and Brier
            score assume; also the default of `calirare.train`) or "balanced" (equal class sizes).
        epochs: gradient steps, or "auto": by leave-one-out loss.
        hidden: width of the hidden layers, or "auto".
        n_layers: number of layers.
        dropout: of the hidden units, in [0, 1).
        learning_rate: of Adam.
        weight_decay: penalty mu / 2 |theta|^2.
        hops: how often features are propagated before the first weights; None: as
            the detector has it.
        loo: how labels are left out: a method such as `ALO(damping=0.01)`, or its name.
        folds: of the cross-validation inside `fit` that checks and damps the leave-one-out logits, as many trainings
            more. 0: none; the order of two classes' probabilities is the same, their calibration can be far worse.
        scale: how columns of features are scaled, as `--scale` has it; None: as the preset has it.
        prevalence: share in the population of that one of two classes which has fewer labels (of equally many the last
            of `classes_`), in (0, 1), where the labels are no random sample of it; None: as the labels have it. With a
            graph its nodes are the population; of a table log-odds are shifted from the labels' share to this one.
        device: "auto", "cpu" or "cuda".
        random_state: an int is `calirare.train`'s seed; else as everywhere in scikit-learn.

    Attributes:
        classes_: the labels, sorted.
        outcome_: the run: notes, intervals, errors; of two classes its class 1 is the rarer one.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X is a DataFrame.

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import cross_val_score
        >>> from calirare import load_dataset
        >>> graph = load_dataset("digits")
        >>> nodes = np.arange(0, graph.n_nodes, 6)
        >>> classifier = GraphClassifier(graph)
        >>> scores = cross_val_score(classifier, nodes, graph.y[nodes].numpy(), cv=3, scoring="average_precision")
        >>> bool(scores.mean() > 0.9)
        True
    """

    def __init__(
        self,
        graph: Graph | None = None,
        *,
        preset: Literal["default", "paper"] = "default",
        model: str | None = None,
        calibrate_for: Target = "population",
        epochs: int | Literal["auto"] = "auto",
        hidden: int | Literal["auto"] = "auto",
        n_layers: int = 2,
        dropout: float = 0.5,
        learning_rate: float = 0.01,
        weight_decay: float = 5e-4,
        hops: int | None = None,
        loo: LeaveOneOutMethod | str = "alo",
        folds: int = 5,
        scale: str | None = None,
        prevalence: float | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.graph = graph
        self.preset = preset
        self.model = model
        self.calibrate_for = calibrate_for
        self.epochs = epochs
        self.hidden = hidden
        self.n_layers = n_layers
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.hops = hops
        self.loo = loo
        self.folds = folds
        self.scale = scale
        self.prevalence = prevalence
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Trains and calibrates.

        Args:
            X: node numbers [n] or [n, 1], no two alike; without a graph features [n, d], float, int or sparse.
            y: labels of any kind, [n], two classes or more.

        Returns:
            The classifier itself.

        Raises:
            InputError: X or y cannot be used, or a setting is out of range.
        """
        X, y = self._checked(X, y=y, reset=True)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"GraphClassifier: y must have two classes or more, got 1 class, {classes[0]}")
        counts = np.bincount(codes)
        backwards = len(counts) == 2 and counts[0] < counts[1]
        order = [1, 0] if backwards else list(range(len(counts)))
        if self.prevalence is not None and len(counts) > 2:
            raise InputError(f"GraphClassifier: prevalence is of one of two classes, y has {len(counts)}: leave it out")
        graph, nodes = self._nodes_of(X)
        if len(np.unique(nodes)) < len(nodes):
            raise InputError("GraphClassifier: X must name a node once, got one twice: resample without replacement")
        labels = torch.full((graph.n_nodes,), -1)
        labels[nodes] = torch.tensor(order)[torch.from_numpy(codes)]
        none = nodes[:0]
        graph = replace(
            graph,
            y=labels,
            original_y=None,
            split=Split(nodes, none, none, "fit"),
            class_names=tuple(str(label) for label in classes[order]),
            original_class_names=(),
            minority=None,
            posterior=None,
            trusted=True,
        )
        settings = self._settings("classes" if len(counts) > 2 else "rare")
        for note in ignored_settings(settings):
            warnings.warn(f"GraphClassifier: {note}", UserWarning, stacklevel=2)
        self.outcome_ = train(graph, settings)
        self.classes_, self._order = classes, order
        self._shift = 0.0 if self.graph is not None else self._prior_shift(int(counts.min()), len(codes))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Returns calibrated probabilities for the target, float64 [n, k], columns as `classes_`; X as in `fit`."""
        return torch.softmax(self._logits(X), 1).numpy()

    def predict(self, X: Any) -> Array:
        """Returns the most probable class of each node or row, [n]; X as in `fit`."""
        best = self._logits(X).argmax(1).numpy()
        return self.classes_[best]

    def decision_function(self, X: Any) -> Array:
        """Returns calibrated log-odds of `classes_[1]`, float64 [n], or with more classes logits [n, k]."""
        logits = self._logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = self.graph is None
        return tags

    @plain_torch()
    def _logits(self, X: Any) -> Tensor:
        """Returns calibrated logits, float64 [n, k] on the CPU, columns as `classes_`."""
        check_is_fitted(self, "outcome_")
        outcome, calibrator = self.outcome_, self.outcome_.calibrator
        graph, nodes = self._nodes_of(self._checked(X, reset=False))
        if self.graph is None:  # in float64, where a row's prediction does not depend on the rows beside it
            scorer, fitted = Scorer.of(outcome), outcome.fit
            if isinstance(graph.x, Csr) and isinstance(outcome.graph.x, Tensor):  # as `fit` had them
                graph = replace(graph, x=graph.x.to_dense(), trusted=True)
            if fitted.closed_form is not None:
                fitted = fitted.closed_form.as_dtype(scorer.prepared(outcome.graph, lambda note: None), torch.float64)
            logits = fitted.logits_of(scorer.prepared(graph, lambda note: None))
        else:
            logits = outcome.logits[nodes]
        z = cast(LogitMap, calibrator).calibrated_logits(logits.double())
        z[:, 1] += self._shift
        return z[:, self._order]

    def _prior_shift(self, rare: int, n: int) -> float:
        """Returns what the log-odds of a table's rarer class are raised by, as of `n` rows `rare` are of it."""
        if self.prevalence is None or self.calibrate_for != "population":
            return 0.0
        return math.log(self.prevalence / (1 - self.prevalence)) - math.log(rare / (n - rare))

    def _checked(self, X: Any, **options: Any) -> Any:
        """Returns X as an array [n, d], and y where it is given; options as of `validate_data`."""
        if isinstance(X, Tensor):  # of any device and precision, with a gradient too
            X = as_array(X, "X", "GraphClassifier")
        if isinstance(options.get("y"), Tensor):
            options["y"] = as_array(options["y"], "y", "GraphClassifier")
        if self.graph is not None and (flat := np.asarray(X)).ndim == 1:
            if any(isinstance(node, str) for node in flat[:1]):
                raise InputError(
                    f"GraphClassifier: X must hold node numbers, got the name {str(flat[0])!r}: take the place of each "
                    "name in graph.node_names"
                )
            X = flat[:, None]
        if self.graph is None:
            options |= {"accept_sparse": "csr", "ensure_all_finite": "allow-nan"}
        return validate_data(self, X, **options)

    def _nodes_of(self, X: Any) -> tuple[Graph, Tensor]:
        """Returns the graph and the nodes, int64 [n], that checked X means."""
        if self.graph is None:
            n = X.shape[0]
            names = tuple(getattr(self, "feature_names_in_", ()))
            x = as_features(numbers_of(X, text=True), "GraphClassifier")
            return Graph(Csr.zeros(n), x, name="table", feature_names=names), torch.arange(n)
        check_graph("GraphClassifier", self.graph)
        n = self.graph.n_nodes
        if X.shape[1] != 1 or X.dtype.kind not in "iuf":
            raise InputError(
                f"GraphClassifier: X must hold one node number per row, got {X.dtype} of shape {X.shape}: of a mask "
                "take np.flatnonzero; features belong to the graph (with graph=None X is a table of features)"
            )
        wrong = (X < 0) | (n <= X) | (np.floor(X) != X)
        if wrong.any():
            raise InputError(f"GraphClassifier: X must hold node numbers from 0 to {n - 1}, got {X[wrong][0]}")
        nodes = torch.from_numpy(X[:, 0].astype(np.int64))
        beside = nodes[:0] if self.graph.scored is None else nodes[~self.graph.scored.cpu()[nodes]]
        if beside.numel():
            name = self.graph.node_name(int(beside[0]))
            raise InputError(
                f"GraphClassifier: X must hold target nodes, but node {name!r} is an auxiliary node: take "
                "numbers of graph.scored_nodes"
            )
        return self.graph, nodes

    def _settings(self, task: Task) -> Settings:
        """Returns what `calirare.train` takes; numpy's numbers, as a grid holds them, become Python's."""
        given = self.get_params(deep=False)
        del given["graph"], given["random_state"]
        given = {name: value for name, value in given.items() if value is not None or name not in LEFT_OUT}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        settings = Settings.of(**plain, seed=int(seed), task=task)
        if self.graph is not None:
            return settings
        return replace(settings, calibration=replace(settings.calibration, prevalence=None))  # see `_prior_shift`
