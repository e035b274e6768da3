"""Which columns of a table of transactions are parties, time, amount, label and number of the transaction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from calirare._util.amounts import listed, meant
from calirare.graph.tables.sources import LABELS
from calirare.transactions.opening import AMOUNT, quoted

TIMES = ("time", "timestamp", "datetime", "date", "when", "ts", "step", "created_at", "trans_date_trans_time", "dt")
AMOUNTS = (
    *("amount", "amt", "tx_amount", "transaction_amount", "transactionamt", "value", "price", "total", "sum"),
    "amount_paid",
)
IDS = (
    *("id", "transaction", "transaction_id", "transactionid", "tx_id", "trans_id", "trans_num", "payment_id", "uid"),
    "index",
)
ID = re.compile(
    r"(?i)^(tx|txn|trx|trans|transaction|payment|booking|order)s?[_ -]?(id|ref|reference|no|nr|num|number)$"
)
PARTY_WORDS = (
    *("card", "customer", "client", "user", "account", "acct", "merchant", "terminal", "shop", "store", "device", "ip"),
    *("pan", "iban", "subscriber", "employee", "vendor", "supplier", "member", "source", "target", "src", "dst"),
    *("from", "to", "sender", "receiver", "payer", "payee", "orig", "dest", "nameorig", "namedest", "originator"),
    *("beneficiary", "rater", "ratee", "buyer", "seller", "borrower", "email", "phone", "bene"),
)
FEWEST_NAMES, REPEATED = 20, 1.5  # different names of a party that no word tells, and rows of each in the mean
NAMES_EACH = 2  # rows of each text in the mean, below which the texts of a column name the rows
MOST_PARTIES = 4  # that are found; more can be named
SHARED = 0.2  # of the names of the party with fewer, from which two parties are the same accounts
TEXT = re.compile(r"VARCHAR|ENUM|UUID|BLOB")
WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN")
DATE = re.compile(r"DATE|TIMESTAMP.*")
ZONED = re.compile(r"TIMESTAMP WITH TIME ZONE")
NONE = "none"  # the word for "there is no such column"


@dataclass(frozen=True)
class Roles:
    """Which column is what.

    Attributes:
        time: column of the times; None: there is none, as a fault says.
        label: column of the labels, or None.
        parties: columns of the parties.
        amount: column of the amounts, or None.
        id: column that names the transactions, or None.
        notes: what was found without being named.
        faults: what is wrong, a sentence each.
    """

    time: str | None
    label: str | None
    parties: tuple[str, ...]
    amount: str | None
    id: str | None
    notes: tuple[str, ...]
    faults: tuple[str, ...]


class Finder:
    """Finds the columns of a table by their names and cells.

    Args:
        engine: database with the table.
        table: name of the table.
        kinds: DuckDB types by the names of the columns.
        where: what a message calls the table.
    """

    def __init__(self, engine: Any, table: str, kinds: dict[str, str], where: str) -> None:
        self.kinds, self.where = kinds, where
        self.notes, self.faults = list[str](), list[str]()
        counted = ", ".join(f"approx_count_distinct({quoted(name)})" for name in kinds)
        self.rows, *different = engine.execute(f"SELECT count(*), {counted} FROM {table}").fetchall()[0]
        self.different = dict(zip(kinds, different, strict=True))

    def named(self, name: str | None, option: str) -> str | None:
        """Returns a column that the user names, None where it is not there."""
        if name is None or name == NONE or name in self.kinds:
            return None if name == NONE else name
        self.faults.append(
            f"{self.where}: there is no column {name!r}; the columns are {listed(self.kinds)}: "
            f"{meant(name, self.kinds)} ({option})"
        )
        return None

    def usual(self, names: Sequence[str], kind: re.Pattern[str], taken: Iterable[str | None]) -> str | None:
        """Returns the first column with a usual name and the right kind of cells."""
        free = {name.lower(): name for name in reversed(self.kinds) if name not in set(taken)}
        return next((free[name] for name in names if name in free and kind.fullmatch(self.kinds[free[name]])), None)

    def like(self, name: re.Pattern[str], kind: re.Pattern[str], taken: Iterable[str | None]) -> str | None:
        """Returns the first column whose name holds a word, with the right kind of cells."""
        free = [each for each in self.kinds if each not in set(taken)]
        return next((each for each in free if name.search(each) and kind.fullmatch(self.kinds[each])), None)

    def parties(self, taken: set[str | None]) -> tuple[str, ...]:
        """Returns columns whose names say that they are parties, else whose names repeat, in the order of the table."""
        free = [name for name, kind in self.kinds.items() if name not in taken and _may_name(kind)]
        by_word = [name for name in free if _words(name) & set(PARTY_WORDS) and self.different[name] > 1]
        wide = [
            name
            for name in free
            if name not in by_word
            and self.different[name] >= FEWEST_NAMES
            and self.rows >= REPEATED * self.different[name]
        ]
        wide.sort(key=lambda name: -self.different[name])
        found = by_word[:MOST_PARTIES] if len(by_word) > 1 else [*by_word, *wide[: 2 - len(by_word)]]
        return tuple(name for name in self.kinds if name in found)

    def texts(self, taken: set[str | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns columns of text with another value in almost every row, and those with many values."""
        free = [name for name, kind in self.kinds.items() if name not in taken and TEXT.match(kind)]
        unread = tuple(name for name in free if self.different[name] > max(self.rows / NAMES_EACH, FEWEST_NAMES))
        return unread, tuple(name for name in free if name not in unread and self.different[name] > FEWEST_NAMES)


def _may_name(kind: str) -> bool:
    return bool(TEXT.match(kind) or WHOLE.fullmatch(kind))


def _words(name: str) -> set[str]:
    """Returns the words of a name: card_id, CardID and card1 have the word card."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {part.lower() for part in parts} | {name.lower()}


def shared_parties(engine: Any, table: str, parties: Sequence[str]) -> tuple[str, ...]:
    """Returns two parties that name the same accounts, such as sender and receiver; none where no two do."""
    for one, other in combinations(parties, 2):
        names = [f"SELECT DISTINCT CAST({quoted(each)} AS VARCHAR) AS name FROM {table}" for each in (one, other)]
        both, fewer = engine.execute(
            f"SELECT (SELECT count(*) FROM ({names[0]} INTERSECT {names[1]})), "
            f"least((SELECT count(*) FROM ({names[0]})), (SELECT count(*) FROM ({names[1]})))"
        ).fetchall()[0]
        if both > SHARED * fewer and both > 1:
            return one, other
    return ()


def find_roles(finder: Finder, wanted: Any, *, need_label: bool) -> Roles:
    """Returns which column is what: as named, else by usual names, kinds of cells, and for parties repetition.

    Args:
        finder: of the table.
        wanted: with what the user names: time, label, entities, amount, id.
        need_label: a table without labels is a fault.
    """
    entities = [finder.named(name, "--entities") for name in wanted.entities]
    time, label = finder.named(wanted.time, "--time"), None
    if wanted.label is not None and (need_label or wanted.label in finder.kinds):
        label = finder.named(wanted.label, "--label")
    amount, number = finder.named(wanted.amount, "--amount"), finder.named(wanted.id, "--id")
    taken = {time, label, amount, number, *entities, *wanted.drop_columns}
    anything = re.compile(".*")
    if wanted.time is None:
        dates = [name for name, kind in finder.kinds.items() if DATE.match(kind) and name not in taken]
        time = dates[0] if len(dates) == 1 else finder.usual(TIMES, anything, taken)
        finder.notes += [f"the time is column {time!r} (--time)"] if time else []
        if time is None:
            none = f"no column is known to hold times; the columns are {listed(finder.kinds)}"
            what = f"several columns hold dates, {listed(dates)}" if dates else none
            finder.faults.append(f"{finder.where}: {what}: name the time of the transaction (--time COLUMN)")
    if wanted.label is None:
        label = finder.usual(LABELS, anything, taken | {time})
        finder.notes += [f"labels are column {label!r} (--label)"] if label else []
        if label is None and need_label:
            finder.faults.append(
                f"{finder.where}: no column is known to hold labels; the columns are {listed(finder.kinds)}: name it "
                "(--label COLUMN)"
            )
    taken |= {time, label}
    if wanted.amount is None:
        amount = finder.usual(AMOUNTS, NUMBER, taken) or finder.like(AMOUNT, NUMBER, taken)
        finder.notes += [f"amounts are column {amount!r} (--amount names another, or none)"] if amount else []
    if wanted.id is None:
        found = finder.usual(IDS, anything, taken | {amount}) or finder.like(ID, anything, taken | {amount})
        number = found if found and finder.different[found] > 0.9 * finder.rows else None
        finder.notes += [f"each is named by column {number!r} (--id)"] if number else []
    parties = tuple(name for name in entities if name)
    if not wanted.entities:
        parties = finder.parties(taken | {amount, number})
        finder.notes += [f"parties are {' and '.join(map(repr, parties))} (--entities)"] if len(parties) > 1 else []
    if len(parties) < 2 and None not in entities:
        finder.faults.append(
            f"{finder.where}: a transaction needs two or more parties, such as card and merchant, "
            f"{'named' if wanted.entities else 'found'}: {listed(parties) or 'none'}; the columns are "
            f"{listed(finder.kinds)}: name them (--entities A,B)"
        )
    empty = [name for name in parties if not finder.different[name]]
    finder.notes += [f"no row has a {name}: leave it out of the parties (--entities)" for name in empty]
    if time is not None and ZONED.match(finder.kinds[time]):
        finder.notes.append(f"times of column {time!r} have zones; tables and reports show them in UTC")
    return Roles(time, label, parties, amount, number, tuple(finder.notes), tuple(finder.faults))
