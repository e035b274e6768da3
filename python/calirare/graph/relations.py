"""Edges with a direction and a type, next to the adjacency that has neither."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from calirare._util.amounts import listed
from calirare._util.array_files import NumpyArray
from calirare._util.arrays import brief
from calirare._util.errors import FaultsError, InputError
from calirare.graph.arrays import csr_of_scipy, scipy_of_csr
from calirare.graph.edges import STRICT, Naming, as_csr, build_adjacency, directed
from calirare.graph.options import EdgeRules
from calirare_ext import Csr


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges of one type, as they point.

    Attributes:
        name: of the type.
        out: [n, n], float32 weights > 0; row u holds the edges that leave node u.
        into: its transpose; row u holds the edges that reach node u.
    """

    name: str
    out: Csr
    into: Csr

    __repr__ = brief

    @classmethod
    def of(cls, name: str, out: Csr) -> Relation:
        """Returns a relation by the edges that leave each node."""
        return cls(name, out, csr_of_scipy(scipy_of_csr(out).T.tocsr()).to(out.device))

    def to(self, device: torch.device | str) -> Relation:
        """Returns the relation with its tensors on `device`."""
        return Relation(self.name, self.out.to(device), self.into.to(device))


def relations_of(
    edges: NumpyArray, weights: NumpyArray | None, types: NumpyArray | None, n_nodes: int, rules: EdgeRules
) -> tuple[Relation, ...]:
    """Returns the relations of directed edges, int64 [m, 2], in the order of their names.

    `types`, str [m], or None where all edges are one relation, "edges". Weights of edges repeated within a type are
    added where the rules say so, else the first counts.
    """
    rules = replace(rules, duplicates="sum" if rules.duplicates == "sum" else "drop")
    names = ["edges"] if types is None else sorted(set(types.tolist()))
    found = []
    for name in names:
        chosen = slice(None) if types is None else types == name
        some = None if weights is None else weights[chosen]
        found.append(Relation.of(str(name), as_csr(directed(edges[chosen], some, n_nodes, rules))))
    return tuple(found)


def typed_adjacency(
    edges: NumpyArray,
    weights: NumpyArray | None,
    types: NumpyArray | None,
    n_nodes: int,
    rules: EdgeRules,
    where: str,
    naming: Naming,
) -> Csr:
    """Returns the adjacency of edges of all types together: an edge may be there once in each type.

    Weights of two nodes' edges of several types are added; without weights an edge of several types is one edge.
    Arguments as of `build_adjacency`, with `types` str [m], or None where an edge has none.

    Raises:
        InputError: see `build_adjacency`.
    """
    if types is None:
        return build_adjacency(edges, weights, n_nodes, rules, where, naming)
    numbers = np.unique(types, return_inverse=True)[1]
    key = (numbers * n_nodes + edges[:, 0]) * n_nodes + edges[:, 1]
    first = np.unique(key, return_index=True)[1]
    if rules.duplicates in STRICT and len(first) < len(key):
        at = int(np.setdiff1d(np.arange(len(key)), first)[0])
        u, v = (naming.node(int(end)) for end in edges[at])
        what = f"{where}: edges must be listed once in each type, but {naming.edge(at)} ({u}, {v}) is there before"
        raise FaultsError([f"{what}: pass duplicates='drop' or 'sum' (command line: --duplicates drop)"])
    if rules.duplicates == "drop":
        first = np.sort(first)
        edges, weights = edges[first], None if weights is None else weights[first]
    united = replace(rules, duplicates="drop" if weights is None and rules.duplicates != "sum" else "sum")
    return build_adjacency(edges, weights, n_nodes, united, where, naming)


def check_relations(relations: tuple[Relation, ...], n_nodes: int, where: str) -> None:
    """Checks that relations have names of their own and lie between the nodes of the graph."""
    names = [relation.name for relation in relations]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: every relation must have its own name, got {listed(names)}: rename one")
    for relation in relations:
        for matrix in (relation.out, relation.into):
            if matrix.shape != (n_nodes, n_nodes):
                raise InputError(
                    f"{where}: relation {relation.name!r} must join the {n_nodes} nodes of the graph, got shape "
                    f"{matrix.shape}"
                )
            try:
                matrix.check_structure(f"relation {relation.name!r}")
            except ValueError as error:
                raise InputError(f"{where}: {error}") from error


def relation_arrays(relations: tuple[Relation, ...]) -> dict[str, NumpyArray]:
    """Returns relations as arrays by name, which `stored_relations` reads."""
    arrays: dict[str, NumpyArray] = {}
    for i, relation in enumerate(relations):
        out = relation.out.to("cpu")
        for part in ("indptr", "indices", "values"):
            arrays[f"relation{i}_{part}"] = getattr(out, part).numpy()
    return arrays


def stored_relations(arrays: Any, names: tuple[str, ...], n_nodes: int, where: str) -> tuple[Relation, ...]:
    """Returns stored relations."""
    found = []
    for i, name in enumerate(names):
        try:
            indptr, indices, values = (
                torch.from_numpy(arrays[f"relation{i}_{part}"]) for part in ("indptr", "indices", "values")
            )
            found.append(Relation.of(name, Csr(indptr, indices, values, n_nodes)))
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"{where}: relation {name!r} is missing or damaged ({error}): write it again") from error
    return tuple(found)
