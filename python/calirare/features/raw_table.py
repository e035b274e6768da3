"""The raw columns of a graph as a map knows them, whatever their order and numbering in the graph at hand."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import listed
from calirare._util.array_files import NumpyArray, release
from calirare._util.errors import InputError, cut
from calirare.graph import Column, Graph, default_names, names_in_words, number_columns
from calirare.graph.columns import has_default_names
from calirare.graph.spelling import TRUTH, is_number, plain_name

Say = Callable[[str], None]
BLOCK = 1 << 23  # float64 numbers looked at together: 64 MiB
Recoding = tuple[NumpyArray, NumpyArray]  # rising numbers of categories in a graph, and the map's for each


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a map in a graph: in the map's order, its numbers of categories, and dates as ages.

    Attributes:
        x: the graph's features, float32 [n, d of the graph].
        columns: of the map.
        places: which column of `x` holds each of `columns`.
        recoded: of each categorical column whose numbers are others here.
        newest: of each date column: the newest day of the map's own graph.
        labelled: of each node its place among the labelled nodes of the map's own graph, int64 [n], -1 for none.
    """

    x: Tensor
    columns: tuple[Column, ...]
    places: tuple[int, ...]
    recoded: dict[int, Recoding]
    newest: dict[int, float]
    labelled: NumpyArray | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.x.shape[0]

    def at(self, rows: slice) -> RawTable:
        """Returns the table of some nodes."""
        return replace(self, x=self.x[rows], labelled=None if self.labelled is None else self.labelled[rows])

    def blocks(self, inputs: Sequence[int]) -> Iterator[tuple[slice, NumpyArray]]:
        """Yields columns a few at a time.

        Args:
            inputs: which of `columns`.

        Yields:
            Which of `inputs`, and their numbers, float64 [n, b], NaN where missing. A category the map does not know
            has the number after its last.
        """
        width = max(1, BLOCK // max(self.n_nodes, 1))
        for start in range(0, len(inputs), width):
            at = slice(start, min(start + width, len(inputs)))
            yield at, self._read(inputs[at])

    def column(self, i: int) -> NumpyArray:
        """Returns one column, float64 [n]."""
        return self._read([i])[:, 0]

    def _read(self, inputs: Sequence[int]) -> NumpyArray:
        """Returns columns as float64 [n, b]."""
        places = [self.places[i] for i in inputs]
        first, last = places[0], places[-1] + 1
        adjacent = places == list(range(first, last))
        picked = self.x[:, first:last] if adjacent else self.x[:, places]
        values = picked.detach().cpu().numpy().astype(np.float64, order="F")
        release(self.x)
        for j, i in enumerate(inputs):
            if i in self.recoded:
                here = ~np.isnan(values[:, j])
                numbers, codes = self.recoded[i]
                values[here, j] = codes[np.searchsorted(numbers, values[here, j])]
            if i in self.newest:
                values[:, j] = self.newest[i] - values[:, j]
        return values


def columns_of(graph: Graph) -> tuple[Column, ...]:
    """Returns the raw columns of a graph with dense features; numbers where the graph says nothing."""
    if graph.columns:
        return graph.columns
    return number_columns(graph.feature_names or default_names(graph.n_features))


def read_table(graph: Graph, columns: tuple[Column, ...], newest: dict[int, float], say: Say) -> RawTable:
    """Returns a graph's raw columns as an encoder knows them: found by name where both have names, else by place.

    `newest` are the newest days of its date columns; `say` takes a note on columns that it does not know. An InputError
    names all columns that are missing or hold something else.
    """
    if not isinstance(graph.x, Tensor):
        raise InputError(
            f"features: graph {graph.name!r} must have dense features, as those of the run's graph, got sparse"
        )
    x, here = graph.x, columns_of(graph)
    places = places_of(graph, columns, say)
    faults = [
        f"{column.name!r} is {_seen(here[place])} where the run's is {column.kind}"
        for column, place in zip(columns, places, strict=True)
        if not _fits(here[place], column) and not bool(x[:, place].isnan().all())
    ]
    if faults:
        raise InputError(
            f"features: graph {graph.name!r} must have the columns of the run's graph, but {', '.join(faults)}: write "
            "their cells as in the run's table"
        )
    recoded = {
        i: _recoding(x[:, place], here[place], column)
        for i, (column, place) in enumerate(zip(columns, places, strict=True))
        if column.kind == "categorical" and here[place] != column
    }
    return RawTable(x, columns, places, recoded, newest)


def _seen(column: Column) -> str:
    """Returns what a message says that a column holds: of categories one that is no number, which is why."""
    odd = next((name for name in column.categories if not is_number(name)), None)
    return column.kind if odd is None else f"{column.kind} (a cell is {cut(odd, 30)!r})"


def _fits(here: Column, wanted: Column) -> bool:
    """Returns whether a column can be read as the map's; numbers may be names of categories."""
    return here.kind == wanted.kind or (here.kind, wanted.kind) == ("numeric", "categorical")


def places_of(graph: Graph, columns: tuple[Column, ...], say: Say) -> tuple[int, ...]:
    """Returns where each wanted column stands among those of a graph; see `read_table`."""
    given, wanted = list(graph.feature_names), [column.name for column in columns]
    if has_default_names(given) or has_default_names(wanted):
        if graph.n_features != len(wanted):
            raise InputError(
                f"features: graph {graph.name!r} must have the {len(wanted)} features the run was trained on, got "
                f"{graph.n_features}"
            )
        return tuple(range(len(wanted)))
    if given == wanted:
        return tuple(range(len(wanted)))
    here = set(given)
    absent = [name for name in wanted if name not in here]
    absent = [name for name in absent if not any(name.startswith(f"{other}: ") for other in absent)]  # made from it
    if absent:
        raise InputError(
            f"features: graph {graph.name!r} must have the features the run was trained on, but "
            f"{names_in_words(absent, 20)} {'is' if len(absent) == 1 else 'are'} not among its columns "
            f"{names_in_words(given, 20)}: name the columns as the run's graph does"
        )
    more = [name for name in given if name not in set(wanted)]
    if more:
        say(f"left out, as the run has no such feature: {listed(more)}")
    place = {name: i for i, name in enumerate(given)}
    return tuple(place[name] for name in wanted)


def _recoding(numbers: Tensor, here: Column, wanted: Column) -> Recoding:
    """Returns the map's number of each category, the number after its last for one it does not know."""
    number = {name: i for i, name in enumerate(wanted.categories)}
    unknown = len(wanted.categories)
    if here.kind == "categorical":
        values = np.arange(len(here.categories))
        codes = [number.get(name, number.get(plain_name(name), unknown)) for name in here.categories]
    else:
        values = torch.unique(numbers).cpu().numpy()
        values = values[~np.isnan(values)]
        meant = _by_number(wanted.categories)
        codes = [number.get(written(value), meant.get(float(value), unknown)) for value in values]
    return values.astype(np.float64), np.array(codes, dtype=np.float64)


def _by_number(names: Sequence[str]) -> dict[float, int]:
    """Returns the places of names by the numbers, in float32, that a table read without its run makes of them."""
    words = [TRUTH.get(name.lower(), name) for name in names]
    with np.errstate(over="ignore"):
        numbers = [float(np.float32(float(word))) if is_number(word) else np.nan for word in words]
    often = Counter(numbers)
    return {number: i for i, number in enumerate(numbers) if often[number] == 1}


def written(value: float) -> str:
    """Returns a number as the name of a category: whole ones without a point."""
    return str(int(value)) if value == int(value) else str(np.float32(value))


@dataclass(frozen=True, eq=False)
class Stored:
    """What is kept with a run: a dataclass whose fields are arrays of numbers, what JSON holds, or another such."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the arrays as tensors and everything else as what JSON holds."""
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {}
        for name, value in ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self)):
            if isinstance(value, np.ndarray):
                tensors[name] = torch.from_numpy(np.ascontiguousarray(value))
            elif isinstance(value, Stored):
                inner, facts[name] = value.state()
                tensors |= inner
            else:
                facts[name] = value
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what a `state` was made of, from JSON or not."""
        plain = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
        return cls(**{name: tensor.numpy() for name, tensor in tensors.items()}, **plain)


@dataclass(frozen=True, eq=False)
class ColumnMap(Stored, ABC):
    """What some raw columns become; fitted, it knows no graph.

    Attributes:
        kind: by which a stored map is found again.
        inputs: the raw columns it reads, by their numbers.
        names: of the columns it makes.
    """

    kind: ClassVar[str]
    inputs: tuple[int, ...]
    names: tuple[str, ...]

    @abstractmethod
    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills float32 [n, len(names)] with what the map makes of a table."""
