"""Labels and split of a node table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from calirare._util.amounts import amount
from calirare._util.array_files import NumpyArray
from calirare.graph.columns import Column
from calirare.graph.splits import PARTS, Split
from calirare.graph.table_files import as_float, place
from calirare.graph.table_sources import Source

# Whole numbers up to this one are told apart in float64; the next one, 2^53, is also what 2^53 + 1 becomes.
MAX_WHOLE = 2**53 - 1
# What programs write for a missing number; beside numbers it is no name of a class.
MISSING_NUMBERS = ("nan", "na", "n/a", "null", "none")
NOTHING_KNOWN = frozenset(MISSING_NUMBERS) | {
    *("?", "-", "unknown", "unlabelled", "unlabeled", "missing", "undefined", "not known", "pending", "open", "todo"),
    *("to do", "tbd", "undecided", "unclear", "unreviewed", "not reviewed", "in review", "under review"),
    *("under investigation", "unchecked", "not checked"),
}
MOST_CLASSES, MOST_SHOWN = 10, 3  # of columns that may hold labels


def labels_of(column: Any, path: Source | str, faults: list[str]) -> tuple[torch.Tensor | None, tuple[str, ...]]:
    """Returns the labels as numbers, -1 for unknown, and the names of the classes."""
    cells = column.astype(str).where(column.notna(), "").str.strip()
    numbers = as_float(cells.str.lower().replace({"true": "1", "false": "0"}))
    known = (cells != "").to_numpy() & (numbers != -1)
    cells, numbers = cells[known], numbers[known]
    words = np.isnan(numbers)
    missing = cells.str.lower().isin(MISSING_NUMBERS).to_numpy()
    # Classes such as 007 are names: as numbers they would come back without their zeros.
    if cells.str.fullmatch(r"0\d+").any() or (words & ~missing).any() or words.all():
        classes, inverse = np.unique(cells.to_numpy().astype(str), return_inverse=True)
    else:
        wrong = words | (numbers != np.floor(numbers)) | (numbers < 0) | (numbers > MAX_WHOLE)
        if wrong.any():
            at = int(np.argmax(wrong))
            faults.append(
                f"{path}: labels must be names or whole numbers from 0, empty or -1 where unknown, but column "
                f"{column.name!r} holds {cells.iloc[at]} in {place(int(np.flatnonzero(known)[at]), path)}: mend the "
                "cell or name the label column (command line: --label)"
            )
            return None, ()
        classes, inverse = np.unique(numbers.astype(np.int64), return_inverse=True)
    y = np.full(len(column), -1, dtype=np.int64)
    y[known] = inverse
    faults += written_twice([str(name) for name in classes], np.bincount(inverse), f"{path}: column {column.name!r}")
    return torch.from_numpy(y), tuple(str(name) for name in classes)


def written_twice(names: list[str], counts: NumpyArray, where: str) -> list[str]:
    """Returns the fault that two classes differ in capitals alone, if two do: the second would count as the rest."""
    plain = [name.casefold() for name in names]
    again = next((i for i, name in enumerate(plain) if name in plain[:i]), None)
    if again is None:
        return []
    first = plain.index(plain[again])
    return [
        f"{where} must name a class in one way, but holds {names[first]!r} ({amount(int(counts[first]), 'node')}) and "
        f"{names[again]!r} ({counts[again]:,}): write them alike"
    ]


def nothing_known(y: torch.Tensor | None, names: tuple[str, ...]) -> str:
    """Returns a note where a class is called as a cell is where nothing is known, else "".

    Args:
        y: the labels, int64 [n], -1 for unknown; or None.
        names: of the classes.
    """
    plain = [{name.lower(), name.lower().replace("_", " ").replace("-", " ")} for name in names]
    at = next((k for k, written in enumerate(plain) if written & NOTHING_KNOWN), None)
    if y is None or at is None:
        return ""
    nodes = amount(int((y == at).sum()), "node")
    return (
        f"nodes: {names[at]!r} is a class of its own, that of {nodes}: where it means that nothing is known, leave the "
        "label empty"
    )


def split_of(column: Any, path: Source, faults: list[str]) -> Split | None:
    """Returns the split that a column of part names stands for."""
    parts = column.astype(str).where(column.notna(), "")
    wrong = np.flatnonzero(~parts.isin((*PARTS, "")).to_numpy())
    if len(wrong):
        faults.append(
            f"{path}: the column {column.name!r} must hold train, val, test or nothing, got "
            f"{parts.iloc[int(wrong[0])]!r} in {place(int(wrong[0]), path)}: mend it or rename the column"
        )
    elif (parts == "").all():
        faults.append(
            f"{path}: the column {column.name!r} must hold train, val and test, but it is empty in every row: fill it "
            "in, or remove it for a random split"
        )
    else:
        train, val, test = (torch.from_numpy(np.flatnonzero((parts == part).to_numpy())) for part in PARTS)
        return Split(train, val, test, "given")
    return None


def check_parts(split: Split | None, y: torch.Tensor | None, path: Source, faults: list[str]) -> None:
    """Finds rows that train or validate and have no label."""
    if split is None or y is None:
        return
    for part, nodes in (("train", split.train), ("val", split.val)):
        bare = nodes[y[nodes] < 0]
        if bare.numel():
            more = f" ({bare.numel():,} such rows)" if bare.numel() > 1 else ""
            faults.append(
                f"{path}: a row of the part {part!r} must have a label, {place(int(bare[0]), path)} has none{more}: "
                "label it or take it out of the part"
            )


def no_label_column(where: str, x: torch.Tensor, names: tuple[str, ...], columns: tuple[Column, ...]) -> str:
    """Returns what says that a node table has no labels, and which of its columns may hold them.

    A column may if it has two to ten different cells; where some such columns have empty cells or -1, those alone.

    Args:
        where: put in front.
        x: the features, float32 [n, d].
        names: of the columns.
        columns: what each holds, or none where all are numbers.
    """
    found = [(name, *_cells_of(x[:, i], columns[i] if columns else None)) for i, name in enumerate(names)]
    few = [(name, cells, gaps) for name, cells, gaps in found if 1 < len(cells) <= MOST_CLASSES]
    few = [column for column in few if column[2]] or few
    shown = [f"{name!r} ({', '.join([*cells, *gaps])})" for name, cells, gaps in few[:MOST_SHOWN]]
    also = f"; it may be {' or '.join(shown)}" if shown else ""
    return (
        f"{where}: training needs labels, but the node table has no column 'label' or 'y': say which one holds them "
        f"(command line: --label COLUMN; --label-table FILE for a table of its own){also}"
    )


def _cells_of(values: torch.Tensor, column: Column | None) -> tuple[list[str], list[str]]:
    """Returns the different cells of a column, at most eleven, without -1, and how many are unknown, where some are."""
    unknown = values.isnan() | (values == -1)
    different = values[~unknown].unique()[: MOST_CLASSES + 1].tolist()
    names = column.categories if column is not None else ()
    gaps = int(unknown.sum())
    return [names[int(value)] if names else f"{value:g}" for value in different], [f"{gaps:,} unknown"] if gaps else []
