"""Numbers with the word for what they count."""

from __future__ import annotations


def class_words(name: str) -> str:
    """Returns how a sentence calls a class: one that is a number is `class 1`, so that it is not read as an amount."""
    return f"class {name}" if name.replace(".", "", 1).isdecimal() else name


def amount(n: int, one: str, many: str = "") -> str:
    """Returns a number and what it counts: `1 alert`, `1,200 alerts`.

    Args:
        n: the number.
        one: the word for one.
        many: the word for others; empty: an s more.
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"
