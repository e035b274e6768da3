"""A table of transactions and how it is read: one node per transaction, with columns that know only the past."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from calirare._util.amounts import listed
from calirare._util.errors import FaultsError, InputError
from calirare.graph import Graph
from calirare.transactions.description import Description
from calirare.transactions.opening import database, load, quoted
from calirare.transactions.reading import Reading, clock_of
from calirare.transactions.roles import NONE, Finder, find_roles, shared_parties

if TYPE_CHECKING:
    from calirare.transactions.one_row import OneRow


@dataclass(frozen=True, eq=False)
class Transactions(Description):
    """A table with one transaction per row, between two or more parties.

    Attributes:
        source: path of a CSV or Parquet file or of a folder of Parquet files, FILE.duckdb::TABLE, or a table of pandas,
            polars or Arrow.
        time: column of the times: numbers, dates, or timestamps (without a zone: UTC); None: found by name.
        label: column of the labels, of two values; None: found by name.
        entities: columns of the parties, such as card and merchant; none: found by name and repetition.
        amount: column of the amounts; None: found by name; "none": there are none.
        id: column that names each transaction; None: found by name, "none": rows are numbered.
        rare_class: the rare value of the labels; None: 1 of 0 and 1, else the rarer one.
        unknown: further values that stand for no label, next to an empty cell and -1.
        drop_columns: columns that are not read.
        known_at: "batch": a transaction is scored at the end of its batch, and sees all rows up to there;
            "transaction": at its time, and sees strictly earlier rows.
        batch: length of a batch, such as 1d, or a number in units of numeric times; None: chosen by the span.
        label_delay: how long after a transaction its label is known, likewise; None: one batch.
        windows: lengths of the windows of the columns, ascending; none: three, by the span.
        categories: columns of text with many values, whose past is followed as that of parties; none: those with more
            than 20; "none": there are none.
        shared: two parties that name the same accounts, such as sender and receiver; none: found; "none": there are
            none.
        history: earlier transactions, of the same form as `source`; they get no node.
        notes: what was chosen without being named, a sentence each.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"card": ["a", "b", "a", "b"], "shop": ["x", "x", "y", "x"], "is_fraud": [0, 0, 1, 0]})
        >>> frame["when"] = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-09"])
        >>> frame["amount"] = [5.0, 7.0, 90.0, 8.0]
        >>> graph = Transactions(frame, time="when", label="is_fraud").graph()
        >>> graph.n_nodes, graph.n_edges, graph.feature_names[0]
        (4, 0, 'amount')
    """

    def resolved(self, *, need_label: bool = True) -> Self:
        """Returns the same with what was left open: columns, windows, batch and delay; see `read`."""
        with database() as engine:
            return self.found(engine, load(engine, self.source, "source", self.amount), need_label=need_label)

    def graph(self, *, need_label: bool = True) -> Graph:
        """Returns the graph; see `read`."""
        return self.read(need_label=need_label)[0]

    def read(self, *, need_label: bool = True) -> tuple[Graph, Self]:
        """Returns one node per row of `source`, without edges, and the description with what was left open.

        Features are the columns of the table and those of the past; see `calirare.transactions.columns`.

        Args:
            need_label: a table without labels is a fault; else its rows have none.

        Raises:
            InputError: a table cannot be read, or columns do not fit; all faults are named.
        """
        with database() as engine:
            kinds = load(engine, self.source, "source", self.amount)
            before = {} if self.history is None else load(engine, self.history, "history", self.amount)
            self._check_columns(kinds, before)
            found = self.found(engine, kinds, need_label=need_label)
            return Reading(engine, found, kinds, before).graph(), found

    def _check_columns(self, kinds: dict[str, str], before: dict[str, str]) -> None:
        """Raises InputError where columns of the history are not there; labels and what is not read need not be."""
        absent = [name for name in before if name not in kinds and name not in (self.label, *self.drop_columns)]
        if absent:
            raise InputError(f"{self.where}: columns of the earlier transactions are missing: add {listed(absent)}")

    def write_joined(self, path: Path, labels: Mapping[int, str]) -> None:
        """Writes the history with the table under it as Parquet.

        Args:
            path: of the file.
            labels: new labels of rows of `source`, by their numbers from 0; an empty one is none.

        Raises:
            InputError: a table cannot be read, or their columns do not go together.
        """
        import duckdb
        import pandas as pd

        column = quoted(str(self.label))
        with database() as engine:
            load(engine, pd.DataFrame({"place": list(labels), "cell": list(labels.values())}), "answers")
            kind = load(engine, self.history, "history", self.amount)[str(self.label)]
            if self.label not in load(engine, self.source, "source", self.amount):
                engine.execute(f"ALTER TABLE source ADD {column} {kind}")
            cell = f"CAST(nullif(cell, '') AS {kind})"
            engine.execute(f"UPDATE source SET {column} = {cell} FROM answers WHERE source.rowid = place")
            try:
                rows = engine.sql("SELECT * FROM history UNION ALL BY NAME SELECT * FROM source")
                rows.write_parquet(str(path))
            except duckdb.Error as error:
                what = str(error).splitlines()[0]
                raise InputError(f"{self.where}: it does not go under the history ({what}): use its types") from error

    def one_row(self) -> OneRow:
        """Returns these transactions in memory, and what makes the columns of one after them, see `OneRow`."""
        from calirare.transactions.one_row import OneRow  # late: it imports ibis

        return OneRow(self.source, self.found, self.amount)

    def found(self, engine: Any, kinds: dict[str, str], *, need_label: bool = True) -> Self:
        """Returns the description with what was left open, by the loaded table."""
        finder = Finder(engine, "source", kinds, self.where)
        roles = find_roles(finder, self, need_label=need_label)
        faults, notes = list(roles.faults), list(roles.notes)
        for name in self.drop_columns:
            if need_label and name not in kinds:
                faults.append(f"{self.where}: there is no column {name!r} to leave out: name another")
        if faults:
            raise FaultsError(faults)
        assert roles.time is not None
        named: dict[str, Any] = {"time": roles.time, "label": roles.label or self.label, "entities": roles.parties}
        named |= {"amount": roles.amount or NONE, "id": roles.id or NONE}
        try:
            clock, span, least = clock_of(engine, roles.time, kinds, self.where)
        except FaultsError as error:
            others = Reading(engine, dataclasses.replace(self, **named), kinds, {}).faults()
            raise FaultsError([*error.faults, *others]) from error
        length = clock.usual_batch(span, least) if self.batch is None else clock.ticks(self.batch, "batch")
        if length < 1:
            raise InputError(f"transactions: batch must be longer than 0, got {self.batch!r}")
        delay = length if self.label_delay is None else clock.ticks(self.label_delay, "label_delay")
        lengths = sorted({clock.ticks(each, "windows") for each in self.windows}) or clock.usual_windows(span, least)
        shared = self.shared or shared_parties(engine, "source", roles.parties) or (NONE,)
        words, roles_of = clock.length_words, {roles.time, roles.label, roles.amount, roles.id, *roles.parties}
        unread, categories = finder.texts(roles_of | set(self.drop_columns))
        if unread:
            notes.append(f"not read, another value in almost every row: {listed(unread)}")
        if self.batch is None and self.known_at == "batch":
            notes.append(f"they are scored at the end of each batch of {words(length)} (--batch, --known-at)")
        if self.label_delay is None:
            notes.append(f"a label counts as known {words(delay)} after its transaction (--label-delay)")
        if not self.windows:
            notes.append(f"columns look back {', '.join(map(words, lengths))} (--windows)")
        if not self.shared and shared != (NONE,):
            notes.append(f"{shared[0]} and {shared[1]} name the same accounts (--shared none: they do not)")
        return dataclasses.replace(
            self,
            **named,
            batch=clock.text(length),
            label_delay=clock.text(delay),
            windows=tuple(map(clock.text, lengths)),
            shared=shared,
            drop_columns=(*self.drop_columns, *unread),
            categories=self.categories or categories or (NONE,),
            notes=tuple(notes),
        )
