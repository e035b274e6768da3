"""What a reviewer said of nodes, in one SQLite file: an answer is on the disk before it is shown as saved.

Nothing is ever overwritten: an answer is a row more, and undoing one marks its row. A node's answer is its last row
that is not undone.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pandas as pd

from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare._util.run_files import LIST
from calirare.run import NO_LABEL, UNKNOWN, inert

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
NO_NAMES = "and the run's nodes have no names to know them by: take another --out, or the graph and run of then"
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
        names: reads the names of the run's nodes, or returns None where these are places; asked where the file was
            begun with another graph: the answers go on to hold where all of its nodes are among them.
        every: whether answers about other nodes are taken too, where nodes have names: to read them alone.

    Raises:
        InputError: the file cannot be made or read, is none of ours, belongs to another graph, or a class has a name
            that a table of labels cannot hold.

    Attributes:
        answers: what may be said of a node.
    """

    def __init__(
        self,
        path: Path,
        graph: str,
        class_names: Sequence[str],
        names: Callable[[], Collection[str] | None] = lambda: None,
        every: bool = False,
    ) -> None:
        check_exportable(class_names)
        self.path, self.answers, self._names, self._every = path, answers_of(class_names), names, every
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
            self._base = _opened(path)
        try:
            with self._faults():
                self._prepare(facts)
                self._file = path.stat().st_ino
        except BaseException:
            self._base.close()
            raise

    def _prepare(self, facts: dict[str, str]) -> None:
        """Makes the tables or checks those that are there; from here on a commit waits for the disk."""
        if self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # nothing foreign is touched
            self._check(facts)
        _safe(self._base)
        with self._written():
            if not self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                answers = ", ".join(f"'{answer}'" for answer in self.answers)
                for statement in TABLES.format(answers=answers).split(";"):
                    self._base.execute(statement)
                self._base.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            self._check(facts)
            if not self._every:
                self._base.execute("UPDATE facts SET value = ? WHERE name = 'graph'", (facts["graph"],))

    def _check(self, wanted: dict[str, str]) -> None:
        try:
            found = dict(self._base.execute("SELECT name, value FROM facts"))
        except sqlite3.OperationalError:  # there is no such table
            found = {}
        if found.get("format") not in (FORMAT, OF_CLASSES):
            raise InputError(f"review: {self.path} is no file that `calirare review` wrote: take another --out")
        if found | {"graph": ""} != wanted | {"graph": ""}:
            raise InputError(
                f"review: {self.path} holds answers about other classes than the run's: take another --out"
            )
        if found["graph"] != wanted["graph"]:
            self._check_nodes()

    def _check_nodes(self) -> None:
        """Checks that the nodes with an answer are the run's, whose graph is not the one the file was begun with."""
        names, other = self._names(), f"review: {self.path} holds answers about another graph than the run's"
        if names is None:
            raise InputError(f"{other}, {NO_NAMES}")
        said = [node for (node,) in self._base.execute("SELECT DISTINCT node FROM said WHERE undone = 0 ORDER BY id")]
        strange = [] if self._every else [node for node in said if node not in names]
        if strange:
            raise InputError(
                f"{other}: {strange[0]!r:.99} and {len(strange) - 1:,} more are none of its nodes: take another --out"
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
        self._keep_the_file()
        with self._faults(), self._written():
            self._base.execute("INSERT INTO said (node, answer, time) VALUES (?, ?, ?)", (node, answer, now))

    def _keep_the_file(self) -> None:
        """Writes the file again where it was removed; what is open still has every answer.

        Raises:
            InputError: another file is in its place.
        """
        with self._faults():
            if self.path.exists() and self.path.stat().st_ino == self._file:
                return
            if self.path.exists():
                raise InputError(
                    f"review: another file was put in the place of {self.path}: move it away, and answer again"
                )
            again = _opened(self.path)
            self._base.backup(again)
            self._base, gone = again, self._base
            gone.close()  # which removes -wal by its name: only then there may be a new one
            _safe(again)
            self._file = self.path.stat().st_ino

    def undo(self, number: int) -> bool:
        """Takes the last answer back, where it still is the one of this number; returns whether it was."""
        self._keep_the_file()
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


def _opened(path: Path) -> sqlite3.Connection:
    """Opens a file; handlers of requests are threads, and the server lets one of them at a time in."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)


def _safe(base: sqlite3.Connection) -> None:
    """Makes each commit wait for the disk."""
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = FULL")


def check_exportable(class_names: Sequence[str]) -> None:
    """Checks that a table of labels can hold each class.

    Raises:
        InputError: one has a name that an update takes for no label.
    """
    unclear = [name for name in class_names if name.strip() in UNKNOWN and name != NO_LABEL]
    if unclear:
        raise InputError(
            f"review: answers could not be exported, as a table of labels takes the class {unclear[0]!r} for no label: "
            "give it another name in the data and train again"
        )


def labels_of(answers: Mapping[str, Said], class_names: Sequence[str]) -> pd.DataFrame:
    """Returns answers as the table of labels that `calirare update --labels` takes.

    Only nodes that were said to be of a class are in it: unsure and skipped ones keep the label they have, or none.

    Raises:
        InputError: there is no such answer, or a class has a name that an update takes for no label.
    """
    check_exportable(class_names)
    names = dict(zip(answers_of(class_names), class_names, strict=False))
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
