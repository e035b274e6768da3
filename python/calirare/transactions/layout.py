"""What the columns of transactions are made of, and what the table of events calls it."""

from __future__ import annotations

from dataclasses import dataclass

from calirare.transactions.time import Clock


@dataclass(frozen=True)
class Layout:
    """What the columns are made of.

    Attributes:
        parties: names of the columns of parties, two or more.
        shared: pairs of these whose names are the same accounts, such as sender and receiver.
        amount: name of the column of amounts; None: there is none.
        label: name of the column of labels; None: there are none.
        numbers: names of other columns of numbers.
        categories: names of columns of text with many values, whose past is followed too.
        windows: lengths in ticks of the clock, ascending.
        clock: of the table.
        batch: length of a batch in ticks; None: what is known is what is strictly earlier.
    """

    parties: tuple[str, ...]
    shared: tuple[tuple[str, str], ...]
    amount: str | None
    label: str | None
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    windows: tuple[int, ...]
    clock: Clock
    batch: int | None


def party_column(i: int) -> str:
    """Returns the column of events that holds the number of a party."""
    return f"party{i}"


def new_column(i: int, j: int) -> str:
    """Returns the column of events that is 1 at the first transaction of two parties."""
    return f"new{min(i, j)}_{max(i, j)}"


def category_column(i: int) -> str:
    """Returns the column of events that holds the number of a category's value."""
    return f"category{i}"


def number_column(i: int) -> str:
    """Returns the column of events that holds a number of the table."""
    return f"number{i}"
