"""What a reviewer said of nodes, in one SQLite file: an answer is on the disk before it is shown as saved.

Nothing is ever overwritten: an answer is a row more, and undoing one marks its row. A node's answer is its last row
that is not undone.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pandas as pd

from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare._util.run_files import LIST
from calirare.run import UNKNOWN, inert

RARE, REST, UNSURE, SKIP = "rare", "rest", "unsure", "skip"
FORMAT, OF_CLASSES = "calirare review 1", "calirare review of classes 1"
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE said (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    answer TEXT NOT NULL CHECK (answer IN ({answers})),
    time TEXT NOT NULL,
    undone INTEGER NOT NULL DEFAULT 0
);
"""
LATEST = """
SELECT id, node, answer, time FROM said
WHERE id IN (SELECT max(id) FROM said WHERE undone = 0 GROUP BY node) ORDER BY id
"""


@dataclass(frozen=True)
class Said:
    """One answer.

    Attributes:
        number: of the answer, higher than that of every earlier one.
        node: what the user calls it.
        answer: one of `answers_of` the classes.
        time: when, UTC, ISO 8601.
    """

    number: int
    node: str
    answer: str
    time: str


def answers_of(class_names: Sequence[str]) -> tuple[str, ...]:
    """Returns what may be said of a node: each class, in their order, `UNSURE` and `SKIP`."""
    classes = (REST, RARE) if len(class_names) == 2 else tuple(f"class {c}" for c in range(len(class_names)))
    return (*classes, UNSURE, SKIP)


class Verdicts:
    """The answers in a file; a context manager that closes it.

    Args:
        path: of the file; made where it is not there.
        graph: checksum of the run's graph, which the file is held against.
        class_names: of the rest and of the rare class, or of all classes where there are more.

    Raises:
        InputError: the file cannot be made or read, is none of ours, or belongs to another graph.

    Attributes:
        answers: what may be said of a node.
    """

    def __init__(self, path: Path, graph: str, class_names: Sequence[str]) -> None:
        self.path, self.answers = path, answers_of(class_names)
        if len(class_names) == 2:
            facts = {"format": FORMAT, "graph": graph, "rest": class_names[0], "rare": class_names[1]}
        else:
            facts = {"format": OF_CLASSES, "graph": graph, "classes": json.dumps(list(class_names))}
        if (path.parent / LIST).exists():
            raise InputError(
                f"review: {path} lies in a run's folder, which is replaced as a whole: take an --out beside it"
            )
        if path.exists() and not path.is_file():
            raise InputError(f"review: {path} is no file, a file is wanted: take another --out")
        with self._faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Handlers of requests are threads; the server lets one of them at a time in.
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            with self._faults():
                self._prepare(facts)
        except BaseException:
            self._base.close()
            raise

    def _prepare(self, facts: dict[str, str]) -> None:
        """Makes the tables or checks those that are there; from here on a commit waits for the disk."""
        if self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # nothing foreign is touched
            self._check(facts)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = FULL")
        with self._written():
            if not self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                answers = ", ".join(f"'{answer}'" for answer in self.answers)
                for statement in TABLES.format(answers=answers).split(";"):
                    self._base.execute(statement)
                self._base.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        self._check(facts)

    def _check(self, wanted: dict[str, str]) -> None:
        try:
            found = dict(self._base.execute("SELECT name, value FROM facts"))
        except sqlite3.OperationalError:  # there is no such table
            found = {}
        if found.get("format") not in (FORMAT, OF_CLASSES):
            raise InputError(f"review: {self.path} is no file that `calirare review` wrote: take another --out")
        if found != wanted:
            raise InputError(
                f"review: {self.path} holds answers about another graph or other classes than the run's: take another "
                "--out"
            )

    def say(self, node: str, answer: str) -> None:
        """Saves an answer; it is on the disk when this returns.

        Raises:
            InputError: it cannot be saved.
            ValueError: there is no such answer.
        """
        if answer not in self.answers:
            raise ValueError(f"review: answer must be one of {', '.join(self.answers)}, got {answer!r}")
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        with self._faults(), self._written():
            self._base.execute("INSERT INTO said (node, answer, time) VALUES (?, ?, ?)", (node, answer, now))

    def undo(self, number: int) -> bool:
        """Takes the last answer back, where it still is the one of this number; returns whether it was."""
        with self._faults(), self._written():
            last = self._base.execute("SELECT max(id) FROM said WHERE undone = 0").fetchone()[0]
            if last != number:
                return False
            self._base.execute("UPDATE said SET undone = 1 WHERE id = ?", (number,))
            return True

    def latest(self) -> dict[str, Said]:
        """Returns the answer of each node that has one, the oldest first.

        Raises:
            InputError: the file cannot be read any more.
        """
        with self._faults():
            return {row[1]: Said(*row) for row in self._base.execute(LATEST)}

    def latest_said(self) -> Said | None:
        """Returns the answer that was given last and stands, None where there is none."""
        return next(reversed(self.latest().values()), None)

    def close(self) -> None:
        """Closes the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Does what is within as a whole or not at all."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Says of a fault of the file which file it is."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"review: {self.path} cannot be used as a file of answers: {error}: mend it, or take another --out"
            ) from error


def labels_of(answers: Mapping[str, Said], class_names: Sequence[str]) -> pd.DataFrame:
    """Returns answers as the table of labels that `calirare update --labels` takes.

    Only nodes that were said to be of a class are in it: unsure and skipped ones keep the label they have, or none.

    Raises:
        InputError: there is no such answer, or a class has a name that an update takes for no label.
    """
    names = dict(zip(answers_of(class_names), class_names, strict=False))
    unclear = [name for name in class_names if name.strip() in UNKNOWN]
    if unclear:
        raise InputError(
            f"review: answers cannot be exported, a table of labels takes the class {unclear[0]!r} for no label: give "
            "it another name in the data"
        )
    rows = [(each.node, names[each.answer]) for each in answers.values() if each.answer in names]
    if not rows:
        raise InputError("review: there is nothing to export, no node was said to be of a class yet")
    return inert(pd.DataFrame(rows, columns=["node", "label"]))


def csv_of(labels: pd.DataFrame) -> str:
    """Returns a table of labels as CSV, in quotes: a name may hold what ends a row."""
    text: str = labels.to_csv(index=False, quoting=1)
    return text


def export(answers: Mapping[str, Said], class_names: Sequence[str], path: Path) -> int:
    """Writes answers as a table of labels and returns how many there are, see `labels_of`."""
    labels = labels_of(answers, class_names)
    with fresh_files(path.parent, f"review: {path}") as partial:
        (partial / path.name).write_text(csv_of(labels), encoding="utf-8", newline="")
    return len(labels)
