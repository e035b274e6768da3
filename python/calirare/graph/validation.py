"""What a graph must satisfy: one function per part, each fault one message: where, and how to fix it."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import listed
from calirare._util.array_files import release
from calirare._util.errors import InputError, cut
from calirare.graph.arrays import dtype_of, scipy_of_csr
from calirare.graph.spelling import find_name
from calirare.graph.splits import PARTS, Split
from calirare_ext import Csr

# Rows looked at together, so that a check of a large dense matrix needs little extra memory.
CHUNK = 65536
# Squares of larger numbers, and sums of them over neighbours and nodes, leave float32.
MAX_FEATURE = 1e19


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Puts `where` in front of the message of an InputError raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def check_adjacency(adjacency: Csr, where: str, name: Callable[[int], str] = str) -> None:
    """Checks that an adjacency [n, n] is symmetric, with finite float32 weights > 0 and a sound structure."""
    n = adjacency.n_rows
    _check_constant(adjacency.values, "edge weights", where)
    if adjacency.dtype != torch.float32:
        raise TypeError(f"{where}: adjacency must have float32 weights, got {adjacency.dtype}")
    if n == 0:
        raise InputError(f"{where}: a graph must have at least one node, got none")
    if adjacency.n_cols != n:
        raise InputError(f"{where}: adjacency must be square, got shape {adjacency.shape}")
    try:
        adjacency.check_structure("adjacency")
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    weights = adjacency.values
    if adjacency.nnz and float(weights.min()) <= 0:
        at = int(weights.argmin())
        u, v = int(adjacency.rows()[at]), int(adjacency.indices[at])
        raise InputError(
            f"{where}: edge weights must be > 0, got {float(weights[at])} at edge ({name(u)}, {name(v)}): remove the "
            "edge"
        )
    _check_symmetry(adjacency, where, name)


def _check_constant(values: Tensor, what: str, where: str) -> None:
    """Checks that no gradient is wanted: a graph is never trained."""
    if values.requires_grad:
        raise InputError(f"{where}: {what} must not require a gradient, got a tensor that does: call detach()")


def _check_symmetry(adjacency: Csr, where: str, name: Callable[[int], str]) -> None:
    """Checks that every edge has an opposite edge with the same weight."""
    a = scipy_of_csr(adjacency)
    # The transposition sorts by counting, which takes a fraction of the time of a comparison sort.
    t = a.T.tocsr()
    if all(np.array_equal(getattr(a, part), getattr(t, part)) for part in ("indptr", "indices", "data")):
        return
    wrong = (a - t).tocoo()
    u, v = int(wrong.row[0]), int(wrong.col[0])
    u, v = (u, v) if a[u, v] else (v, u)
    there, back = f"({name(u)}, {name(v)})", f"({name(v)}, {name(u)})"
    fault = (
        f"{there} has weight {a[u, v]:g} and {back} has weight {a[v, u]:g}"
        if a[v, u]
        else f"edge {there} has no opposite edge {back}"
    )
    raise InputError(
        f"{where}: adjacency must be symmetric, but {fault}: pass symmetrize=True (command line: --symmetrize)"
    )


def has_self_loop(adjacency: Csr) -> bool:
    """Returns whether an edge joins a node to itself; needs little extra memory."""
    indptr, n = adjacency.indptr, adjacency.n_rows
    for start in range(0, n, CHUNK):
        ends = indptr[start : min(start + CHUNK, n) + 1]
        rows = torch.arange(start, start + ends.numel() - 1, device=indptr.device).repeat_interleave(ends.diff())
        if bool((rows == adjacency.indices[int(ends[0]) : int(ends[-1])]).any()):
            return True
    return False


def check_features(
    x: Tensor | Csr,
    n_nodes: int,
    where: str,
    feature_names: Sequence[str] = (),
    node_name: Callable[[int], str] = str,
) -> bool:
    """Checks features [n, d]: float32, one row per node, within `MAX_FEATURE`; returns whether one is missing (NaN)."""

    def fault(node: int, column: int, value: float) -> InputError:
        of = repr(cut(feature_names[column], 60)) if column < len(feature_names) else str(column)
        must = f"be from {-MAX_FEATURE:g} to {MAX_FEATURE:g}"
        mend = "correct the cell, or scale the column before (a sum of squares would leave float32)"
        if not math.isfinite(value):
            must = "be finite"
            mend = "fill it in or remove the node; numbers are kept in float32, up to 3.4e38"
        got = f"got {value:g} at node {node_name(node)}, column {of}"
        return InputError(f"{where}: features must {must}, {got}: {mend}")

    _check_constant(x.values if isinstance(x, Csr) else x, "features", where)
    if x.dtype != torch.float32:
        raise TypeError(f"{where}: x must be float32, got {dtype_of(x)}")
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise InputError(
            f"{where}: features must be a table with at least one column, got shape {tuple(x.shape)}: of nodes of "
            "which nothing is known take Graph.from_edges(edges, None, labels)"
        )
    if x.shape[0] != n_nodes:
        raise InputError(f"{where}: features must have one row per node, got {x.shape[0]} rows for {n_nodes} nodes")
    if isinstance(x, Csr):
        try:
            x.check_structure("features")
        except ValueError as error:
            raise InputError(
                f"{where}: {error}: fix or remove it; numbers are stored in float32, up to 3.4e38"
            ) from error
        if x.nnz and float(x.values.abs().max()) > MAX_FEATURE:
            at = int(x.values.abs().argmax())
            raise fault(int(x.rows()[at]), int(x.indices[at]), float(x.values[at]))
        return False
    missing = False
    for start in range(0, n_nodes, CHUNK):
        part = x[start : start + CHUNK]
        wrong = ~(part.abs() <= MAX_FEATURE)
        release(x)
        if not bool(wrong.any()):
            continue
        wrong &= ~part.isnan()
        missing = True
        if bool(wrong.any()):
            row, column = (int(i) for i in wrong.nonzero()[0])
            raise fault(start + row, column, float(part[row, column]))
    return missing


def check_labels(y: Tensor, n_nodes: int, n_classes: int, what: str, where: str) -> None:
    """Checks labels int64 [n]: -1 (unknown) or a class below `n_classes`, which is 0 if it follows from them."""
    if y.dtype != torch.int64:
        raise TypeError(f"{where}: {what} must be int64, got {dtype_of(y)}")
    if y.shape != (n_nodes,):
        raise InputError(f"{where}: {what} must be one label per node, got shape {tuple(y.shape)} for {n_nodes} nodes")
    # No graph has more classes than nodes: a larger number is no class but some other column.
    top = n_classes or n_nodes
    wrong = (y < -1) | (y >= top)
    if bool(wrong.any()):
        node = int(wrong.nonzero()[0])
        raise InputError(
            f"{where}: {what} must be classes from 0 to {top - 1}, or -1 for unknown, got {int(y[node])} at node "
            f"{node}: number the classes from 0"
        )


def check_per_node(values: Any, n_nodes: int, what: str, where: str) -> None:
    """Checks that values, where there are any, are one per node."""
    if values is not None and tuple(values.shape) != (n_nodes,):
        raise InputError(f"{where}: {what} must have one entry per node, got {tuple(values.shape)} for {n_nodes} nodes")


def check_times(time: Tensor | None, y: Tensor | None, where: str, name: Callable[[int], str]) -> None:
    """Checks that times of nodes are float64 and known of every labelled node; arguments as of `check_scored`.

    Raises:
        TypeError: they are not float64.
        InputError: a labelled node has none.
    """
    if time is None:
        return
    if time.dtype != torch.float64:
        raise TypeError(f"{where}: time must be float64, got {dtype_of(time)}")
    lacking = time.isinf() if y is None else ~time.isfinite() & (y >= 0)
    if bool(lacking.any()):
        node = name(int(lacking.nonzero()[0]))
        raise InputError(f"{where}: the labelled node {node} must have a finite time: fill it in or drop its label")


def check_scored(scored: Tensor | None, y: Tensor | None, n_nodes: int, where: str, name: Callable[[int], str]) -> None:
    """Checks which nodes are scored, bool [n] or None: some node, and every one with a label in y."""
    if scored is None:
        return
    if not isinstance(scored, Tensor) or scored.dtype != torch.bool:
        raise TypeError(f"{where}: scored must be a bool tensor, True for the scored nodes")
    check_per_node(scored, n_nodes, "scored", where)
    if n_nodes and not bool(scored.any()):
        raise InputError(
            f"{where}: there must be a target node, got none: name them (command line: --target-nodes COLUMN=VALUE)"
        )
    beside = torch.empty(0) if y is None else ((y >= 0) & ~scored).nonzero().flatten()
    if beside.numel():
        raise InputError(
            f"{where}: every node with a label must be a target node, but node {name(int(beside[0]))!r} has one and is "
            f"auxiliary ({beside.numel():,} in all): make it a target node, or remove its label"
        )


def check_names(names: Any, what: str, where: str) -> None:
    """Checks that names are no floats that have lost digits, and no two are the same; `what` they name."""
    given = np.asarray(names)
    if given.dtype.kind == "f" and (np.abs(given) >= 2.0 ** (np.finfo(given.dtype).nmant + 1)).any():
        raise InputError(f"{where}: {what} must not be floats, which lose digits: read them as text or int64")
    sorted_names = np.sort(np.asarray(names, dtype=str))
    repeated = np.flatnonzero(sorted_names[1:] == sorted_names[:-1])
    if not len(repeated):
        return
    twice = str(sorted_names[repeated[0]])
    first, second = _places(names, twice)
    raise InputError(
        f"{where}: {what} must differ, but {twice!r} stands at {first} and at {second}, counted from 0: rename one"
    )


def _places(names: Any, name: str) -> tuple[int, int]:
    found = (i for i, other in enumerate(names) if str(other).rstrip("\0") == name)  # numpy drops NULs at the end
    return next(found), next(found)


def check_split(split: Split, y: Tensor | None, n_nodes: int, where: str) -> None:
    """Checks that every node of a split exists and, where the graph has labels `y`, has one."""
    for part in PARTS:
        nodes = getattr(split, part)
        if nodes.numel() and int(nodes[-1]) >= n_nodes:
            raise InputError(f"{where}: {part} nodes must be from 0 to {n_nodes - 1}, got {int(nodes[-1])}")
        if y is not None and bool((y[nodes] < 0).any()):
            node = int(nodes[y[nodes] < 0][0])
            raise InputError(f"{where}: {part} nodes must have a label, node {node} has none: take it out of the split")


def name_of_rest(names: tuple[str, ...], k: int) -> str:
    """Returns what all classes but one are called together: the other of two, where it has a name and no number."""
    others = [name for c, name in enumerate(names) if c != k]
    if len(others) == 1 and not others[0].strip().lstrip("+-").replace(".", "", 1).isdecimal():
        return others[0]
    return "rest" if names[k] != "rest" else "others"


def find_class(wanted: int | str, names: tuple[str, ...], graph_name: str) -> int:
    """Returns the number of a class given by name or number.

    A number that is also a name means the class of that name. Where all names are numbers, of labels such as 1 and 2,
    no number means a place among them. A name may be written in another way, see `find_name`.

    Raises:
        InputError: there is no such class.
    """
    found = find_name(wanted, names)
    if found is not None:
        return found
    try:
        k = int(wanted) if isinstance(wanted, str) else operator.index(wanted)
    except (ValueError, TypeError):
        k = -1
    named = all(name.isdecimal() for name in names)
    if 0 <= k < len(names) and not named:
        return k
    more = "" if len(names) <= 20 else f" and {len(names) - 20} more"
    raise InputError(
        f"graph {graph_name!r}: there is no class {wanted!r}. The classes are {listed(names[:20])}{more} (--rare-class)"
    )


def check_class_beside_others(y: Tensor, k: int, names: tuple[str, ...], graph_name: str) -> None:
    """Checks that some labels y are of class k, and some are not."""
    counts = torch.bincount(y[y >= 0], minlength=len(names))
    if int(counts[k]) == 0:
        raise InputError(f"graph {graph_name!r}: the rare class {names[k]!r} must have nodes, it has none")
    if int(counts[k]) == int(counts.sum()):
        raise InputError(one_class(graph_name, names[k]))


def one_class(graph_name: str, name: str) -> str:
    """Returns the message for a graph whose labelled nodes are all of one class."""
    return (
        f"graph {graph_name!r}: training needs two classes, but every labelled node is {name!r} (-1 stands "
        "for unknown, 0 for not rare). Label others too, or if only rare nodes are ever labelled, pass "
        "positive_only=True (command line: --positive-only)"
    )
