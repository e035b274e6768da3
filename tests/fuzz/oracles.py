"""What a case may end in: a refusal in short printable lines, or a result that is sound."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare import InputError
from calirare._util.errors import LONGEST
from calirare.graph import Graph
from calirare_ext import Csr

FAULTS = 22  # lines of a message: a head, twenty faults, and how many more there are


def short(line: str) -> bool:
    """Returns whether a line of a message is printable and not too long."""
    return bool(line) and line.isprintable() and len(line) <= LONGEST


def refused(work: Callable[[], object], kinds: tuple[type[Exception], ...] = (InputError,)) -> bool:
    """Returns whether the work was refused; a message must be printable lines of bounded length, one per fault."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    except kinds as error:
        frame = traceback.extract_tb(error.__traceback__)[-1].filename
        if not isinstance(error, InputError) and "calirare" not in frame:
            raise AssertionError(f"not said by us: {type(error).__name__}: {error}") from error
        lines = str(error).split("\n")
        if isinstance(error, InputError) and (len(lines) > FAULTS or not all(map(short, lines))):
            raise AssertionError(f"not short printable lines: {lines!r}") from error
        return True
    return False


def finite(value: Any) -> None:
    """Checks that every number of a result is finite."""
    if isinstance(value, Tensor | np.ndarray | float):
        assert bool(torch.as_tensor(value).isfinite().all()), "finite"
    elif isinstance(value, Mapping):
        finite(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            finite(each)


def sound(graph: Graph) -> None:
    """Checks what everything that works on a graph rests on."""
    a, n = graph.adjacency, graph.n_nodes
    a.check_structure()
    dense = a.to_dense()
    assert bool((dense == dense.T).all())
    assert bool((a.values > 0).all())
    x = graph.x.values if isinstance(graph.x, Csr) else graph.x
    assert not bool((x.isinf() if graph.columns else ~x.isfinite()).any()), "only raw columns may have gaps"
    assert graph.x.shape[0] == n
    assert graph.y is None or (graph.y.shape == (n,) and -1 <= int(graph.y.min()) <= int(graph.y.max()) < n)
    assert len(set(graph.feature_names)) == len(graph.feature_names)
