"""The columns of every table of results: files, streams, data frames and the guide read this one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from calirare.graph import PARTS, Graph, Split
from calirare.leave_one_out import JackknifeResult
from calirare.run.parties import amounts_of
from calirare.run.probabilities import Probabilities
from calirare.run.ranges import Ranges

RARE, CLASSES, SCORES = "rare", "classes", "scores"  # tables of a rare class, of every class, and of scores only


@dataclass(frozen=True, eq=False)
class Rows:
    """Some nodes of a graph with their probabilities and intervals.

    Attributes:
        names: of the nodes, or their numbers, [r].
        said: probabilities of these nodes.
        nodes: which nodes of `result` these are.
        classes: names of the classes, where every class is taken as it is; empty: class 1 is the rare one.
        split: the part of each node; None: the table has no labels.
        y: classes, int64 [r], -1 where unknown; None: none is known.
        result: intervals; None: there are none.
        ranges: intervals of the true P(rare), and label sets, likewise.
        keys: time, parties and amount of transactions, by column, [r] each; empty: they are none.
    """

    names: Any
    said: Probabilities
    nodes: slice | Tensor = field(default_factory=lambda: slice(None))
    classes: tuple[str, ...] = ()
    split: Any = None
    y: Tensor | None = None
    result: JackknifeResult | None = None
    ranges: Ranges | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def best(self) -> tuple[Tensor, Tensor]:
        """Confidence and class of the prediction, [r] each."""
        confidence, predicted = self.said.chosen.max(1)
        return confidence, predicted

    def labels(self, classes: Tensor) -> Any:
        """Returns classes as tables show them: numbers, or names where every class is taken as it is."""
        return [self.classes[c] if c >= 0 else "" for c in classes.tolist()] if self.classes else classes

    def interval(self, name: str) -> Any:
        """Returns a column of the intervals; NaN where there are none."""
        if self.result is None:
            return float("nan")
        if name in ("lower", "upper"):
            return getattr(self.result, name)[self.nodes]
        right, ice = self.result.about(self.said.raw if name == "ice_raw" else self.said.chosen, self.nodes)
        return right if name == "p_correct" else ice


@dataclass(frozen=True)
class Column:
    """One column of a table of results.

    Attributes:
        name: its name.
        help: how to read it.
        compute: its values at some rows; a mapping: a column per class.
        tables: which tables have it.
        when: whether there is something to tell.
        dtype: of its numbers; None: as computed.
        scores_dtype: the same in a table of scores only.
    """

    name: str
    help: str
    compute: Callable[[Rows], Any]
    tables: tuple[str, ...] = (RARE,)
    when: Callable[[Rows], bool] = lambda rows: True
    dtype: type | None = None
    scores_dtype: type | None = None

    def of(self, rows: Rows, table: str) -> dict[str, Any]:
        """Returns the column by its name, or a column per class."""
        values, dtype = self.compute(rows), self.scores_dtype if table == SCORES else self.dtype
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy()
            values = values if dtype is None else values.astype(dtype, copy=False)
        return values if isinstance(values, dict) else {self.name: values}


SETS = np.array(["", "normal", "rare", "both"])  # by 1 for the other class plus 2 for the rare one


def _set(rows: Rows) -> Any:
    assert rows.ranges is not None
    sets = rows.ranges.sets[rows.nodes].long()
    return SETS[(sets[:, 0] + 2 * sets[:, 1]).numpy()]


def _ranges(rows: Rows) -> bool:
    return rows.ranges is not None


def _labelled(rows: Rows) -> bool:
    return not rows.classes or rows.split is not None


def _intervals(rows: Rows) -> bool:
    return not rows.classes or rows.result is not None


def _of_labels(rows: Rows) -> bool:
    return _intervals(rows) and rows.ranges is None


BOTH = (RARE, CLASSES)
COLUMNS = (
    Column("node", "name or number of the node", lambda r: r.names, (RARE, CLASSES, SCORES)),
    Column(
        "<party>",
        "of transactions: time, parties and amount, each in a column of the name that the table has",
        lambda r: dict(r.keys),
        when=lambda r: bool(r.keys),
    ),
    Column(
        "rank",
        "of transactions: place by `p_rare`, 1 for the highest",
        lambda r: (-r.said.rare).argsort(stable=True).argsort() + 1,
        when=lambda r: bool(r.keys),
    ),
    Column(
        "split",
        "role of the node: train, val, test or unused; empty in another graph",
        lambda r: r.split,
        BOTH,
        _labelled,
    ),
    Column("y", "label, -1 or empty where unknown", lambda r: -1 if r.y is None else r.labels(r.y), BOTH, _labelled),
    Column("p_rare", "P(rare) for the true base rate", lambda r: r.said.rare, (RARE, SCORES)),
    Column(
        "expected_amount",
        "of transactions: `p_rare` times the amount, the amount at risk",
        lambda r: r.said.rare.cpu().numpy() * amounts_of(r.keys),
        when=lambda r: amounts_of(r.keys) is not None,
    ),
    Column(
        "p_low",
        "lower end of the 90 % interval of the node's true P(rare), with `--model auto` and other models with folds",
        lambda r: r.ranges and r.ranges.low[r.nodes],
        when=_ranges,
    ),
    Column("p_high", "upper end, likewise", lambda r: r.ranges and r.ranges.high[r.nodes], when=_ranges),
    Column(
        "label_set",
        "labels that the node may have, `rare`, `normal` or `both`: it holds the label of 90 % of the rare nodes and "
        "of 90 % of the others",
        _set,
        when=_ranges,
    ),
    Column(
        "p_balanced",
        "P(rare) if both classes were equally common",
        lambda r: r.said.balanced,
        (RARE, SCORES),
        scores_dtype=np.float32,
    ),
    Column("p_raw", "P(rare) before calibration", lambda r: r.said.raw[:, 1], (RARE, SCORES)),
    Column("alert", "1 where `p_rare` reaches `threshold`", lambda r: r.said.alert, (RARE, SCORES), dtype=np.int64),
    Column("threshold", "threshold of `--decide`; with `--cost-fn amount` that of the row", lambda r: r.said.threshold),
    Column("prediction", "likeliest class for `--calibrate-for`", lambda r: r.labels(r.best[1]), BOTH),
    Column("confidence", "its probability", lambda r: r.best[0], BOTH),
    Column("confidence_raw", "the same before calibration", lambda r: r.said.raw.amax(1), (CLASSES,)),
    Column(
        "p_<class>",
        "P(class)",
        lambda r: {f"p_{name}": r.said.chosen[:, c].numpy() for c, name in enumerate(r.classes)},
        (CLASSES,),
    ),
    Column(
        "p_correct",
        "P(the prediction is correct), as the leave-one-out models see it",
        lambda r: r.interval("p_correct"),
        BOTH,
        _intervals,
    ),
    Column(
        "lower",
        "in place of `p_low` with models without folds and with several classes: lower end of the prediction interval "
        "for the label, 0 or 1 (Eq. 6 of the paper); it may lie outside [0, 1]",
        lambda r: r.interval("lower"),
        BOTH,
        _of_labels,
    ),
    Column(
        "upper",
        "upper end, likewise; [very large graphs](scaling.md) have intervals for some nodes only",
        lambda r: r.interval("upper"),
        BOTH,
        _of_labels,
    ),
    Column(
        "ice",
        "absolute difference of `p_correct` and `confidence` (Eq. 10 of the paper)",
        lambda r: r.interval("ice"),
        BOTH,
        _of_labels,
    ),
    Column("ice_raw", "the same before calibration", lambda r: r.interval("ice_raw"), BOTH, _of_labels),
)


def columns_of(rows: Rows, table: str) -> dict[str, Any]:
    """Returns the columns of a table, by name and in order."""
    columns = [column for column in COLUMNS if table in column.tables and column.when(rows)]
    return {name: values for column in columns for name, values in column.of(rows, table).items()}


def scores_of(names: Any, said: Probabilities, classes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the columns of a table of scores only, by name and in order; arguments as of `Rows`."""
    return columns_of(Rows(names, said, classes=classes), CLASSES if classes else SCORES)


def predictions(
    graph: Graph,
    probabilities: Probabilities,
    result: JackknifeResult | None,
    split: Split | None,
    nodes: Tensor | None = None,
    classes: tuple[str, ...] = (),
    ranges: Ranges | None = None,
) -> pd.DataFrame:
    """Returns one row per node with the columns of `predictions.csv`.

    Args:
        graph: the graph.
        probabilities: of every node. `prediction` and `confidence` are about the chosen ones, and so are `p_correct`,
            P(prediction is right), and `ice`, its distance to `confidence`. `ice_raw` is the network's.
        result: intervals of every node; None leaves their columns empty, or out where there are `classes`.
        split: for the `split` column (train, val, test, unused); None leaves it empty, or out likewise.
        nodes: int64, in their order; None: every scored node.
        classes: names of the classes, where every class is taken as it is.
        ranges: intervals of the true P(rare), and label sets, of every node.
    """
    if nodes is None and graph.scored is not None:
        nodes = graph.scored_nodes
    rows = slice(None) if nodes is None else nodes.cpu()
    at = rows if isinstance(rows, slice) else rows.numpy()
    part = None if classes and split is None else np.asarray(part_column(graph.n_nodes, split)[at], dtype=object)
    y = None if graph.y is None else graph.y[rows]
    keys = {name: values[at] for name, values in (graph.keys or {}).items()}
    table = Rows(node_column(graph)[at], probabilities.at(rows), rows, classes, part, y, result, ranges, keys)
    return pd.DataFrame(columns_of(table, CLASSES if classes else RARE))


def part_column(n_nodes: int, split: Split | None) -> Any:
    """Returns the `split` column."""
    code = np.full(n_nodes, len(PARTS) if split is not None else len(PARTS) + 1, dtype=np.int8)
    if split is not None:
        for k, name in enumerate(PARTS):
            code[getattr(split, name).cpu().numpy()] = k
    return pd.Categorical.from_codes(code, [*PARTS, "unused", ""])


def node_column(graph: Graph) -> Any:
    """Returns the `node` column: the user's names, or numbers."""
    return np.arange(graph.n_nodes) if graph.node_names is None else graph.node_names
