"""Names of categories in a query, in the one spelling that the run knows them by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare.export.sql.dialects import Dialect

LONG = 7  # digits from which on some engine writes a whole number of a column of floats with an exponent
TRUTHS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("on", "off"))


def named(given: str, names: Sequence[str], dialect: Dialect) -> str:
    """Returns a column as names of categories as `plain_name` writes them, NULL where there is none.

    What is cut and changed is what these names need: of another name it does not matter how it is written.

    Args:
        given: the column, of any type.
        names: of the categories, plain.
        dialect: of the engine.
    """
    text = dialect.trim.format(x=f"CAST({given} AS {dialect.text})")
    whole = [name.lstrip("+-") for name in names if name.lstrip("+-").isdigit()]
    if whole:
        plain = dialect.whole.format(x=text)
        is_power, as_whole = (each.format(x=text) for each in dialect.power)
        long = any(len(name) >= LONG for name in whole)
        text = f"(CASE WHEN {is_power} THEN {as_whole} ELSE {plain} END)" if long else plain
    text = f"NULLIF({text}, '')"
    if dialect.nan and _are_numbers(names):
        text = f"NULLIF({text}, {dialect.string(dialect.nan)})"
    return _as_words(text, names, dialect)


def _are_numbers(names: Sequence[str]) -> bool:
    """Returns whether all names are finite numbers, as codes are; a column of them may hold NaN."""
    try:
        return bool(np.isfinite([float(name) for name in names]).all())
    except ValueError:
        return False


def _as_words(text: str, names: Sequence[str], dialect: Dialect) -> str:
    """Returns names with true and false in small letters; where all are words for these, booleans stand for them too.

    Engines read `yes` and `no` of a CSV as booleans, unless told otherwise, and write these as true and false.
    """
    truth = set(names) & set(TRUTHS[0])
    if truth and truth != set(names):
        words = ", ".join(map(dialect.string, TRUTHS[0]))
        return f"CASE WHEN LOWER({text}) IN ({words}) THEN LOWER({text}) ELSE {text} END"
    said = {name.lower(): name for name in names}
    pair = next((pair for pair in TRUTHS if set(said) <= set(pair)), None)
    if pair is None or len(said) < len(names):
        return text
    ways = [(way, word) for word, each in zip(pair, dialect.truths, strict=True) for way in each if word in said]
    cases = [f"WHEN {dialect.string(way)} THEN {dialect.string(said[word])}" for way, word in ways]
    text = f"LOWER({text})" if truth else text
    return f"CASE {text} {' '.join(cases)} ELSE {text} END"
