"""Names and numbers in messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

LONGEST_NAME = 80  # characters of a name that are shown
NODE = re.compile(r"(?<![\w'\"/.-])([Nn])ode(s?)\b(?![\w'\"]|\.\w)")


def shortened(name: str) -> str:
    """Returns a name that is too long to be shown without its middle."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]} .. {name[-half:]}"


def quoted(name: object) -> str:
    """Returns a name as a list of names shows it: in quotation marks where it could be taken for two, or for none."""
    text = str(name)
    plain = text.strip() == text != "" and "," not in text and " and " not in text
    return text if plain else repr(text)


def listed(names: Iterable[object]) -> str:
    """Returns names with commas between them, `quoted`."""
    return ", ".join(map(quoted, names))


def class_words(name: str) -> str:
    """Returns how a sentence calls a class: one that is a number is `class 1`, so that it is not read as an amount."""
    return f"class {name}" if name.replace(".", "", 1).isdecimal() else {"rest": "normal"}.get(name, name)


def of_two_classes(names: tuple[str, ...], share: float, *, rare: bool) -> str:
    """Returns what goes behind "2 classes": which one is rare, or if none is named the proportions of both.

    Args:
        names: of the classes, two.
        share: of class 1 among the labels.
        rare: whether class 1 was named as the rare one.
    """
    if rare and share < 1:
        return f", {names[1]!r} is rare with {100 * share:.2f} %"
    if share == 1:
        return f", labels of {names[1]!r} alone"
    return f" ({names[0]!r} {100 * (1 - share):.2f} %, {names[1]!r} {100 * share:.2f} %)" if share else ""


def count_of(number: float) -> str:
    """Returns an expected number as a sentence names it: `4,500`, `94`, `2.5`."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def amount(n: int, one: str, many: str = "") -> str:
    """Returns a number and what it counts: `1 alert`, `1,200 alerts`.

    Args:
        n: the number.
        one: the word for one.
        many: the word for others; empty: an s more.
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def in_unit(words: Any, unit: str) -> Any:
    """Returns words about nodes, or lists and dictionaries with such words, about transactions where these are it."""
    if isinstance(words, dict):
        return {key: in_unit(value, unit) for key, value in words.items()}
    if isinstance(words, list):
        return [in_unit(value, unit) for value in words]
    if unit == "node" or not isinstance(words, str):
        return words
    return NODE.sub(lambda found: (unit if found[1] == "n" else unit.capitalize()) + found[2], words)


def meant(wanted: str, names: Iterable[str]) -> str:
    """Returns how to fix the name of a missing column: the most similar of `names`, if one is similar."""
    close = get_close_matches(str(wanted), [str(name) for name in names], 1)
    return f"did you mean {close[0]!r}?" if close else "name another"
