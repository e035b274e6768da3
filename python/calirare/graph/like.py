"""A graph with the types of edges that another has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from calirare._util.errors import InputError
from calirare.graph.columns import named
from calirare.graph.graph import Graph
from calirare.graph.relations import Relation
from calirare_ext import Csr


def with_relations(graph: Graph, names: tuple[str, ...] | None, say: Callable[[str], None]) -> Graph:
    """Returns a graph with the relations that another has: those it lacks without an edge, and no others.

    Args:
        graph: any.
        names: of the other's; None: they are not known, and it stays as it is.
        say: takes a note on relations that are not there, or not there in the other.

    Raises:
        InputError: the other has relations, and this graph knows of none.
    """
    here = {relation.name: relation for relation in graph.relations}
    if names is None or names == tuple(here):
        return graph
    if names and not here and graph.n_edges:
        raise InputError(
            f"graph {graph.name!r}: its edges must have types or directions as those of the run's graph, "
            f"{named(names)}: name the column of types (--relation COLUMN), or say --directed"
        )
    lacking, more = [n for n in names if n not in here], [n for n in here if n not in names]
    if lacking and graph.n_nodes:
        say(f"no edge is of type {named(lacking)}, of which the run's graph has some")
    if more and names:
        say(f"edges of type {named(more)} count as edges alone, as the run's graph has none of that type")
    if more and not names:
        say("types and directions of edges are left out, as the run's graph has none")
    indptr = torch.zeros(graph.n_nodes + 1, dtype=torch.int64, device=graph.device)
    no_edge = Csr(indptr, indptr.new_empty(0, dtype=torch.int32), torch.empty(0, device=graph.device), graph.n_nodes)
    found = tuple(here.get(name) or Relation(name, no_edge, no_edge) for name in names)
    return replace(graph, relations=found, trusted=True)
