"""Days of dates and times in each engine: text in every way of ISO 8601 that a run's tables are read in, in UTC."""

from __future__ import annotations

# Ways of writing, D a digit, and what each becomes, one after the other: in the end "2024-01-31 12:00:00+01:00".
WAYS = (
    ("^(DDDD)$", r"\1-01"),
    ("^(DDDD)[-/.](DD)$", r"\1-\2-01"),
    ("^(DDDD)(DD)(DD)", r"\1-\2-\3"),
    ("^(DDDD)[/. ](DD)[/. ](DD)", r"\1-\2-\3"),
    ("^(DDDD-DD-DD[T ]DD)(DD)", r"\1:\2"),
    ("^(DDDD-DD-DD[T ]DD:DD)(DD)", r"\1:\2"),
    ("^(DDDD-DD-DD[T ]DD)($|[Z+-]| Z)", r"\1:00\2"),
    ("^(DDDD-DD-DD[T ]DD:DD)($|[Z+-]| Z)", r"\1:00\2"),
    (" Z$", "Z"),
)
PLAIN = "^DDDD-DD-DD([T ]DD:DD:[^ ]*)?$"  # what is in none of these ways
# A time that says how far it is from UTC: else an engine takes it for one of its session, or forgets how far.
ZONED = ":DD([.]D+)?(Z|[+-]DD(:?DD)?(:DD)?)$"
# The same for SQLite, which has no regular expressions: steps, each of patterns of GLOB and what becomes of a text t.
# They are few, as SQLite reads nothing that is nested deeply.
DASHED = "SUBSTR(t, 1, 4) || '-' || SUBSTR(t, {month}, 2) || '-' || SUBSTR(t, {day}, 2) || SUBSTR(t, {day} + 2)"
GLOBS = (
    (
        ("DDDD", "t || '-01-01'"),
        ("DDDD[-/.]DD", "SUBSTR(t, 1, 4) || '-' || SUBSTR(t, 6) || '-01'"),
        ("DDDDDDDD*", DASHED.replace("{month}", "5").replace("{day}", "7")),
        ("DDDD[/. ]DD[/. ]DD*", DASHED.replace("{month}", "6").replace("{day}", "9")),
    ),
    (
        ("*-DD[T ]DDDDDD*", "SUBSTR(t, 1, 13) || ':' || SUBSTR(t, 14, 2) || ':' || SUBSTR(t, 16)"),
        ("*-DD[T ]DDDD*", "SUBSTR(t, 1, 13) || ':' || SUBSTR(t, 14)"),
        ("*-DD[T ]DD", "t || ':00'"),
        ("*-DD[T ]DD[Z+-]*", "SUBSTR(t, 1, 13) || ':00' || SUBSTR(t, 14)"),
    ),
    (
        ("*:*[+-]DD", "t || ':00'"),
        ("*:*[+-]DDDD", "SUBSTR(t, 1, LENGTH(t) - 2) || ':' || SUBSTR(t, -2)"),
    ),
)
PLAIN_GLOBS = ("DDDD-DD-DD", "DDDD-DD-DD[T ]DD:DD:DD")


def digits(pattern: str) -> str:
    """Returns a pattern with D for a digit as an engine takes it; without braces, as what is made of it is a format."""
    return pattern.replace("D", "[0-9]")


def plain(text: str, matches: str, replaced: str, group: str = "\\") -> str:
    """Returns an expression of `{x}`: text, with a date in another way of ISO 8601 as all engines read it.

    Args:
        text: `{x}` without blanks around it.
        matches: the engine's condition that `{text}` matches `{pattern}`.
        replaced: the engine's replacement of `{pattern}` in `{text}` by `{by}`.
        group: what stands before the number of a group.
    """
    out = text
    for way, by in WAYS:
        out = _filled(replaced, text=out, pattern=digits(way), by=by.replace("\\", group))
    return f"(CASE WHEN {_filled(matches, text=text, pattern=digits(PLAIN))} THEN {text} ELSE {out} END)"


def plain_by_globs(text: str) -> str:
    """Returns the same for SQLite."""
    out = f"SELECT {text} AS t"
    for step in GLOBS:  # with an OFFSET, as SQLite else writes each step out wherever the next one reads it
        cases = " ".join(f"WHEN t GLOB '{digits(way)}' THEN {by}" for way, by in step)
        out = f"SELECT CASE {cases} ELSE t END AS t FROM ({out} LIMIT 1 OFFSET 0)"
    is_plain = " OR ".join(f"{text} GLOB '{digits(way)}'" for way in PLAIN_GLOBS)
    return f"(CASE WHEN {is_plain} THEN {text} ELSE ({out}) END)"


def _filled(form: str, **parts: str) -> str:
    """Returns a form with its parts; other braces stay."""
    for name, part in parts.items():
        form = form.replace(f"{{{name}}}", part)
    return form
