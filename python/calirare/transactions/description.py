"""What is said of a table of transactions: its columns, its batches, and when labels are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from calirare._util.errors import InputError
from calirare.graph.spelling import words_of
from calirare.graph.tables import stem_of
from calirare.transactions.opening import source_name

KnownAt = Literal["batch", "transaction"]


@dataclass(frozen=True, eq=False)
class Description:
    """The attributes of `Transactions`, which says what each is."""

    source: Any
    time: str | None = None
    label: str | None = None
    entities: Sequence[str] = ()
    amount: str | None = None
    id: str | None = field(default=None, kw_only=True)
    rare_class: int | str | None = field(default=None, kw_only=True)
    unknown: Sequence[str] = field(default=(), kw_only=True)
    drop_columns: Sequence[str] = field(default=(), kw_only=True)
    known_at: KnownAt = field(default="batch", kw_only=True)
    batch: str | None = field(default=None, kw_only=True)
    label_delay: str | None = field(default=None, kw_only=True)
    windows: Sequence[str] = field(default=(), kw_only=True)
    categories: Sequence[str] = field(default=(), kw_only=True)
    shared: Sequence[str] = field(default=(), kw_only=True)
    history: Any = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Makes tuples of what may be one name, and checks the words."""
        for name in ("entities", "unknown", "drop_columns", "windows", "categories", "shared"):
            object.__setattr__(self, name, words_of(getattr(self, name)))
        for name in ("batch", "label_delay"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else str(value))
        if self.known_at not in get_args(KnownAt):
            words = " or ".join(get_args(KnownAt))
            raise InputError(f"transactions: known_at must be {words}, got {self.known_at!r}")

    @property
    def name(self) -> str:
        """What the graph is called."""
        return stem_of(self.source) if isinstance(self.source, str) or hasattr(self.source, "parts") else "transactions"

    @property
    def where(self) -> str:
        """What a message calls the table."""
        return source_name(self.source)

    def chosen(self) -> dict[str, Any]:
        """Returns everything but the tables and the notes by name: what the next batch is read with."""
        left_out = ("source", "history", "notes")
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
