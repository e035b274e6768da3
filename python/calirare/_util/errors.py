"""The library's own exceptions."""

import re
from collections.abc import Collection, Sequence

LONGEST = 300  # characters of a message: what is quoted from a file can be of any length
LONG_WORD = re.compile(r"\S{61,}")  # a path, or what stood in a file
GAP = "[..]"  # stands for what is left out
# A scalar as numpy writes it in `repr`, but not where it begins a text in quotation marks.
SCALAR = re.compile(
    r"""(?<!['"\w])(?:np|numpy)\.(?:(?:(?:u?int|float|complex|datetime)\d+|longdouble|u?longlong|str_)"""
    r"""\(('[^']*'|"[^"]*"|[-+\w.]*)\)|(True|False)_)"""
)


class InputError(ValueError):
    """What the user gave cannot be used: a file, a graph, labels or a setting.

    The message has up to three short sentences: what, where; why; how to fix it. What is quoted in it cannot break
    a line or drive a terminal, and cannot make it longer than `LONGEST`.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class UnknownNodeError(InputError):
    """A node was named that is not in the graph."""


def check_one_of(where: str, name: str, value: object, words: Collection[str]) -> None:
    """Raises InputError where a value is none of some words."""
    if value not in words:
        raise InputError(f"{where}: {name} must be one of {', '.join(words)}, got {value!r}")


class FaultsError(InputError):
    """Several faults of what the user gave, all in one message.

    Each is as short as the message of an `InputError`, and has a line of its own.

    Attributes:
        faults: a sentence each: what, where, how to fix it.
    """

    MOST = 20  # that a message lists

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(one_line(fault) for fault in dict.fromkeys(faults))
        shown, n = self.faults[: self.MOST], len(self.faults)
        more = [f"and {n - self.MOST} more"] if n > self.MOST else []
        ValueError.__init__(self, shown[0] if n == 1 else "\n  ".join([f"{n} faults to fix:", *shown, *more]))


class NotConvergedError(RuntimeError):
    """An iterative computation stopped before it reached its tolerance; the message carries the numbers."""


def shown(value: object) -> str:
    """Returns a value as a message shows it: text in quotation marks, numbers of numpy as Python writes them.

    Example:
        >>> import numpy as np
        >>> print(shown(np.float64("inf")), shown([np.int64(2), np.str_("a")]), shown((np.True_, 0.5)))
        inf [2, 'a'] (True, 0.5)
    """
    return _plain(repr(value))


def _plain(text: str) -> str:
    return SCALAR.sub(lambda found: found[1] if found[2] is None else found[2], text)


def one_line(message: str) -> str:
    """Returns a message with control characters escaped and plain numbers, of at most `LONGEST` characters.

    Where it is too long, first of long words the middle is left out, then of what remains.
    """
    message = _plain(printable(_cut(message, 4 * LONGEST)))
    if len(message) > LONGEST:
        message = LONG_WORD.sub(lambda word: f"{word[0][:12]}{GAP}{word[0][-44:]}", message)
    return _cut(message, LONGEST)


def _cut(text: str, most: int) -> str:
    """Returns a text without its middle where it has more characters than `most`."""
    if len(text) <= most:
        return text
    head = 3 * most // 5
    return f"{text[:head]} {GAP} {text[head + len(GAP) + 2 - most :]}"


def cut(text: str, room: int) -> str:
    """Returns text that can be shown in so many characters, with three dots where some are left out."""
    text = printable(text)
    return text if len(text) <= room else text[: room - 3] + "..."


def without_middle(name: str, room: int) -> str:
    """Returns a name that can be shown in so many characters: names that are alike mostly differ at their end."""
    name = printable(name)
    head = (room - 2) // 2
    return name if len(name) <= room else f"{name[:head]}..{name[head + 2 - room :]}"


def printable(text: str) -> str:
    """Returns text in which what breaks a line, drives a terminal, turns the direction or is not seen is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
