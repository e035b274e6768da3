"""The functions of record batches that an engine applies to rows of nodes; they can be sent to other processes.

A table of nodes between two rounds has the columns node, degree and total; `kept`, float32 numbers as bytes; and sent0,
sent1 .., which are summed up over neighbours. The sums come back as sum0, sum1 ..
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import all_finite
from calirare._util.errors import InputError
from calirare.engines.rounds import Neighbourhood, Plan, Rounds, Values
from calirare.graph import Graph
from calirare.graph.tables.files import Table, as_names
from calirare.graph.tables.node_cells import NodeCells
from calirare.models import NeighbourPool, aggregate_neighbours, pooled
from calirare.run import Probabilities, scores_of
from calirare_ext import Csr

UNKNOWN, UNLABELLED = -2, -1  # of a node whose name the run does not know, and of a known one without a label
DEGREES = ("degree", "total")  # columns of numbers of neighbours, and of sums of their edges' weights


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows of a node table as nodes with features and without an edge.

    Attributes:
        names: of the features, which are in the columns feature0, feature1 ..; none: the column feature0 has lists.
        n_features: how many features the run has.
        kinds: what each holds in the run, by name.
        gaps: whether a cell may be empty.
        where: what a message calls the table.
    """

    names: tuple[str, ...]
    n_features: int
    kinds: dict[str, str]
    gaps: bool
    where: str

    def __call__(self, batch: pyarrow.RecordBatch) -> Graph:
        """Returns the nodes of a batch.

        Raises:
            InputError: a cell is not what the run's graph has.
        """
        n = batch.num_rows
        if self.names:
            cells = pyarrow.table([batch.column(f"feature{i}") for i in range(len(self.names))], names=self.names)
            table = Table(cells.to_pandas(), self.where)
            x, columns = NodeCells(table, self.kinds, self.gaps).read(self.names)
            table.check()
        else:
            numbers = batch.column("feature0").flatten().to_numpy(zero_copy_only=False).astype(np.float32)
            if numbers.size != n * self.n_features:
                raise InputError(f"{self.where}: lists of features must have the run's {self.n_features} numbers each")
            x, columns = torch.from_numpy(numbers.reshape(n, -1)), ()
        names = names_of(batch)
        return Graph(Csr.zeros(n), x, columns=columns, feature_names=self.names, node_names=names, trusted=True)


@dataclass(frozen=True, eq=False)
class Step:
    """A function of batches of nodes.

    Attributes:
        function: makes columns of a batch.
        kinds: Arrow's types of these columns, by name.
        carried: columns of the batch that are taken over.
    """

    function: Callable[[pyarrow.RecordBatch], list[Any]]
    kinds: dict[str, Any]
    carried: tuple[str, ...] = ("node", *DEGREES)

    def schema(self, given: pyarrow.Schema) -> pyarrow.Schema:
        """Returns the schema of what it makes, by that of what it is given."""
        return pyarrow.schema([*map(given.field, self.carried), *self.kinds.items()])

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Returns what it makes of a batch."""
        arrays = [*map(batch.column, self.carried), *self.function(batch)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema(batch.schema))


@dataclass(frozen=True, eq=False)
class Turn:
    """What the parts of a detector have after a round, of a batch of nodes.

    Attributes:
        rounds: these.
        number: of the round: 0 starts, later ones read sums over neighbours.
        read: makes nodes of rows; None: rounds start with the probabilities of logits, which are carried.
    """

    rounds: Rounds
    number: int
    read: RowReader | None

    def __call__(self, batch: pyarrow.RecordBatch) -> tuple[Values, Neighbourhood]:
        """Returns the values and how many neighbours the nodes have."""
        at = Neighbourhood(*(numbers_of(batch, name) for name in DEGREES))
        if self.number:
            sums = torch.stack(
                [numbers_of(batch, f"sum{j}") for j in range(self.rounds.sent_width(self.number - 1))], 1
            )
            kept = self.rounds.unpacked(self.number - 1, from_bytes(batch, "kept", np.float32))
            return self.rounds.then(self.number, kept, sums, at), at
        if self.read is None:
            return [[torch.log_softmax(from_bytes(batch, "logits"), 1).exp().float()]], at
        rows = self.read(batch)
        return [[part.start(rows, at)] for part in self.rounds.parts], at

    def step(self) -> Step:
        """Returns the round as a step, which sends numbers to neighbours."""
        sent = {f"sent{j}": pyarrow.float32() for j in range(self.rounds.sent_width(self.number))}
        carried = ("node", *DEGREES) if self.read else ("node", *DEGREES, "logits")
        return Step(partial(_sent, self), {"kept": pyarrow.binary()} | sent, carried)


def _sent(turn: Turn, batch: pyarrow.RecordBatch) -> list[Any]:
    """Returns what is kept of nodes after a round, and what is sent to their neighbours."""
    values = turn(batch)[0]
    sent = turn.rounds.sent(turn.number, values)
    if not all_finite(sent):
        node = batch.column("node")[int((~sent.isfinite().all(1)).nonzero()[0])].as_py()
        raise InputError(
            f"nodes: numbers of node {node!r} are not finite: its features or edge weights are infinite, too large, or "
            "missing where the run's graph has values. Fix them."
        )
    kept = torch.cat([each for part in values for each in part], 1)
    return [as_bytes(kept), *as_columns(sent)]


def evaluation(last: Turn, plan: Plan) -> Step:
    """Returns what makes the logits of nodes after the last round, float64.

    Where labels are propagated by names of nodes there is also what tells whether names are those of others: `silent`,
    logits where no label is known; `others`, logits without label propagation; and `label`, the place of a node's
    training label, `UNKNOWN` or `UNLABELLED`.
    """
    names = ["logits"] if plan.labels is None else ["logits", "silent", "others"]
    kinds = dict.fromkeys(names, pyarrow.binary()) | ({"label": pyarrow.int64()} if len(names) > 1 else {})
    return Step(partial(_evaluated, last, plan), kinds)


def _evaluated(last: Turn, plan: Plan, batch: pyarrow.RecordBatch) -> list[Any]:
    found, labels = plan.member_logits(*last(batch)), plan.labels
    if labels is None:
        return [as_bytes(plan.pooled(found))]
    label = np.full(labels.known.n_nodes + 1, UNLABELLED)
    label[labels.nodes.numpy()] = np.arange(len(labels.nodes))
    label[-1] = UNKNOWN  # where place -1 leads to
    places = label[labels.known.places_of(names_of(batch))]
    return [*map(as_bytes, (plan.pooled(found), *plan.without_labels(found))), pyarrow.array(places)]


def pooling(last: Turn, pool: NeighbourPool) -> Step:
    """Returns what makes the logits of nodes with those of their neighbours, see `NeighbourPool`."""
    return Step(partial(_pooled, last, pool.weights, pool.shares), {"logits": pyarrow.binary()})


def _pooled(last: Turn, weights: Tensor, shares: Tensor, batch: pyarrow.RecordBatch) -> list[Any]:
    (means,), at = last(batch)
    around = [aggregate_neighbours(p, at.degrees, shares) for p in means[1:]]
    own = torch.log_softmax(from_bytes(batch, "logits"), 1) - shares
    return [as_bytes(pooled(weights, torch.stack([own, *around]), shares))]


def hop_columns(last: Turn, names: tuple[str, ...]) -> Step:
    """Returns what makes the columns of `HopColumns` before they are scaled, by their names, after rounds of means."""
    return Step(partial(_hop_columns, last), dict.fromkeys(names, pyarrow.float32()), ("node",))


def _hop_columns(last: Turn, batch: pyarrow.RecordBatch) -> list[Any]:
    (levels,), at = last(batch)
    degree = [torch.log1p(at.degrees.float())[:, None]] if len(levels) > 1 else []
    made = torch.cat([*levels, *degree], 1)
    return as_columns(made)


def scoring(said: Callable[[Tensor], Probabilities], n_classes: int, classes: tuple[str, ...]) -> Step:
    """Returns what makes the columns of tables of scores.

    Args:
        said: makes probabilities of logits [r, k].
        n_classes: k.
        classes: names of the classes, where every class is taken as it is.
    """
    like = pyarrow.table(scores_of([""], said(torch.zeros(1, n_classes).double()), classes)).schema
    return Step(partial(_scores, said, classes), {field.name: field.type for field in list(like)[1:]}, ("node",))


def _scores(said: Callable[[Tensor], Probabilities], classes: tuple[str, ...], batch: pyarrow.RecordBatch) -> list[Any]:
    columns = scores_of(batch.column("node"), said(from_bytes(batch, "logits")), classes)
    return list(map(pyarrow.array, list(columns.values())[1:]))


def names_of(batch: pyarrow.RecordBatch) -> NumpyArray:
    """Returns the names of the nodes of a batch as text, [r]."""
    return np.asarray(as_names(batch.column("node").to_pandas()).to_numpy().astype(str))


def numbers_of(batch: pyarrow.RecordBatch, name: str) -> Tensor:
    """Returns a column as float64 [r]."""
    return torch.from_numpy(batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64))


def as_columns(rows: Tensor) -> list[Any]:
    """Returns the columns of a matrix as arrays of Arrow."""
    return list(map(pyarrow.array, np.ascontiguousarray(rows.numpy().T)))


def as_bytes(rows: Tensor) -> Any:
    """Returns rows of numbers as an array of Arrow, each as bytes."""
    values = np.ascontiguousarray(rows.numpy())
    ends = np.arange(len(values) + 1, dtype=np.int32) * (values.itemsize * values.shape[1])
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(values)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(values), buffers)


def from_bytes(rows: pyarrow.RecordBatch, name: str, dtype: type[np.floating[Any]] = np.float64) -> Tensor:
    """Returns the numbers of a column that `as_bytes` made, [r, w]."""
    numbers = np.frombuffer(bytearray().join(rows.column(name).to_pylist()), dtype)
    return torch.from_numpy(numbers.reshape(rows.num_rows, len(numbers) // max(rows.num_rows, 1)))
