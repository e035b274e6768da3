"""A graph made like another: with its types of edges, or its names of categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph.category_names import places_of_names, plain_name
from calirare.graph.columns import Column, named
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
    if names is None or names == tuple(relation.name for relation in graph.relations):
        return graph
    plain = {plain_name(name): name for name in names}  # of an earlier release: in another spelling
    called = [plain.get(plain_name(relation.name), relation.name) for relation in graph.relations]
    here = {name: replace(relation, name=name) for name, relation in zip(called, graph.relations, strict=True)}
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


def weighs(graph: Graph) -> bool:
    """Returns whether edges have weights other than 1."""
    return bool((graph.adjacency.values != 1).any())


def note_weights(weighted: bool | None, here: bool, say: Callable[[str], None]) -> None:
    """Says where edges have weights and those of another graph had none, or the other way round.

    Args:
        weighted: whether edges of the other graph have weights other than 1; None: it is not known.
        here: whether these have.
        say: takes the note.
    """
    if weighted and not here:
        say(
            "no edge has a weight, but those of the run's graph have, so that P is of another graph: name the column "
            "of weights (--weight COLUMN, edge_weight of a Data)"
        )
    if weighted is False and here:
        say(
            "edges have weights, but those of the run's graph have none, so that P is of another graph: leave them out "
            "(of a table: --unweighted)"
        )


def with_categories_of(graph: Graph, columns: Sequence[Column]) -> Graph:
    """Returns a graph with the names of another's categories, where they are its own but for how they are written.

    So a table is again the graph that an earlier release made of it, which had "10.0" and "True" for 10 and true, and
    empty text for a name.

    Args:
        graph: any.
        columns: of the other, in the same order.
    """
    if not isinstance(graph.x, Tensor) or [each.name for each in graph.columns] != [each.name for each in columns]:
        return graph
    x, made = graph.x.clone(), list(graph.columns)
    for i, (here, then) in enumerate(zip(graph.columns, columns, strict=True)):
        if here == then or {here.kind, then.kind} != {"categorical"}:
            continue
        places = places_of_names(then.categories)
        if not all(name in places for name in here.categories):
            return graph
        known = ~x[:, i].isnan()
        numbers = torch.tensor([places[name] for name in here.categories], dtype=x.dtype, device=x.device)
        x[known, i] = numbers[x[known, i].long()]
        x[~known, i] = places.get("", torch.nan)
        made[i] = then
    return replace(graph, x=x, columns=tuple(made), trusted=True)
