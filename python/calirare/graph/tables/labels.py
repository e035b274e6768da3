"""Labels and split of a node table."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from calirare._util.amounts import amount, listed
from calirare._util.array_files import NumpyArray
from calirare.graph.columns import names_in_words
from calirare.graph.spelling import MAX_WHOLE, as_option, class_key, plain_class, spellings_of
from calirare.graph.splits import PARTS, Split
from calirare.graph.tables.files import Table

# What programs write for a missing number; among numbers it is no name of a class.
MISSING_NUMBERS = ("nan", "na", "n/a", "null", "none")
NOTHING_KNOWN = frozenset(MISSING_NUMBERS) | {
    *("?", "??", "-", "--", "n.a.", "unk", "unknown", "unlabelled", "unlabeled", "not labelled", "not labeled"),
    *("no label", "nolabel", "missing", "undefined", "not known", "pending", "open", "todo"),
    *("to do", "tbd", "undecided", "unclear", "unreviewed", "not reviewed", "in review", "under review"),
    *("under investigation", "unchecked", "not checked"),
}
NO_LABEL = ("", "-1")  # the cells that stand for no label in every table
MOST_CLASSES = 10  # in a message


class ReadLabels(NamedTuple):
    """A column of labels as it was read.

    Attributes:
        y: the labels as numbers, -1 for unknown, int64 [n]; None where the column has a fault.
        names: of the classes.
        absent: values that were named as no label and that no cell has.
        of: what has a label.
    """

    y: torch.Tensor | None
    names: tuple[str, ...]
    absent: tuple[str, ...] = ()
    of: str = "node"

    def notes(self) -> tuple[str, ...]:
        """Returns notes on what may stand for no label: classes with such a name, and named values that no cell has."""
        if self.y is None:
            return ()
        plain = [{name.lower(), name.lower().replace("_", " ").replace("-", " ")} for name in self.names]
        found = [k for k, written in enumerate(plain) if written & NOTHING_KNOWN]
        notes = []
        if found:
            counted = [f"{self.names[k]!r} ({amount(int((self.y == k).sum()), self.of)})" for k in found]
            notes.append(
                f"{self.of}s: {' and '.join(counted)} is read as a class. If it means no label, pass "
                f"{as_option([self.names[k] for k in found])} or leave the label empty"
            )
        if self.absent and self.names:
            there = names_in_words(self.names, MOST_CLASSES)
            notes.append(
                f"{self.of}s: --unknown names {listed(self.absent)}, but no label is that; the labels are {there}"
            )
        return tuple(notes)


def labels_of(
    table: Table, name: str, unknown: Sequence[str] = (), rare: object = None, of: str = "node"
) -> ReadLabels:
    """Reads a column of labels: the one reader of every table that has labels.

    An empty cell and -1 are unknown. Labels are numbers where all are (1.0 is 1, true and false are 1 and 0), else
    names. Blanks around a cell are cut, and two names that differ only in capitals are a fault.

    Args:
        table: takes what is wrong.
        name: of the column.
        unknown: further values that stand for no label, by `class_key`.
        rare: a class that is one though it is called -1; None: no such class.
        of: what has a label.
    """
    row_of, spellings = spellings_of(table.cells[name])
    plain = [plain_class(each) for each in spellings]
    keys = [each.casefold() for each in plain]
    own, named_so = class_key(rare), set(map(class_key, unknown))
    nothing = {key for key in NO_LABEL if key != own} | named_so
    absent = tuple(value for value in unknown if class_key(value) not in keys)
    known = [k for k, key in enumerate(keys) if key not in nothing]
    numbers = {k: _number(keys[k]) for k in known}
    words = [k for k in known if math.isnan(numbers[k])]
    # Classes such as 007 are names: as numbers they would come back without their zeros.
    zeros = any(re.fullmatch(r"0\d+", spellings[k]) for k in known)
    written: dict[str, Any] = {}
    if zeros or len(words) == len(known) or any(keys[k] not in MISSING_NUMBERS for k in words):
        for k in known:
            written[plain[k]] = min(spellings[k], written.get(plain[k], spellings[k]))
    else:
        wrong = [k for k in known if not (0 <= numbers[k] <= MAX_WHOLE and numbers[k] % 1 == 0) and keys[k] != own]
        if wrong:
            odd = spellings[wrong[0]]
            table.fault(
                "labels must be names or whole numbers from 0, empty or -1 where unknown, but column "
                f"{name!r} holds {odd} in",
                np.isin(row_of, wrong),
                f"fix the cell, name another label column, or, if it means no label, pass {as_option([odd])}",
            )
            return ReadLabels(None, (), absent, of)
        written = {plain[k]: int(numbers[k]) for k in known}
    classes = sorted(set(written.values()))
    number = {each: k for k, each in enumerate(classes)}
    of_spelling = np.full(len(spellings), -1, dtype=np.int64)
    of_spelling[known] = [number[written[plain[k]]] for k in known]
    y, names = of_spelling[row_of], tuple(map(str, classes))
    counts = np.bincount(y[y >= 0], minlength=len(names))
    table.faults += _written_twice(names, counts, f"{table.path}: column {name!r}", of)
    return ReadLabels(torch.from_numpy(y), names, absent, of)


def _number(key: str) -> float:
    """Returns a cell as a number, NaN where it is none."""
    try:
        return math.nan if "_" in key else float(key)
    except ValueError:
        return math.nan


def _written_twice(names: Sequence[str], counts: NumpyArray, where: str, of: str) -> list[str]:
    """Returns the fault that two classes differ only in capitals, if two do: the second would count as the rest."""
    plain = [name.casefold() for name in names]
    again = next((i for i, name in enumerate(plain) if name in plain[:i]), None)
    if again is None:
        return []
    first = plain.index(plain[again])
    return [
        f"{where} must name a class in one way, but holds {names[first]!r} ({amount(int(counts[first]), of)}) and "
        f"{names[again]!r} ({counts[again]:,}): write them alike"
    ]


def split_of(table: Table, name: str) -> Split | None:
    """Returns the split that a column of part names stands for."""
    column = table.cells[name]
    parts = column.astype(str).where(column.notna(), "").str.strip()
    wrong = ~parts.isin((*PARTS, "")).to_numpy()
    if wrong.any():
        must = f"the column {name!r} must hold train, val, test or nothing, got {parts.iloc[np.argmax(wrong)]!r} in"
        table.fault(must, wrong, "fix the cell or rename the column")
    elif (parts == "").all():
        table.faults.append(
            f"{table.path}: the column {name!r} must hold train, val and test, but it is empty in every row: fill it "
            "in, or remove it for a random split"
        )
    else:
        train, val, test = (torch.from_numpy(np.flatnonzero((parts == part).to_numpy())) for part in PARTS)
        return Split(train, val, test, "given")
    return None


def check_parts(split: Split | None, y: torch.Tensor | None, table: Table) -> None:
    """Finds rows that train or validate and have no label."""
    if split is None or y is None:
        return
    for part, nodes in (("train", split.train), ("val", split.val)):
        bare = np.zeros(len(y), dtype=bool)
        bare[nodes] = (y[nodes] < 0).numpy()
        if bare.any():
            what = f"a row of the part {part!r} must have a label, but there is none in"
            table.fault(what, bare, "label it or take it out of the part")


def no_label_column(where: str, names: Sequence[str]) -> str:
    """Returns what says that a node table has no labels, and which other columns it has."""
    return (
        f"{where}: training needs labels, but the node table has no column 'label' or 'y': say which one holds them "
        "(command line: --label COLUMN; --labels-file FILE for a table of its own); the columns are "
        f"{names_in_words(names, MOST_CLASSES)}"
    )
