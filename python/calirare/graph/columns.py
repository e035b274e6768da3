"""What the columns of a table hold before they are numbers to learn from: amounts, names of kinds, days."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from calirare._util.amounts import quoted
from calirare._util.array_files import release
from calirare._util.errors import InputError, cut
from calirare.graph.arrays import Parts
from calirare_ext import Csr

Kind = Literal["numeric", "categorical", "date"]
CHUNK = 65536  # rows looked at together
NEIGHBOURS = "neighbours"  # the feature of nodes that have none: how many neighbours they have
LONGEST = 60  # characters of a name in a sentence that lists some
EPOCH = "2000-01-01"  # days are counted from here, in UTC


@dataclass(frozen=True)
class Column:
    """What one raw column of a graph's features holds; a missing value is NaN, whatever the kind.

    Attributes:
        name: the user's.
        kind: "numeric"; "categorical": the number of a category, 0 to len(categories) - 1; "date": days since the
            start of the year 2000 (UTC). A float32 holds every day of history exactly, and the time of day to within
            a minute until 2044; seconds would lose whole days.
        categories: names of the categories, no two alike.
    """

    name: str
    kind: Kind = "numeric"
    categories: tuple[str, ...] = ()


def with_neighbours(parts: Parts, whose: str = "they") -> Parts:
    """Returns the parts of a graph with the number of neighbours as a feature, and a note on whose features lack."""
    degrees = parts["adjacency"].indptr.diff().float()[:, None]
    x, names, columns = parts["x"], parts.get("feature_names", ()), parts.get("columns", ())
    return parts | {
        "x": torch.cat([degrees, x], 1),
        "feature_names": (NEIGHBOURS, *names),
        "columns": (Column(NEIGHBOURS), *columns) if len(columns) == x.shape[1] else (),
        "notes": (
            *parts.get("notes", ()),
            f"nodes: {whose} have no features, the number of neighbours is one: {NEIGHBOURS!r}",
        ),
    }


def columns_for(columns: tuple[Column, ...], given: tuple[str, ...], x: Tensor | Csr, gaps: bool) -> tuple[Column, ...]:
    """Returns columns by the names given to features; of numbers where values are missing and there are none."""
    if not columns:
        return number_columns(given or default_names(x.shape[1])) if gaps else ()
    if not has_default_names([column.name for column in columns]) or len(given) != len(columns):
        return columns
    return tuple(replace(column, name=name) for column, name in zip(columns, given, strict=True))


def names_of_features(
    columns: tuple[Column, ...], given: tuple[str, ...], n_features: int, where: str
) -> tuple[str, ...]:
    """Returns the names of the features: those of columns, else the given ones, which must be the same and fit."""
    names = tuple(column.name for column in columns) or given
    if given not in ((), names):
        raise InputError(f"{where}: columns must be named as feature_names says: leave feature_names out")
    if names and len(names) != n_features:
        raise InputError(
            f"{where}: feature_names must have one entry per feature, got {len(names)} for {n_features} features"
        )
    return names


def check_columns(columns: tuple[Column, ...], x: Tensor | Csr, where: str) -> None:
    """Checks that raw columns describe dense features, one each, every number of a category there."""
    if not columns:
        return
    if isinstance(x, Csr):
        raise InputError(f"{where}: columns with kinds need dense features, got sparse ones: leave columns out")
    if len(columns) != x.shape[1]:
        raise InputError(f"{where}: columns must be one per feature, got {len(columns)} for {x.shape[1]} features")
    for column in columns:
        if column.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise InputError(f"{where}: column {column.name!r} must be {kinds}, got {column.kind!r}")
    places = [i for i, column in enumerate(columns) if column.kind == "categorical"]  # others are finite, as all are
    n = torch.tensor([len(columns[i].categories) for i in places], device=x.device)
    for start in range(0, len(x) if places else 0, CHUNK):
        values = x[start : start + CHUNK, places]
        release(x)
        wrong = (values < 0) | (values >= n) | (values.floor() != values) & ~values.isnan()
        if bool(wrong.any()):
            row, k = (int(at) for at in wrong.nonzero()[0])
            raise InputError(
                f"{where}: column {columns[places[k]].name!r} must hold numbers of its {int(n[k])} categories, got "
                f"{float(values[row, k])} at node {start + row}"
            )


def unmapped(columns: tuple[Column, ...], x: Tensor, node_name: Callable[[int], str]) -> str:
    """Returns what keeps raw columns [n, d] from being numbers to compute with, a few columns by name; else ""."""
    said = []
    for kind, holds in (("categorical", "names of categories"), ("date", "dates")):
        found = [column.name for column in columns if column.kind == kind]
        said += [f"{names_in_words(found)} hold{'s' * (len(found) == 1)} {holds}"] if found else []
    gaps = torch.stack([part.isnan().sum(0) for part in x.split(CHUNK)]).sum(0)
    places = gaps.nonzero().flatten().tolist()
    if places:
        node = int(x[:, places[0]].isnan().nonzero()[0])
        said.append(
            f"{names_in_words([columns[i].name for i in places])} lack{'s' * (len(places) == 1)} {int(gaps.sum()):,} "
            f"value{'s' * (int(gaps.sum()) > 1)} (the first of node {node_name(node)})"
        )
    return ", ".join(said)


@lru_cache(maxsize=32)
def default_names(n_features: int) -> tuple[str, ...]:
    """Returns what features without names are called."""
    return tuple(f"feature {i}" for i in range(n_features))


def has_default_names(names: Sequence[str]) -> bool:
    """Returns whether nobody has named the features that are called so."""
    return tuple(names) == default_names(len(names))


@lru_cache(maxsize=32)
def number_columns(names: tuple[str, ...]) -> tuple[Column, ...]:
    """Returns columns of numbers."""
    return tuple(Column(name) for name in names)


def names_in_words(names: Sequence[str], most: int = 2, quote: Callable[[str], str] = quoted) -> str:
    """Returns names in words: the first ones, long ones cut, and how many more there are; `quote` writes each."""
    names = [quote(name if len(name) <= LONGEST else cut(name, LONGEST)) for name in names]
    if len(names) <= most + 1:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def columns_to_text(columns: tuple[Column, ...]) -> str:
    """Returns columns as JSON, which `columns_of_text` reads."""
    parts = [{"name": each.name, "kind": each.kind, "categories": each.categories} for each in columns]
    return json.dumps(parts, ensure_ascii=False)


def columns_of_text(text: Any, where: str) -> tuple[Column, ...]:
    """Returns columns that `columns_to_text` wrote."""
    try:
        return tuple(
            Column(str(each["name"]), cast(Kind, each["kind"]), tuple(map(str, each["categories"])))
            for each in json.loads(text)
        )
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{where}: columns must be as Graph.to_npz writes them ({error}): write them again") from error
