"""Growing ensembles of trees on all labels, and without each fold: LightGBM's boosting, scikit-learn's extra trees."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.steps import progress, report_step
from calirare.features import together
from calirare.models.column_screen import screened
from calirare.models.tree_ensembles import PSEUDO, SHRINKAGE, Ensemble, forest_text, tree_text, widened

if TYPE_CHECKING:
    from lightgbm import Dataset

ROUNDING = 2.0**-18  # of scaled means of neighbours, relative to their size
LEAST = 2  # labels that LightGBM grows a tree on, and of a leaf of a forest
TRIED = 0.3  # of the columns, at each split of a forest
ORDERED = 4_000_000  # numbers that are put in order together
POOL = 256.0  # MB of histograms kept of an ensemble: beyond some 1,000 columns a forest makes some of them anew


@contextmanager
def threads() -> Iterator[Executor]:
    """Runs what is submitted on as many threads as torch has; what has not begun is dropped at an error."""
    pool = ThreadPoolExecutor(torch.get_num_threads(), initializer=_quiet)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _quiet() -> None:
    """Makes LightGBM silent on this thread: it keeps its level of words for each, and reads it with a data set."""
    from lightgbm import Dataset

    Dataset(np.zeros((LEAST, 1)), params={"verbosity": -1}).construct()


@dataclass(frozen=True)
class Labels:
    """What trees are grown on.

    Attributes:
        columns: float32 [m, d].
        targets: classes, int64 [m].
        weights: of each label's loss, float64 [m].
        n_classes: k.
    """

    columns: NumpyArray
    targets: NumpyArray
    weights: NumpyArray
    n_classes: int

    @cached_property
    def joined(self) -> NumpyArray:
        """The columns, float32 [m, d], in which numbers that rounding may have parted are one.

        Such as 1/3 by the order in which neighbours were added: a threshold between them would part nodes that are
        alike, other ones in every order.
        """
        out = self.columns.copy()
        for column in np.flatnonzero(_parted(self.columns)):
            out[:, column] = joined(out[:, column])
        return out

    def weighed(self, weights: NumpyArray) -> Labels:
        """Returns the same labels with other weights [m], float64, of which only the ratios count."""
        other = replace(self, weights=weights / weights.mean())  # `joined` is not made again
        vars(other)["joined"] = self.joined
        return other

    def prior(self, rows: NumpyArray) -> NumpyArray:
        """Returns the classes' shares of the weight of some labels, `PSEUDO` labels added to each, float64 [k]."""
        totals = np.bincount(self.targets[rows], self.weights[rows], self.n_classes) + PSEUDO
        return totals / totals.sum()


@dataclass(frozen=True)
class Grower:
    """Grows ensembles on one binning of the columns.

    Attributes:
        labels: what they are grown on.
        settings: LightGBM's parameters.
        used: columns that may be split, bool [d]; None: all of them.
    """

    labels: Labels
    settings: dict[str, Any]
    used: NumpyArray | None = None

    def of_parts(self, parts: list[NumpyArray]) -> list[Grower]:
        """Returns what grows each part of the labels: itself, but of very many columns those that tell it something."""
        found = screened(self.labels.columns, self.labels.targets, parts)
        return [self if used is None else replace(self, used=used) for used in found]

    @cached_property
    def binned(self) -> Dataset:
        """The used columns of all labels, binned once; their classes play no part in it."""
        from lightgbm import Dataset

        columns = self.labels.joined if self.used is None else self.labels.joined[:, self.used]
        return Dataset(columns, np.zeros(self.labels.targets.size), params=self.settings).construct()

    def data(self, rows: NumpyArray, target: NumpyArray, start: NumpyArray | None = None) -> Dataset:
        """Returns some labels [m'] with what trees are to reach [m'], and the scores they start from, [k] or [1]."""
        part = self.binned.subset(rows.tolist(), params=self.settings).construct()
        part.set_label(target).set_weight(self.labels.weights[rows])
        return part if start is None else part.set_init_score(np.repeat(start, rows.size))


def _parted(columns: NumpyArray) -> NumpyArray:
    """Returns which columns [m, d] have two numbers that rounding may have parted, and some that need not, bool [d]."""
    out = np.zeros(columns.shape[1], dtype=bool)
    step = max(1, ORDERED // columns.shape[0])
    for first in range(0, out.size, step):
        rising = np.sort(columns[:, first : first + step].astype(np.float64), axis=0)
        apart = np.diff(rising, axis=0)
        near = apart <= 2 * ROUNDING * np.abs(rising).max(0)
        out[first : first + step] = ((apart > 0) & near).any(0)
    return out


def joined(column: NumpyArray) -> NumpyArray:
    """Returns numbers, float32 [m], of which those that rounding may have parted are one."""
    order, out = np.argsort(column, kind="stable"), np.empty_like(column)
    out[order] = together(column[order], ROUNDING)
    return out


def forests(
    growers: list[Grower], parts: list[NumpyArray], rounds: int, leaves: int, seed: int, pool: Executor
) -> list[Ensemble]:
    """Returns a forest of extremely randomised trees (Geurts et al. 2006) for each part of the labels.

    Args:
        growers: one for each part, which say what columns it reads.
        parts: places of labels, int64 [m'] each.
        rounds: trees.
        leaves: of a tree, at most.
        seed: of the trees.
        pool: grows the parts side by side.
    """
    futures = [pool.submit(_forest, *each, rounds, leaves, seed) for each in zip(growers, parts, strict=True)]
    return [future.result() for future in progress("forest", futures)]


def _forest(grower: Grower, rows: NumpyArray, rounds: int, leaves: int, seed: int) -> Ensemble:
    from sklearn.ensemble import ExtraTreesClassifier

    labels, used = grower.labels, grower.used
    columns = labels.joined[rows] if used is None else labels.joined[np.ix_(rows, used)]
    columns = np.asfortranarray(columns)  # a split looks through one column after the other
    places = np.arange(labels.columns.shape[1]) if used is None else np.flatnonzero(used)
    forest = ExtraTreesClassifier(
        rounds, min_samples_leaf=LEAST, max_features=TRIED, max_leaf_nodes=leaves, random_state=seed % 2**32
    ).fit(columns, labels.targets[rows], sample_weight=labels.weights[rows])
    prior, weights = labels.prior(rows), labels.weights[rows][:, None]
    worth = weights * (np.eye(labels.n_classes)[labels.targets[rows]] - prior)
    trees, values = list[str](), list[NumpyArray]()
    for i, tree in enumerate(each.tree_ for each in forest.estimators_):
        number = np.cumsum(tree.children_left < 0) - 1  # of each leaf among the leaves
        own, n = number[tree.apply(columns)], int(number[-1]) + 1
        sums = np.zeros((n, labels.n_classes + 1))
        np.add.at(sums, own, np.hstack([worth, weights]))
        values.append(sums[:, :-1] / (sums[:, -1:] + SHRINKAGE))
        trees.append(tree_text(i, tree, number, places, values[-1][:, 1]))
    return Ensemble(
        kind="extra",
        text=forest_text(trees, labels.columns.shape[1]),
        prior=prior,
        weight=float(weights.sum()),
        threads=grower.settings["num_threads"],
        values=np.concatenate(values),
    )


class Boosting:
    """Gradient boosting in progress, on some labels, watched on others.

    Args:
        grower: of its trees.
        rows: the labels it learns from, int64 [m'].
        watched: the labels its loss is taken on, int64; none: it is not watched.
    """

    def __init__(self, grower: Grower, rows: NumpyArray, watched: NumpyArray) -> None:
        from lightgbm import Booster

        log_share = np.log(grower.labels.prior(rows))
        start = log_share if log_share.size > 2 else log_share[1:] - log_share[:1]
        self.grower, self.rows, self.targets = grower, rows, grower.labels.targets
        self.booster = Booster(grower.settings, grower.data(rows, self.targets[rows], start))
        self.weight = float(grower.labels.weights[watched].sum())
        if watched.size:
            self.booster.add_valid(grower.data(watched, self.targets[watched], start), "watched")

    def step(self) -> float:
        """Grows one more round and returns the weighted sum of the watched labels' losses; 0 where there are none."""
        self.booster.update()
        return self.weight * self.booster.eval_valid()[0][2] if self.weight > 0 else 0.0

    def ensemble(self, rounds: int) -> Ensemble:
        """Returns the first `rounds` rounds."""
        text, used, labels = self.booster.model_to_string(num_iteration=rounds), self.grower.used, self.grower.labels
        return Ensemble(
            kind="boosting",
            text=text if used is None else widened(text, used),
            prior=labels.prior(self.rows),
            weight=float(labels.weights[self.rows].sum()),
            threads=self.grower.settings["num_threads"],
        )


def boost_side_by_side(boostings: list[Boosting], most: int, patience: int, pool: Executor) -> list[float]:
    """Grows boostings a round at a time while the sum of their watched losses falls.

    Args:
        boostings: those to grow.
        most: rounds at most.
        patience: rounds without a new lowest loss after which it ends; 0: `most` rounds are grown.
        pool: runs the boostings of a round.

    Returns:
        The mean loss after each round.
    """
    losses: list[float] = []
    total = sum(boosting.weight for boosting in boostings)
    while len(losses) < most and not (patience and len(losses) - int(np.argmin(losses or [0])) > patience):
        report_step("boosting", len(losses), most)
        losses.append(sum(pool.map(Boosting.step, boostings)) / total)
    report_step("boosting", most, most)
    return losses


BOOSTING = {
    "verbosity": -1,
    "deterministic": True,
    "force_col_wise": True,
    "feature_pre_filter": False,
    "min_data_in_bin": 1,
    "boost_from_average": False,
    "bagging_freq": 1,
    "histogram_pool_size": POOL,
    "boosting": "gbdt",
    "min_sum_hessian_in_leaf": 1e-2,
    "lambda_l2": 5.0,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "max_bin": 63,
}


def settings_of(m: int, n_classes: int, **given: Any) -> dict[str, Any]:
    """Returns LightGBM's parameters for boosting.

    A leaf holds a hundredth of the labels at least, in [3, 20]: 20 leave nothing to split of 100 labels, 3 of 10,000
    are noise.

    Args:
        m: number of labels.
        n_classes: k.
        **given: further ones.
    """
    multi = n_classes > 2
    return (
        BOOSTING
        | {
            "objective": "multiclass" if multi else "binary",
            "metric": "multi_logloss" if multi else "binary_logloss",
            "num_class": n_classes if multi else 1,
            "min_data_in_leaf": int(np.clip(m // 100, 3, 20)),
        }
        | given
    )
