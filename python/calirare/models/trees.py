"""Gradient boosting and forests of randomised trees on columns of nodes, with a held-out logit of each label."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError, check_one_of
from calirare._util.steps import progress
from calirare.graph import Graph
from calirare.models.column_fit import ColumnFit, labelled_rows
from calirare.models.columns import HopColumns
from calirare.models.crossfit import class_weights, fold_of, time_folds
from calirare.models.tree_ensembles import Ensemble, Kind
from calirare.models.tree_growth import (
    LEAST,
    Boosting,
    Grower,
    Labels,
    boost_side_by_side,
    forests,
    settings_of,
    threads,
)

# Of boosting where labels have times: what was strong in the past may not be, so that a tree reads fewer columns.
TIMED = {"learning_rate": 0.05, "feature_fraction": 0.3, "bagging_fraction": 0.8}
NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TreesModel:
    """What trees learned from labelled rows; knows no graph.

    Attributes:
        fold: the fold of each label, in [0, K), int64 [m].
        own_logits: each label's logits by the trees grown without its fold, float64 [m, k]; of two classes the first is
            0 and the second the log-odds.
        all_labels: the trees grown on all labels.
        without: the trees grown without each fold, K of them.
        rounds: rounds of boosting, or trees of a forest, in each of them.
        losses: mean loss of the labels by the trees grown without their fold, after each round of boosting; of a forest
            none.
    """

    fold: NumpyArray
    own_logits: NumpyArray
    all_labels: Ensemble
    without: tuple[Ensemble, ...]
    rounds: int
    losses: tuple[float, ...] = ()

    def logits(self, columns: NumpyArray) -> NumpyArray:
        """Returns the logits of rows by the trees grown on all labels.

        Args:
            columns: float32 [n, d], finite.

        Returns:
            float64 [n, k].

        Raises:
            InputError: a number is not finite.
        """
        check_finite("trees", columns)
        return self.all_labels.logits(columns)

    def logits_without(self, columns: NumpyArray) -> NumpyArray:
        """Returns the logits of rows by the trees grown without each fold, see `logits`; float64 [K, n, k]."""
        check_finite("trees", columns)
        return np.stack([ensemble.logits(columns) for ensemble in self.without])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns tensors and plain values from which `from_state` makes the model again, to the last bit.

        The trees are LightGBM's text, compressed by zlib: "trees.0" those of all labels, "trees.1" and on those without
        each fold; "values.0" and on are the leaf values of forests. Nothing is pickled.
        """
        ensembles = (self.all_labels, *self.without)
        tensors = {"fold": torch.from_numpy(self.fold.copy()), "own_logits": torch.from_numpy(self.own_logits.copy())}
        tensors["prior"] = torch.from_numpy(np.stack([ensemble.prior for ensemble in ensembles]))
        tensors["weight"] = torch.tensor([ensemble.weight for ensemble in ensembles], dtype=torch.float64)
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        for i, ensemble in enumerate(ensembles):
            packed = zlib.compress(ensemble.text.encode("ascii"))
            tensors[f"trees.{i}"] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
            if ensemble.values is not None:
                tensors[f"values.{i}"] = torch.from_numpy(ensemble.values)
        return tensors, {"kind": self.all_labels.kind, "folds": len(self.without), "rounds": self.rounds}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the model that `state` was taken from.

        Raises:
            InputError: a part is missing or damaged.
        """
        try:
            ensembles = tuple(
                Ensemble(
                    kind=facts["kind"],
                    text=zlib.decompress(tensors[f"trees.{i}"].numpy().tobytes()).decode("ascii"),
                    prior=tensors["prior"][i].numpy(),
                    weight=float(tensors["weight"][i]),
                    values=tensors[f"values.{i}"].numpy() if facts["kind"] == "extra" else None,
                )
                for i in range(int(facts["folds"]) + 1)
            )
            fold, own_logits = tensors["fold"].numpy(), tensors["own_logits"].numpy()
            losses = tuple(tensors["losses"].tolist())
            return cls(fold, own_logits, ensembles[0], ensembles[1:], int(facts["rounds"]), losses)
        except (LookupError, zlib.error, UnicodeDecodeError) as error:
            raise InputError(
                f"TreesModel: the stored trees must be whole, they are damaged ({error}): train again"
            ) from error


@dataclass(frozen=True, eq=False)
class TreesFit(ColumnFit):
    """Trees with the labels they were grown on; attributes as of `ColumnFit`.

    Attributes:
        in_sample: logits of the labelled nodes, float64 [m, k].
        trees: what was learned.
    """

    in_sample: Tensor
    trees: TreesModel

    @property
    def fold(self) -> Tensor:  # type: ignore[override]  # the trees' own
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.fold).to(self.nodes.device)

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.own_logits).to(self.nodes.device)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.in_sample

    def row_logits(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits`."""
        return self.trees.logits(rows)

    def row_logits_without_folds(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits_without_folds`."""
        return self.trees.logits_without(rows)

    def side_by_side(self) -> Self:
        """See `ColumnFit.side_by_side`: the trees were grown in parallel, on a thread each."""
        ensemble = replace(self.trees.all_labels, threads=torch.get_num_threads())
        return replace(self, trees=replace(self.trees, all_labels=ensemble))


@dataclass(frozen=True)
class TreesTraining:
    """How trees are grown: boosting by LightGBM, extra trees by scikit-learn.

    The same settings and labels give the same trees; folds are grown side by side on torch's threads.

    Boosting (Friedman, 2001) minimises the weighted cross-entropy; the number of rounds is the one at which the loss of
    labels held out of their fold's trees is lowest. That number is one for all folds, and all labels chose it; but for
    it and the classes' weights no label's class reaches the logits of its own fold. Extra trees (Geurts et al., 2006)
    split at random thresholds.

    Classes that weigh alike make boosting sure of its few rare labels: their loss is lowest after few rounds, and what
    later ones would find is lost. With labels that weigh alike the logits are those of a world with the labels' own
    class shares, which the maps behind undo.

    Attributes:
        kind: "boosting" or "extra".
        rounds: rounds of boosting at most, or trees of a forest; None: 300 or 100.
        patience: rounds of boosting without a lower held-out loss after which it ends; 0: all `rounds` are grown.
        leaves: of a tree, at most; None: 15 for boosting, 255 for a forest.
        learning_rate: of boosting; None: 0.08, of labels with times 0.05.
        folds: parts of the labels that are held out in turn, as many as there are labels at most.
        seed: of folds and trees.
        hops: how far the columns reach, see `HopColumns`.
        columns: fitted columns to read; None: fitted on the graph.
        labels: what the columns hold of the nodes to be fitted, read before; None: `fit` reads it.

    Raises:
        ValueError: a setting is out of range.
    """

    kind: Kind = "boosting"
    rounds: int | None = None
    patience: int = 20
    leaves: int | None = None
    learning_rate: float | None = None
    folds: int = 5
    seed: int = 0
    hops: int = 2
    columns: HopColumns | None = None
    labels: Labels | None = None

    def __post_init__(self) -> None:
        """Checks ranges."""
        check_one_of("TreesTraining", "kind", self.kind, get_args(Kind))
        for name, low in (("rounds", 1), ("patience", 0), ("leaves", 2), ("folds", 2), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"TreesTraining: {name} must be at least {low}, got {value}")
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise ValueError(f"TreesTraining: learning_rate must be in (0, 1], got {self.learning_rate}")

    def fit(self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None) -> TreesFit:
        """Grows trees on labelled nodes of a graph.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: see `label_weights`.

        Raises:
            ValueError: a node has no label.
        """
        columns, labels = self.read(graph, nodes) if self.labels is None else (self.columns, self.labels)
        assert columns is not None
        assert graph.y is not None
        weights = sample_weights
        if weights is None:
            weights = self.label_weights(graph.y[nodes], graph.n_classes)
        fold = time_folds(graph, nodes, min(self.folds, nodes.numel()), self.seed).cpu().numpy()
        timed = {} if graph.time is None else TIMED | {"min_data_in_leaf": int(np.clip(nodes.numel() // 100, 3, 30))}
        grown = self.grow(labels.weighed(weights.double().cpu().numpy()), fold=fold, **timed)
        in_sample = torch.from_numpy(grown.logits(labels.columns)).to(graph.device)
        return TreesFit(columns, nodes, graph.y[nodes], weights, in_sample, grown)

    def read(self, graph: Graph, nodes: Tensor) -> tuple[HopColumns, Labels]:
        """Returns the columns, and what they hold of labelled nodes: arguments and errors of `fit`."""
        columns, x, y = labelled_rows(graph, nodes, self.columns, self.hops, self.seed)
        return columns, self.labels_of(x.cpu().numpy(), y.cpu().numpy(), graph.n_classes)

    def labels_of(self, columns: NumpyArray, targets: NumpyArray, n_classes: int) -> Labels:
        """Returns what trees are grown on, weighted as `label_weights` has it, for one or several `grow`.

        Args:
            columns: of the labelled rows, float32 [m, d]; d >= 1, m >= 2.
            targets: their classes, int64 [m], in [0, n_classes); a class may be absent.
            n_classes: k >= 2.

        Raises:
            InputError: a number is not finite.
        """
        check_finite("trees", columns)
        weights = self.label_weights(torch.from_numpy(targets), n_classes).numpy()
        return Labels(columns, targets, weights, n_classes)

    def grow(self, labels: Labels, *, fold: NumpyArray | None = None, **settings: Any) -> TreesModel:
        """Grows trees on all labels and without each fold of them.

        Args:
            labels: what they are grown on.
            fold: the fold of each label, int64 [m], 0 to K - 1, none empty; None: `training.fold_of` draws it.
            **settings: LightGBM's, of boosting, in place of our own.

        Returns:
            The trees, and each label's logits by those grown without its fold.

        Raises:
            InputError: there are too few labels.

        Cost: K + 1 ensembles. 3,600 labels with 220 columns take seconds of processor time.
        """
        targets, n_classes = labels.targets, labels.n_classes
        if fold is None:
            fold = fold_of(torch.from_numpy(targets), min(self.folds, targets.size), self.seed).numpy()
        given = {"num_leaves": self._leaves, "seed": self.seed, "num_threads": 1, "learning_rate": 0.08} | settings
        given |= {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        grower = Grower(labels, settings_of(targets.size, n_classes, **given))
        kept = [np.arange(targets.size), *(np.flatnonzero(fold != f) for f in range(int(fold.max()) + 1))]
        held = [np.flatnonzero(fold == f) for f in range(len(kept) - 1)]
        if min(map(len, kept)) < LEAST:
            raise InputError(
                f"trees: without any fold at least {LEAST} labels must be left to learn from, got {targets.size} "
                f"labels in {len(held)} folds: label more nodes"
            )
        growers = grower.of_parts(kept)
        with threads() as pool:
            if self.kind == "boosting":
                ensembles, losses = self._boost(growers, kept, held, pool)
            else:
                ensembles, losses = forests(growers, kept, self._most, self._leaves, self.seed, pool), ()
        own = np.empty((targets.size, n_classes))
        for rows, ensemble in zip(held, ensembles[1:], strict=True):
            own[rows] = ensemble.logits(labels.columns[rows])
        return TreesModel(fold, own, ensembles[0], tuple(ensembles[1:]), self._chosen(losses), losses)

    def label_weights(self, targets: Tensor, n_classes: int) -> Tensor:
        """Returns the weights of labels where none are given, float64 [m]: classes weigh alike in a forest only."""
        if self.kind == "extra":
            return class_weights(targets, n_classes)[targets]
        return torch.ones_like(targets, dtype=torch.float64)

    @property
    def _most(self) -> int:
        """Rounds of boosting at most, or trees of a forest."""
        return self.rounds or (300 if self.kind == "boosting" else 100)

    def _chosen(self, losses: Sequence[float]) -> int:
        """Returns the number of rounds after these held-out losses of boosting; of a forest all of its trees."""
        return int(np.argmin(losses)) + 1 if losses and self.patience else self._most

    def _boost(
        self, growers: list[Grower], kept: list[NumpyArray], held: list[NumpyArray], pool: Executor
    ) -> tuple[list[Ensemble], tuple[float, ...]]:
        """Returns the trees of all labels and without each fold, and the held-out losses that chose their rounds."""
        folds = [Boosting(*own) for own in zip(growers[1:], kept[1:], held, strict=True)]
        losses = boost_side_by_side(folds, self._most, self.patience, pool)
        rounds = self._chosen(losses)
        whole = Boosting(growers[0], kept[0], NO_ROWS)
        for _ in progress("boosting of all labels", range(rounds)):
            whole.step()
        return [boosting.ensemble(rounds) for boosting in (whole, *folds)], tuple(losses)

    @property
    def _leaves(self) -> int:
        """Leaves of a tree, at most."""
        return self.leaves or (15 if self.kind == "boosting" else 255)


def check_finite(op: str, columns: NumpyArray) -> None:
    """Raises InputError where a column of a row, float32 [n, d], is not finite."""
    finite = np.isfinite(columns)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise InputError(
            f"{op}: columns must be finite, row {row} of column {column} is {columns[row, column]}: fill missing "
            "values, and mark them in a column of their own"
        )
