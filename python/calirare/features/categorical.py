"""Names of kinds: a column for each, or the mean label of the nodes that bear it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import differ
from calirare.features.raw_table import ColumnMap, RawTable

FEW = 20  # categories that get a column each
RARE = 10  # nodes that a category of its own must have in a large graph
FOLDS = 5  # of the target encoding; scikit-learn's default


@dataclass(frozen=True, eq=False)
class OneHot(ColumnMap):
    """1 in the column of a node's category, else 0; a category without a column leaves zeros.

    Attributes:
        place: the column of each category, of one that is unknown and of a missing value, int64 [c + 2]; -1 for none.
    """

    kind: ClassVar[str] = "one-hot"
    place: NumpyArray

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        place = self.place[codes_of(table, self.inputs[0])]
        rows = np.flatnonzero(place >= 0)
        out[:] = 0
        out[rows, place[rows]] = 1


@dataclass(frozen=True, eq=False)
class TargetEncoded(ColumnMap):
    """The mean label of the nodes of a category, drawn towards that of all nodes, standardised.

    A node whose label was counted gets the mean of other labelled nodes, out of fold, wherever it is found again: its
    own label is not in its feature. One that has another category by then gets that one's mean, which it is no part of.

    Attributes:
        value: by category, unknown and missing, float64 [c + 2, len(names)].
        own: of each labelled node, float64 [m, len(names)].
        codes: their categories then, int64 [m].
    """

    kind: ClassVar[str] = "target-encoded"
    value: NumpyArray
    own: NumpyArray
    codes: NumpyArray

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        codes = codes_of(table, self.inputs[0])
        out[:] = self.value[codes]
        if table.labelled is not None:
            rows = np.flatnonzero(table.labelled >= 0)
            places = table.labelled[rows]
            same = self.codes[places] == codes[rows]
            out[rows[same]] = self.own[places[same]]


def fit_one_hot(table: RawTable, i: int, most: int | None = FEW) -> OneHot | None:
    """Returns a column for each of the `most` commonest categories (None: all but rare ones), None where all are alike.

    Categories of few nodes, and unknown ones, share the column "other", if there are any of few nodes; missing values
    have a column of their own where there are enough. Two columns would say the same: one stays.
    """
    column = table.columns[i]
    counts = np.bincount(codes_of(table, i), minlength=len(column.categories) + 2)
    order = np.argsort(-counts, kind="stable")
    own = sorted([int(c) for c in order if counts[c] >= rare_below(table.n_nodes)][:most])
    rest = [c for c in range(len(counts)) if counts[c] and c not in own]
    labels = [*column.categories, "unknown", "missing"]
    names = [f"{column.name}={labels[c]}" for c in own] + [f"{column.name}=other"] * bool(rest)
    if len(names) < 2:
        return None
    place = np.full(len(counts), -1, dtype=np.int64)
    place[own] = np.arange(len(own))
    place[[*rest, len(column.categories)]] = len(own) if rest else -1
    if len(names) == 2:  # the first says what the second does not, but "no" and "yes" are told by "yes"
        place, names = (place, names[:1]) if rest else (place - 1, names[1:])
        place[place > 0] = -1
    return OneHot((i,), tuple(names), place)


def fit_target(table: RawTable, i: int, nodes: NumpyArray, y: NumpyArray, seed: int) -> TargetEncoded:
    """Returns scikit-learn's TargetEncoder of a column by labels int64 [m] of nodes int64 [m], out of fold."""
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import TargetEncoder

    name, codes = table.columns[i].name, codes_of(table, i)
    classes = np.unique(y)
    kind, given = "binary" if len(classes) == 2 else "multiclass", codes[nodes, None]
    value = (
        TargetEncoder(target_type=kind)
        .fit(given, y)
        .transform(np.arange(len(table.columns[i].categories) + 2)[:, None])
    )
    own = np.empty((len(nodes), value.shape[1]))
    folds = StratifiedKFold(min(FOLDS, int(np.bincount(y)[classes].min())), shuffle=True, random_state=seed)
    for others, these in folds.split(given, y):
        own[these] = TargetEncoder(target_type=kind).fit(given[others], y[others]).transform(given[these])
    everyone = value[codes]
    everyone[nodes] = own
    mean, spread = everyone.mean(0), everyone.std(0)
    spread[~differ(everyone, 0)] = np.inf
    names = [f"{name} rate" if len(classes) == 2 else f"{name} rate of class {k}" for k in classes[-own.shape[1] :]]
    return TargetEncoded((i,), tuple(names), (value - mean) / spread, (own - mean) / spread, codes[nodes])


def rare_below(n_nodes: int) -> int:
    """Returns how many nodes a category must have for a column of its own: 1 in 100, from 2 up to `RARE`."""
    return min(RARE, max(2, n_nodes // 100))


def codes_of(table: RawTable, i: int) -> NumpyArray:
    """Returns the categories of a column, int64 [n]: c for an unknown one, c + 1 for a missing one."""
    codes = table.column(i)
    return np.where(np.isnan(codes), len(table.columns[i].categories) + 1, codes).astype(np.int64)
