"""What stands for letters that a terminal or a file of few letters cannot hold (LANG=C)."""

from __future__ import annotations

import codecs

PLAIN = "calirare-plain"  # a name for `errors=` of a stream
_LEVEL, _UPRIGHT, _BOXES = "\u2500\u2501\u2550\u2574\u2576\u2578\u257a", "\u2502\u2503\u2551", range(0x2500, 0x2580)


def plain(letter: str) -> str:
    """Returns what stands for a letter: lines of tables are drawn with - | +, others are told by their number."""
    if letter in _LEVEL:
        return "-"
    if letter in _UPRIGHT:
        return "|"
    return "+" if ord(letter) in _BOXES else letter.encode("ascii", "backslashreplace").decode("ascii")


def _handle(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


codecs.register_error(PLAIN, _handle)
