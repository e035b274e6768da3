"""What a reviewer said of nodes, in one SQLite file: an answer is on the disk before it is shown as saved.

Nothing is ever overwritten: an answer is a row more, and undoing one marks its row. A node's answer is its last row
that is not undone.
"""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pandas as pd

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare._util.run_files import LIST
from calirare.run import NO_LABEL, UNKNOWN, inert

RARE, REST, UNSURE, SKIP = "rare", "rest", "unsure", "skip"
SIDES = ("", "-wal", "-shm")  # SQLite's files of one base: the newest answers are in the second
EMPTY = "00000000"  # the checksum of no edges
COUNTING = 10  # whole numbers below so many times the number of nodes are names that another graph may have by chance
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
class Answer:
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


def check_names(class_names: Sequence[str]) -> None:
    """Refuses classes whose labels an update would not take for a label.

    Raises:
        InputError: there is such a class.
    """
    unclear = [name for name in class_names if name.strip() in UNKNOWN and name != NO_LABEL]
    if unclear:
        raise InputError(
            f"review: answers could not be exported: in a table of labels {unclear[0]!r} means no label. Rename this "
            "class in the data and train again"
        )


class Verdicts:
    """The answers in a file; a context manager that closes it.

    Args:
        path: of the file; made where it is not there.
        graph: checksum of the run's graph, which the file is held against.
        class_names: of the rest and of the rare class, or of all classes where there are more.
        nodes: gives the names of the run's nodes, by which answers of an earlier training are held to be about them;
            None: answers about another graph are refused.

    Raises:
        InputError: the file cannot be made or read, is none of ours, or belongs to another graph, or answers could not
            be exported.

    Attributes:
        answers: what may be said of a node.
        class_names: as above.
        graph: as above.
        note: that answers of an earlier training go on, a sentence; empty: there are none.
    """

    def __init__(
        self, path: Path, graph: str, class_names: Sequence[str], nodes: Callable[[], pd.Series] | None = None
    ) -> None:
        check_names(class_names)
        self.answers, self._nodes = answers_of(class_names), nodes
        self.class_names, self.graph, self.note = tuple(class_names), graph, ""
        if len(class_names) == 2:
            facts = {"format": FORMAT, "graph": graph, "rest": class_names[0], "rare": class_names[1]}
        else:
            facts = {"format": OF_CLASSES, "graph": graph, "classes": json.dumps(list(class_names))}
        if (path.parent / LIST).exists():
            raise InputError(
                f"review: {path} lies in a run's folder, which is replaced as a whole: choose an --out outside of it"
            )
        if path.exists() and not path.is_file():
            raise InputError(f"review: {path} is a folder; give a file with --out")
        self.path, self._files = path, list[tuple[int, int] | None]()
        with self._faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Requests are threads; the server lets one of them at a time in. Each statement is a transaction.
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            with self._faults():
                self._prepare(facts)
        except BaseException:
            self._base.close()
            raise

    @classmethod
    def stored(cls, path: Path) -> Self:
        """Returns the answers in a file that is there, whatever has become of their run.

        Raises:
            InputError: it cannot be read, or is none of ours.
        """
        try:
            with closing(sqlite3.connect(path, timeout=10)) as base:
                facts = dict(base.execute("SELECT name, value FROM facts"))
            return cls(path, facts["graph"], classes_of(facts))
        except sqlite3.Error as error:
            raise _unusable(path, error) from error
        except (KeyError, ValueError, TypeError) as error:
            raise _foreign(path) from error

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
            self._base.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
        self._files = self._found()

    def _check(self, wanted: dict[str, str]) -> None:
        try:
            found = dict(self._base.execute("SELECT name, value FROM facts"))
        except sqlite3.OperationalError:  # there is no such table
            found = {}
        if found.get("format") not in (FORMAT, OF_CLASSES):
            raise _foreign(self.path)
        if found | {"graph": ""} != wanted | {"graph": ""}:
            told = classes_told(classes_of(found), self.class_names)
            raise InputError(
                f"review: {self.path} holds answers about {told}: get them by --export, and take another --out"
            )
        if found["graph"] != wanted["graph"]:
            self._carry_over(found["graph"], wanted["graph"])

    def _carry_over(self, before: str, now: str) -> None:
        """Checks that answers of an earlier training are about the run's nodes, and notes that they go on."""
        answered = [row[1] for row in self._base.execute(LATEST)]
        why = "which is not the run's" if self._nodes is None else other_nodes(before, now, answered, self._nodes())
        if why:
            raise InputError(
                f"review: {self.path} holds answers about another graph, {why}: get them by --export, and take another "
                "--out"
            )
        if answered:
            self.note = f"{amount(len(answered), 'answer')} of an earlier training on these nodes go on in {self.path}"

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Does what is within as a whole or not at all, in the file that was opened: what is open outlives its name."""
        with self._faults():
            self.check_file()
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
            self.check_file()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Names the file in a fault of it."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise _unusable(self.path, error) from error

    def check_file(self) -> None:
        """Checks that the file at the path is still the one that is open.

        Raises:
            InputError: it was removed or replaced.
        """
        if self._files and self._found() != self._files:
            raise InputError(
                f"review: {self.path} was removed or replaced while it was open. Put it back with its -wal "
                "file, or start the review again."
            )

    def _found(self) -> list[tuple[int, int] | None]:
        """Returns which file lies at each of the base's names, None where there is none."""
        found = list[tuple[int, int] | None]()
        for side in SIDES:
            try:
                at = os.stat(self.path.with_name(self.path.name + side))
                found.append((at.st_dev, at.st_ino))
            except OSError:
                found.append(None)
        return found

    def say(self, node: str, answer: str) -> int:
        """Saves an answer and returns its number; it is on the disk when this returns.

        Raises:
            InputError: it cannot be saved.
            ValueError: there is no such answer.
        """
        if answer not in self.answers:
            raise ValueError(f"review: answer must be one of {', '.join(self.answers)}, got {answer!r}")
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        with self._written():
            values = "INSERT INTO said (node, answer, time) VALUES (?, ?, ?)"
            return int(self._base.execute(values, (node, answer, now)).lastrowid or 0)

    def undo(self, number: int) -> str | None:
        """Takes an answer back and returns its node; None where there is no such answer."""
        with self._written():
            row = self._base.execute("UPDATE said SET undone = 1 WHERE id = ? RETURNING node", (number,)).fetchone()
        return None if row is None else str(row[0])

    def latest(self) -> dict[str, Answer]:
        """Returns the answer of each node that has one, the oldest first.

        Raises:
            InputError: the file cannot be read any more.
        """
        with self._faults():
            return {row[1]: Answer(*row) for row in self._base.execute(LATEST)}

    def close(self) -> None:
        """Closes the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def classes_of(facts: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the classes that a file's facts tell of."""
    if facts["format"] == OF_CLASSES:
        return tuple(json.loads(facts["classes"]))
    return facts["rest"], facts["rare"]


def _unusable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"review: {path} cannot be used as a file of answers: {error}. Repair it, or choose another file with --out."
    )


def _foreign(path: Path) -> InputError:
    return InputError(f"review: {path} is no file that `calirare review` wrote: take another --out")


def labels_of(answers: Mapping[str, Answer], class_names: Sequence[str]) -> pd.DataFrame:
    """Returns answers as the table of labels that `calirare update --labels` takes.

    Only nodes that were said to be of a class are in it: unsure and skipped ones keep the label they have, or none.

    Raises:
        InputError: there is no such answer, or a class has a name that an update takes for no label.
    """
    check_names(class_names)
    names = dict(zip(answers_of(class_names), class_names, strict=False))
    rows = [(each.node, names[each.answer]) for each in answers.values() if each.answer in names]
    if not rows:
        raise InputError("review: there is nothing to export: no node has an answer with a class yet")
    return pd.DataFrame(rows, columns=["node", "label"])


def csv_of(labels: pd.DataFrame) -> str:
    """Returns a table of labels as CSV, in quotes: a name may hold what ends a row; none is a formula."""
    text: str = inert(labels).to_csv(index=False, quoting=1)
    return text


def export(answers: Mapping[str, Answer], class_names: Sequence[str], path: Path) -> pd.DataFrame:
    """Writes answers as a table of labels and returns them, see `labels_of`."""
    labels = labels_of(answers, class_names)
    with fresh_files(path.parent, f"review: {path}") as partial:
        (partial / path.name).write_text(csv_of(labels), encoding="utf-8", newline="")
    return labels


def same_edges(before: str, now: str) -> bool:
    """Returns whether two graphs' `fingerprint` tell of the same edges; without edges also of the same features."""
    old, new = before.split("-"), now.split("-")  # of edges indptr, indices and values, then features
    return old[:2] == new[:2] and (old[1:2] != [EMPTY] or old[3:4] == new[3:4])


def other_nodes(before: str, now: str, answered: Collection[str], names: pd.Series) -> str:
    """Returns why nodes that were answered are not those of a run trained since, a clause; empty: they are.

    A name is the same node, whatever its label, features and edges are now. A number that merely counts, as nodes
    without names have it, is the same node where the edges are the same ones.

    Args:
        before: checksum of the graph that the answers are about.
        now: checksum of the run's graph.
        answered: names of the nodes with an answer.
        names: of the run's nodes, as `predictions.csv` has them.
    """
    counted = names.dtype.kind in "iu" and len(names) > 0 and names.max() < COUNTING * len(names)
    if counted and not same_edges(before, now):
        return "its edges are not the run's, so that a node's number may be another node's"
    gone = set(answered) - set(names.astype(str))
    if 2 * len(gone) > len(answered):
        return f"{len(gone):,} of its {len(set(answered)):,} nodes are not the run's"
    return ""


def classes_told(before: Sequence[str], now: Sequence[str]) -> str:
    """Returns how the classes of two runs differ, a clause."""
    return f"the classes {_named(before)}, and the run's are {_named(now)}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{shown}, .." if len(names) > 4 else shown
