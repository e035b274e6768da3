"""Columns in the user's words: names of hop columns, and a node's values as they stand in the user's table."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.explain.explainable_model import Shares
from calirare.explain.network_shares import IN_GRAPH, NEIGHBOURHOOD, made
from calirare.explain.shares import added
from calirare.features import columns_of
from calirare.graph import Column, Graph
from calirare_ext import Csr

NEIGHBOURS, HOPS = "mean of neighbours of ", re.compile(r"(\d+) hops' (.*)", re.DOTALL)
DEGREE, LOG_DEGREE = "number of neighbours", "log degree"
# What is made of a column's neighbours, as networks and trees call it, and what a column's own name goes on with.
AROUND = re.compile(rf"(?:mean of neighbours(?: \((.*?)\))? of |mean over \d+ hops of |{NEIGHBOURHOOD})(.*)", re.DOTALL)
PART = re.compile(
    r"|=.*| age| missing| rate(?: of class .*)?| (?:time of day|day of (?:week|year)) (?:sin|cos)", re.DOTALL
)
SAMPLE, FEWER = 10_000, 500  # nodes by which one says what is usual of a column, and of its mean over neighbours
ENDS, SELDOM, FEW = (0.05, 0.95), 0.05, 10  # ends of what is usual; a proportion that is not; values that are kinds
FAR_DAYS = 2e6  # from 2000, beyond which there is no year of four digits
DAYS = (3_650, 18_262)  # times that are days since 2000: the years 2010 to 2049


def with_words(shares: Shares, own: Sequence[str]) -> Shares:
    """Returns shares of hop columns with the columns named in words.

    Args:
        shares: of columns of the features, and of what was made of them and of the graph.
        own: names of the features, as the user has them: they stay, and what is made gets other names.
    """
    return dataclasses.replace(shares, names=_named(shares.names, tuple(own)))


@lru_cache(maxsize=8)
def _named(names: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what all columns are called; one that is called as the user's, and comes after it, is ours."""
    taken, out = frozenset(own), list[str]()
    ways = [name.removeprefix(f"{LOG_DEGREE}, ") for name in names if name.startswith(f"{LOG_DEGREE}, ")]
    for name in names:
        out.append(name if name in taken and name not in out else made(_in_words(name, ways), taken))
    return tuple(out)


def _in_words(name: str, ways: Sequence[str]) -> str:
    """Returns what a hop column is called, such as "mean of neighbours of amount"; `ways`: types of edges, each way."""
    if name.startswith(LOG_DEGREE):
        return DEGREE + name.removeprefix(LOG_DEGREE)
    way = next((way for way in ways if name.startswith(f"{way} ")), None)
    if way is not None:
        return by_way(way) + name.removeprefix(f"{way} ")
    if name.startswith("neighbours' "):
        return NEIGHBOURS + name.removeprefix("neighbours' ")
    hops = HOPS.fullmatch(name)
    return f"mean over {hops[1]} hops of {hops[2]}" if hops else name


def by_way(way: str) -> str:
    """Returns what means over the neighbours by edges of a type, one way, begin with."""
    return f"mean of neighbours ({way}) of "


class Values:
    """What a node's columns are in the user's table, and what is usual of them.

    Args:
        graph: with raw features, before they are mapped.
        own: names of the features as the detector reads them; None: those of the graph.
    """

    def __init__(self, graph: Graph, own: Sequence[str] | None = None) -> None:
        self.graph, self.columns = graph, columns_of(graph) if isinstance(graph.x, Tensor) else ()
        self.place = {column.name: i for i, column in enumerate(self.columns)}
        self.own = frozenset(self.place if own is None else own)
        self.edges = {"": graph.adjacency}
        for relation in graph.relations:
            self.edges |= {f"{relation.name} to": relation.out, f"{relation.name} from": relation.into}
        self.degrees = {made(DEGREE + (way and f", {way}"), self.own): matrix for way, matrix in self.edges.items()}
        self._called = dict[str, str]()  # what columns that a detector reads are called
        self._read = dict[str, tuple[int, str | None]]()  # by that: the place of the column, and whose it is
        self._usual = dict[tuple[int, str | None], Usual]()

    def plain(self, shares: Shares) -> Shares:
        """Returns shares by the columns of the user's table: what was made of one column, or of neighbours', is one."""
        return added([dataclasses.replace(shares, names=tuple(map(self._plain, shares.names)))])

    def _plain(self, name: str) -> str:
        """Returns what a column is called: as in the table, or "amount of neighbours"; else as it is."""
        if name in self._called:
            return self._called[name]
        for each in (name, name.removesuffix(IN_GRAPH)):
            found = None if name in self.own else AROUND.fullmatch(each)
            own, way = (found[2], found[1] or "") if found else (name, None)
            column = max((one for one in self.place if _made_of(own, one)), key=len, default=None)
            if own in self.own and column is not None and (way is None or way in self.edges):
                around = f"{column} of neighbours" + (f" ({way})" if way else "")
                self._called[name] = column if way is None else made(around, self.place.keys())
                self._read[self._called[name]] = self.place[column], way
                break
        return self._called.setdefault(name, name)

    def of(self, node: int, name: str) -> Field | None:
        """Returns a node's value of a column as `plain` calls it, next to what is usual; None where there is none."""
        if name in self.degrees:
            degrees = self.degrees[name].indptr.diff()[self._some(SAMPLE)].float().cpu().numpy()
            return field_of(Column(name), float(neighbours(self.degrees[name], node).numel()), Usual.of(degrees))
        if name not in self._read:
            return None
        place, way = self._read[name]
        column = self.columns[place]
        value = float(self._values(torch.tensor([node]), place, way)[0])
        if column.categories:
            way = None  # what is usual of one node
        if (place, way) not in self._usual:
            nodes = self._some(SAMPLE if way is None else FEWER)
            self._usual[place, way] = Usual.of(self._values(nodes, place, way))
        return dataclasses.replace(field_of(column, value, self._usual[place, way]), name=name)

    def _some(self, most: int) -> Tensor:
        """Returns scored nodes that say what is usual, about so many at most."""
        return self.graph.scored_nodes[:: max(1, self.graph.scored_nodes.numel() // most)]

    def _values(self, nodes: Tensor, place: int, way: str | None) -> NumpyArray:
        """Returns a column of nodes, or the mean of their neighbours; of categories, of one node, the commonest."""
        assert isinstance(self.graph.x, Tensor)
        x = self.graph.x[:, place]
        if way is None:
            return x[nodes].double().cpu().numpy()
        block = self.edges[way].select_rows(nodes)
        others, rows = block.indices.long(), block.rows().long()
        kept = (others != nodes[rows]) & ~x[others].isnan()
        values, rows = x[others[kept]].double(), rows[kept]
        if self.columns[place].categories and values.numel():
            return values.mode().values[None].numpy()
        total = torch.zeros(nodes.numel(), dtype=torch.float64).index_add(0, rows, values)
        return (total / torch.bincount(rows, minlength=nodes.numel())).numpy()


def _made_of(name: str, column: str) -> bool:
    """Returns whether a column that a detector reads is one of the table, or was made of it."""
    return name.startswith(column) and PART.fullmatch(name, len(column)) is not None


@dataclass(frozen=True)
class Field:
    """A column of the case: its value, where that stands among all cases, and what is usual."""

    name: str
    value: str
    among: str
    usual: str
    unusual: bool


def neighbours(a: Csr, node: int) -> Tensor:
    """Returns the neighbours of a node but itself by a matrix of edges, int64."""
    found = a.indices[int(a.indptr[node]) : int(a.indptr[node + 1])].long()
    return found[found != node]


def short_number(number: float) -> str:
    """Returns a number of a table in few characters."""
    return "missing" if math.isnan(number) else f"{number:,.0f}" if abs(number) >= 1e4 else f"{number:.4g}"


@dataclass(frozen=True, eq=False)
class Usual:
    """The values of a column among all scored nodes.

    Attributes:
        kinds: the different ones, ascending.
        counts: how often each occurs.
        missing: proportion of nodes without one.
        ends: `ENDS` of the values.
    """

    kinds: NumpyArray
    counts: NumpyArray
    missing: float
    ends: tuple[float, ...]

    @classmethod
    def of(cls, every: NumpyArray) -> Usual:
        """Returns what is usual of the values of nodes, [n], NaN where missing."""
        seen = every[np.isfinite(every)]
        kinds, counts = np.unique(seen, return_counts=True)
        ends = tuple(np.quantile(seen, ENDS).tolist()) if seen.size else ()
        return cls(kinds, counts, 1 - len(seen) / max(len(every), 1), ends)


def field_of(column: Column, value: float, among: Usual) -> Field:
    """Returns a field by its value and what is usual."""
    if not np.isfinite(value):
        return Field(column.name, "missing", f"missing in {among.missing:.0%}", "", unusual=False)

    def shown(number: float) -> str:
        if column.categories:
            return column.categories[int(number)]
        return day_in_words(number) if column.kind == "date" else short_number(number)

    shares = among.counts / max(among.counts.sum(), 1)
    below, alike = float(shares[among.kinds < value].sum()), float(shares[among.kinds == value].sum())
    if column.categories or len(among.kinds) <= FEW:
        first = int(shares.argmax())
        usual = f"{shown(float(among.kinds[first]))} ({shares[first]:.0%})"
        return Field(column.name, shown(value), f"shared by {alike:.0%}", usual, unusual=alike < SELDOM)
    above, (low, high) = below + alike / 2, among.ends
    more, less = ("later", "earlier") if column.kind == "date" else ("higher", "lower")
    share = min(max(above, 1 - above), 0.99)
    place = f"{more if above >= 0.5 else less} than {share:.0%}"
    usual = " to ".join(shown(end)[: 7 if column.kind == "date" else None] for end in (low, high))  # of dates the month
    return Field(column.name, shown(value), place, usual, unusual=not low <= value <= high)


def time_in_words(time: float) -> str:
    """Returns a time: as a date where it looks like days since 2000."""
    return day_in_words(time) if DAYS[0] <= time <= DAYS[1] else short_number(time)


def day_in_words(days: float) -> str:
    """Returns days since the start of the year 2000 as a date."""
    if abs(days) > FAR_DAYS:
        return f"{days:.4g} days from 2000"
    return str(np.datetime64("2000-01-01") + np.timedelta64(math.floor(days), "D"))
