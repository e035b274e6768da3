"""The functions of record batches that an engine applies to rows of nodes; they can be sent to other processes.

A table of nodes between two rounds has the columns node, degree and total; `kept`, float32 numbers as bytes; and sent0,
sent1 .., which are summed up over neighbours. The sums come back as sum0, sum1 ..
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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
from calirare.models import aggregate_neighbours, pooled
from calirare.run import Probabilities, scores_of
from calirare_ext import Csr

NODE, DEGREE, TOTAL = "node", "degree", "total"
UNKNOWN, UNLABELLED = -2, -1  # of a node whose name the run does not know, and of a known one without a label


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows of a node table as nodes with features and without an edge.

    Attributes:
        names: of the features, which are in the columns feature0, feature1 ..; none: the column feature0 has lists.
        n_features: how many features the run has.
        n_features: of the run.
        kinds: what each holds in the run, by name.
        gaps: whether a cell may be empty.
        named: whether the names of the nodes are read too.
        where: what a message calls the table.
    """

    names: tuple[str, ...]
    n_features: int
    kinds: dict[str, str]
    gaps: bool
    named: bool
    where: str

    def __call__(self, batch: pyarrow.RecordBatch) -> Graph:
        """Returns the nodes of a batch.

        Raises:
            InputError: a cell is not what the run's graph has.
        """
        names = names_of(batch) if self.named else None
        if self.names:
            cells = pyarrow.table([batch.column(f"feature{i}") for i in range(len(self.names))], names=self.names)
            table = Table(cells.to_pandas(), self.where)
            x, columns = NodeCells(table, self.kinds, self.gaps).read(self.names)
            table.check()
        else:
            numbers = batch.column("feature0").flatten().to_numpy(zero_copy_only=False).astype(np.float32)
            if numbers.size != batch.num_rows * self.n_features:
                raise InputError(f"{self.where}: lists of features must have the run's {self.n_features} numbers each")
            x, columns = torch.from_numpy(numbers.reshape(batch.num_rows, -1)), ()
        n = len(x)
        no_edge = Csr(torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), n)
        return Graph(no_edge, x, columns=columns, feature_names=self.names, node_names=names, trusted=True)


class Step(Protocol):
    """A function of batches of rows."""

    def schema(self, given: pyarrow.Schema) -> pyarrow.Schema:
        """Returns the schema of what it makes, by that of what it is given."""
        ...

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Returns what it makes of a batch."""
        ...


class NodeStep(abc.ABC):
    """A function of batches of nodes that know their neighbours' number.

    Attributes:
        carried: columns that it takes over.
        packed: columns that it makes, of numbers as bytes.
        counted: likewise, of whole numbers.
    """

    carried: tuple[str, ...] = (NODE, DEGREE, TOTAL)
    packed: tuple[str, ...] = ("kept",)
    counted: tuple[str, ...] = ()

    @property
    def n_sent(self) -> int:
        """How many columns it makes that are summed up over neighbours."""
        return 0

    @abc.abstractmethod
    def made(self, batch: pyarrow.RecordBatch, at: Neighbourhood) -> tuple[list[Any], Tensor | None]:
        """Returns arrays, those of `packed` and `counted`, and what is sent to neighbours, float32 [r, n_sent]."""

    def schema(self, given: pyarrow.Schema) -> pyarrow.Schema:
        """See `Step.schema`."""
        fields = [given.field(name) for name in self.carried]
        fields += [pyarrow.field(name, pyarrow.binary()) for name in self.packed]
        fields += [pyarrow.field(name, pyarrow.int64()) for name in self.counted]
        return pyarrow.schema([*fields, *(pyarrow.field(f"sent{j}", pyarrow.float32()) for j in range(self.n_sent))])

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """See `Step.__call__`."""
        made, sent = self.made(batch, Neighbourhood(numbers_of(batch, DEGREE), numbers_of(batch, TOTAL)))
        arrays = [*(batch.column(name) for name in self.carried), *made]
        if sent is not None:
            arrays += [pyarrow.array(column) for column in np.ascontiguousarray(sent.numpy().T)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema(batch.schema))


@dataclass(frozen=True, eq=False)
class Turn(NodeStep):
    """A round: turn 0 starts, later ones read sums over neighbours.

    Attributes:
        rounds: these.
        turn: which one it is.
        read: makes nodes of rows; None: rounds start with the probabilities of logits, which are carried.
    """

    rounds: Rounds
    turn: int
    read: RowReader | None

    @property
    def carried(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `NodeStep`."""
        return (NODE, DEGREE, TOTAL, *(() if self.read else ("logits",)))

    @property
    def n_sent(self) -> int:
        """See `NodeStep.n_sent`."""
        return self.rounds.sent_width(self.turn)

    def values(self, batch: pyarrow.RecordBatch, at: Neighbourhood) -> Values:
        """Returns what each part has after the round."""
        if self.turn == 0:
            if self.read is None:
                return [[torch.log_softmax(from_bytes(batch, "logits", np.float64), 1).exp().float()]]
            return self.rounds.start(self.read(batch), at)
        n_sums = self.rounds.sent_width(self.turn - 1)
        sums = torch.stack([numbers_of(batch, f"sum{j}") for j in range(n_sums)], 1)
        kept = self.rounds.unpacked(self.turn - 1, from_bytes(batch, "kept", np.float32))
        return self.rounds.then(self.turn, kept, sums, at)

    def made(self, batch: pyarrow.RecordBatch, at: Neighbourhood) -> tuple[list[Any], Tensor | None]:
        """See `NodeStep.made`.

        Raises:
            InputError: a number is not finite.
        """
        values = self.values(batch, at)
        sent = self.rounds.sent(self.turn, values)
        if not all_finite(sent):
            node = batch.column(NODE)[int((~sent.isfinite().all(1)).nonzero()[0])].as_py()
            raise InputError(
                f"nodes: numbers of node {node!r} are not finite: its features or edge weights are infinite, too "
                "large, or missing where the run's graph has values. Fix them."
            )
        return [as_bytes(torch.cat([each for part in values for each in part], 1))], sent


@dataclass(frozen=True, eq=False)
class Evaluation(NodeStep):
    """The logits of each node, float64, in the place of a detector's last round.

    Where labels are propagated by names of nodes there is also what tells whether names are those of others: `silent`,
    logits where no label is known; `others`, logits without label propagation; and `label`, the place of a node's
    training label, `UNKNOWN` or `UNLABELLED`.

    Attributes:
        last: the round.
        plan: of the detector.
    """

    last: Turn
    plan: Plan

    @property
    def packed(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `NodeStep`."""
        return ("logits",) if self.plan.labels is None else ("logits", "silent", "others")

    @property
    def counted(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `NodeStep`."""
        return () if self.plan.labels is None else ("label",)

    def made(self, batch: pyarrow.RecordBatch, at: Neighbourhood) -> tuple[list[Any], Tensor | None]:
        """See `NodeStep.made`."""
        found, labels = self.plan.member_logits(self.last.values(batch, at), at), self.plan.labels
        arrays = [as_bytes(self.plan.pooled(found))]
        if labels is not None:
            label = np.full(labels.known.n_nodes + 1, UNLABELLED)
            label[labels.nodes.numpy()] = np.arange(len(labels.nodes))
            label[-1] = UNKNOWN  # where place -1 leads to
            places = label[labels.known.places_of(names_of(batch))]
            arrays += [*map(as_bytes, self.plan.without_labels(found)), pyarrow.array(places)]
        return arrays, None


@dataclass(frozen=True, eq=False)
class Pooling(NodeStep):
    """The logits of each node with those of its neighbours, see `NeighbourPool`.

    Attributes:
        last: the round.
        weights: of the pool, float64 [T + 1].
        shares: of the classes, float64 [k].
    """

    last: Turn
    weights: Tensor
    shares: Tensor
    packed: tuple[str, ...] = ("logits",)

    def made(self, batch: pyarrow.RecordBatch, at: Neighbourhood) -> tuple[list[Any], Tensor | None]:
        """See `NodeStep.made`."""
        own = torch.log_softmax(from_bytes(batch, "logits", np.float64), 1)
        around = [aggregate_neighbours(p, at.degrees, self.shares) for p in self.last.values(batch, at)[0][1:]]
        return [as_bytes(pooled(self.weights, torch.stack([own - self.shares, *around]), self.shares))], None


@dataclass(frozen=True, eq=False)
class Scores:
    """Probabilities and alerts of logits, in the columns of tables of scores.

    Attributes:
        said: makes probabilities of logits [r, k].
        classes: names of the classes, where every class is taken as it is.
        n_classes: k.
    """

    said: Callable[[Tensor], Probabilities]
    classes: tuple[str, ...]
    n_classes: int

    def schema(self, given: pyarrow.Schema) -> pyarrow.Schema:
        """See `Step.schema`."""
        like = pyarrow.table(scores_of([""], self.said(torch.zeros(1, self.n_classes).double()), self.classes)).schema
        return like.set(0, given.field(NODE))

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """See `Step.__call__`."""
        said = self.said(from_bytes(batch, "logits", np.float64))
        columns = scores_of(batch.column(NODE), said, self.classes)
        return pyarrow.RecordBatch.from_arrays(list(map(pyarrow.array, columns.values())), list(columns))


def names_of(batch: pyarrow.RecordBatch) -> NumpyArray:
    """Returns the names of the nodes of a batch as text, [r]."""
    return np.asarray(as_names(batch.column(NODE).to_pandas()).to_numpy().astype(str))


def numbers_of(batch: pyarrow.RecordBatch, name: str) -> Tensor:
    """Returns a column as float64 [r]."""
    return torch.from_numpy(batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64))


def as_bytes(rows: Tensor) -> Any:
    """Returns rows of numbers as an array of Arrow, each as bytes."""
    values = np.ascontiguousarray(rows.numpy())
    width = values.itemsize * values.shape[1]
    ends = np.arange(len(values) + 1, dtype=np.int32) * width
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(values)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(values), buffers)


def from_bytes(rows: pyarrow.RecordBatch, name: str, dtype: type[np.floating[Any]]) -> Tensor:
    """Returns the numbers of a column that `as_bytes` made, [r, w]."""
    numbers = np.frombuffer(bytearray().join(rows.column(name).to_pylist()), dtype)
    return torch.from_numpy(numbers.reshape(rows.num_rows, len(numbers) // max(rows.num_rows, 1)))
