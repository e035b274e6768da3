"""Numbers with the word for what they count."""

from __future__ import annotations

LONGEST_NAME = 80  # characters of a name that are shown


def shortened(name: str) -> str:
    """Returns a name that is too long to be shown without its middle."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]} .. {name[-half:]}"


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
