"""Columns in the user's words: names of hop columns, and a node's values as they stand in the user's table."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from calirare.explain.explainable_model import Shares
from calirare.explain.network_shares import NEIGHBOURHOOD, made
from calirare.graph import Graph, default_names
from calirare_ext import Csr

NEIGHBOURS, HOPS = "mean of neighbours of ", re.compile(r"(\d+) hops' (.*)", re.DOTALL)
DEGREE, LOG_DEGREE = "number of neighbours", "log degree"


def with_words(shares: Shares, own: Sequence[str]) -> Shares:
    """Returns shares of hop columns with the columns named in words.

    Args:
        shares: whose first columns are those of the features, then what was made of them and of the graph.
        own: names of the features, as the user has them: they stay, and what is made gets other names.
    """
    return dataclasses.replace(shares, names=_named(shares.names, tuple(own)))


@lru_cache(maxsize=8)
def _named(names: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what all columns are called, those of the features first; of sparse ones there are directions instead."""
    taken = frozenset(own)
    n = next((i for i, name in enumerate(names[: len(own)]) if name not in taken), min(len(own), len(names)))
    ways = [name.removeprefix(f"{LOG_DEGREE}, ") for name in names[n:] if name.startswith(f"{LOG_DEGREE}, ")]
    return (*names[:n], *(made(_in_words(name, ways), taken) for name in names[n:]))


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
    """What a node's columns are in the user's table.

    Args:
        graph: with raw features, before they are mapped.
        own: names of the features as the detector reads them; None: those of the graph.
    """

    def __init__(self, graph: Graph, own: Sequence[str] | None = None) -> None:
        self.graph = graph
        names = (graph.feature_names or default_names(graph.n_features)) if isinstance(graph.x, Tensor) else ()
        self.place = {name: i for i, name in enumerate(names)}
        self.own = frozenset(names if own is None else own)
        edges = {"": graph.adjacency}
        for relation in graph.relations:
            edges |= {f"{relation.name} to": relation.out, f"{relation.name} from": relation.into}
        self.degrees = {made(DEGREE + (way and f", {way}"), self.own): matrix for way, matrix in edges.items()}
        self.means = {
            made((by_way(way) if way else NEIGHBOURS) + name, self.own): (name, matrix)
            for way, matrix in edges.items()
            for name in names
        }

    def of(self, node: int, name: str) -> str | None:
        """Returns a node's value of a column, or its neighbours' mean; None where it is neither."""
        if name in self.degrees:
            return f"{neighbours(self.degrees[name], node).numel():,}"
        if not self.place or (name not in self.own and name.startswith(NEIGHBOURHOOD)):
            return None
        if name in self.means:
            return self._mean(node, *self.means[name])
        place = self.place.get(name)
        if place is None:
            return self._category(node, name)
        assert isinstance(self.graph.x, Tensor)
        return short_number(float(self.graph.x[node, place]))

    def _category(self, node: int, name: str) -> str | None:
        """Returns the category of a node where a column marks one, as "city=Oslo" does."""
        column, mark, _ = name.partition("=")
        place = self.place.get(column)
        if not mark or place is None or not self.graph.columns or not self.graph.columns[place].categories:
            return None
        assert isinstance(self.graph.x, Tensor)
        number = float(self.graph.x[node, place])
        return "missing" if math.isnan(number) else self.graph.columns[place].categories[int(number)]

    def _mean(self, node: int, name: str, edges: Csr) -> str | None:
        place = self.place.get(name)
        numeric = place is not None and (not self.graph.columns or self.graph.columns[place].kind == "numeric")
        around = neighbours(edges, node)
        if not numeric or not around.numel():
            return None
        assert isinstance(self.graph.x, Tensor)
        return short_number(float(torch.nanmean(self.graph.x[around, place])))


def neighbours(a: Csr, node: int) -> Tensor:
    """Returns the neighbours of a node but itself by a matrix of edges, int64."""
    found = a.indices[int(a.indptr[node]) : int(a.indptr[node + 1])].long()
    return found[found != node]


def short_number(number: float) -> str:
    """Returns a number of a table in few characters."""
    return "missing" if math.isnan(number) else f"{number:,.0f}" if abs(number) >= 1e4 else f"{number:.4g}"
