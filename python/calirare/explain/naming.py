"""Nodes by what the user calls them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calirare._util.amounts import quoted
from calirare._util.errors import InputError, UnknownNodeError
from calirare.graph import Graph, names_in_words
from calirare.graph.tables import why_unknown

Nodes: TypeAlias = str | int | Sequence[str | int] | Tensor


def nodes_named(graph: Graph, wanted: Nodes, who: str = "explain") -> Tensor:
    """Returns the numbers of nodes, int64 [n], each once.

    Args:
        graph: the graph.
        wanted: names where the graph has names, else numbers, or one alone; a tensor of whole numbers holds numbers in
            any case.
        who: put in front of a message.

    Raises:
        InputError: a node is unknown, or there is none.
    """
    wanted = [wanted] if isinstance(wanted, str | int | np.integer) else wanted
    dtype = str(getattr(wanted, "dtype", "")).removeprefix("torch.")
    if "bool" in dtype or (isinstance(wanted, Tensor) and (wanted.is_floating_point() or wanted.is_complex())):
        raise InputError(
            f"{who}: nodes must be names or whole numbers, got {dtype}: of a mask take mask.nonzero()[:, 0], or "
            "np.flatnonzero"
        )
    if isinstance(wanted, Tensor) and wanted.numel():
        wrong = wanted[(wanted < 0) | (wanted >= graph.n_nodes)].tolist()
        if wrong:
            raise UnknownNodeError(_unknown(graph, [str(number) for number in wrong], who))
        return torch.tensor([*dict.fromkeys(wanted.flatten().tolist())], dtype=torch.int64, device=graph.device)
    names = [*dict.fromkeys(str(name) for name in wanted)]
    if not names:
        raise InputError(f"{who}: name at least one node")
    if graph.node_names is not None:
        places = {str(name): i for i, name in enumerate(graph.node_names)}
    else:
        places = {name: int(name) for name in names if name.isdecimal() and int(name) < graph.n_nodes}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise UnknownNodeError(_unknown(graph, unknown, who))
    return torch.tensor([*dict.fromkeys(places[name] for name in names)], dtype=torch.int64, device=graph.device)


def _unknown(graph: Graph, names: list[str], who: str) -> str:
    """Returns what is wrong with names of nodes, and what may have been meant."""
    if graph.node_names is None:
        known = f"its nodes are numbers from 0 to {graph.n_nodes - 1}"
    else:
        known = why_unknown(names[0], graph.node_names) or _close(names[0], graph.node_names)
    return f"{who}: graph {graph.name!r} has no node {names_in_words(names, 5)}: {known}"


def _close(name: str, names: NDArray[np.generic]) -> str:
    """Returns which node may have been meant, or how the first ones are called."""
    close = get_close_matches(name, map(str, names), 1)
    if close:
        return f"did you mean {quoted(close[0])}?"
    return f"its nodes are called {names_in_words([str(each) for each in names[:3]], 3)}, .."
