"""How each engine writes what the queries need: names, numbers, text, days, float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calirare._util.errors import InputError
from calirare.export.sql.days import ZONED, digits, plain, plain_by_globs

SINGLE = "CAST(CAST({x} AS {type}) AS {double})"
WHOLE = "^([-+]?[0-9]+)[.]0+$"  # a whole number with a point
POWER = "^[-+]?[0-9]([.][0-9]+)?[eE][+]?[0-9]+$"  # a large one of a column of floats, as engines write it
TINIEST = 1.2e-38  # below which float32 has no full precision
# SQLite has no float32: Veltkamp's splitting (1968) leaves the first 53 - 29 = 24 binary digits, rounded to nearest.
IN_BLANKS = "NULLIF(TRIM(BOTH ' ' FROM CAST({x} AS {type})), '')"
IN_DUCKDB = plain(
    IN_BLANKS.replace("{type}", "VARCHAR"),
    "regexp_matches({text}, '{pattern}')",
    "regexp_replace({text}, '{pattern}', '{by}')",
)
IN_POSTGRES = plain(
    IN_BLANKS.replace("{type}", "text"), "{text} ~ '{pattern}'", "regexp_replace({text}, '{pattern}', '{by}')"
)
IN_SPARK = plain(
    IN_BLANKS.replace("{type}", "STRING"),
    "{text} RLIKE '{pattern}'",
    "regexp_replace({text}, '{pattern}', '{by}')",
    "$",
)
ROUNDED = "({x} * 536870913.0 - ({x} * 536870913.0 - {x}))"


@dataclass(frozen=True)
class Dialect:
    """One engine's SQL.

    Attributes:
        name: of the engine, as it is typed.
        quote: what stands around a name.
        double: the type of float64.
        single: the type of float32; empty where there is none.
        text: the type of text.
        days: of a date or a time `{x}`, the days since the start of the year 2000, UTC.
        kept: what stands before a part of the query that is to be computed once.
        pinned: a condition that holds always and that the engine cannot foresee: a part with it is computed once, where
            the engine would else write it out wherever it is read; empty where `kept` does.
        arrays: whether constants are searched in arrays, in place of nested CASEs, see `arrays`.
        low: the function of the least of its arguments.
        high: the function of the greatest.
        escapes: whether a backslash means something in text.
        salted: whether a hop's join may be spread over more keys.
        few_groups: whether the engine takes every GROUP BY for so few rows that it joins them without an index.
        told: what to tell the engine before the query; empty where there is nothing.
        nan: how the engine writes NaN as text, which equals itself as a number there; empty where there is none.
        trim: text `{x}` without blanks around it.
        whole: text `{x}`, of whole numbers without a point.
        power: a condition on text `{x}`, that it is a number as `POWER`; and it as text without an exponent.
        strict: whether a number too small for float32, and an exponential too small for float64, is an error.
        truths: how true and false are written as text.
    """

    name: str
    quote: str
    double: str
    single: str
    text: str
    days: str
    kept: str = "MATERIALIZED "
    pinned: str = ""
    arrays: bool = False
    low: str = "LEAST"
    high: str = "GREATEST"
    escapes: bool = False
    salted: bool = False
    few_groups: bool = False
    told: str = ""
    nan: str = ""
    trim: str = "TRIM(BOTH ' ' FROM {x})"
    whole: str = f"regexp_replace({{x}}, '{WHOLE}', '\\1')"
    power: tuple[str, str] = (
        f"regexp_matches({{x}}, '{POWER}')",
        "CAST(CAST(CAST({x} AS DOUBLE) AS HUGEINT) AS VARCHAR)",
    )
    strict: bool = False
    truths: tuple[tuple[str, ...], tuple[str, ...]] = (("true",), ("false",))

    def name_of(self, word: str) -> str:
        """Returns one name, quoted.

        Raises:
            InputError: it is empty or has a zero byte, which no engine takes.
        """
        if not word or "\0" in word:
            raise InputError(f"export: a table or column must have a name without a zero byte, got {word!r}")
        return self.quote + word.replace(self.quote, 2 * self.quote) + self.quote

    def table(self, words: str) -> str:
        """Returns the name of a table, quoted; parts are divided by points, as in schema.table."""
        return ".".join(self.name_of(word) for word in words.split("."))

    def string(self, text: str) -> str:
        """Returns text as a literal; a zero byte is an InputError."""
        if "\0" in text:
            raise InputError(f"export: a category must have no zero byte, got {text!r}: mend the table and train again")
        escaped = text.replace("\\", "\\\\") if self.escapes else text
        return "'" + escaped.replace("'", "\\'" if self.escapes else "''") + "'"

    def as_double(self, x: str) -> str:
        """Returns an expression as float64."""
        return f"CAST({x} AS {self.double})"

    def truth_or_number(self, x: str) -> str:
        """Returns a column as float64 that may hold true and false, as booleans or text."""
        text = f"CAST({x} AS {self.text})"
        other = self.as_double(text if self.strict else x)
        return f"CASE LOWER({text}) WHEN 'true' THEN 1.0e0 WHEN 'false' THEN 0.0e0 ELSE {other} END"

    def known(self, x: str) -> str:
        """Returns a float64 column, NULL where it is NaN: the run knows of one way to be missing."""
        return f"NULLIF({x}, {self.as_double(self.string(self.nan))})" if self.nan else x

    def as_single(self, x: str) -> str:
        """Returns a float64 column, rounded to what float32 holds, as float64."""
        if self.strict:
            x = f"(CASE WHEN ABS({x}) < {TINIEST} THEN 0.0e0 ELSE {x} END)"
        if self.single:
            return SINGLE.format(x=x, type=self.single, double=self.double)
        return ROUNDED.format(x=x)


DIALECTS = {
    each.name: each
    for each in (
        Dialect(
            "duckdb",
            '"',
            "DOUBLE",
            "FLOAT",
            "VARCHAR",
            f"(CASE WHEN regexp_matches({IN_DUCKDB}, '{digits(ZONED)}') "
            f"THEN epoch(CAST({IN_DUCKDB} AS TIMESTAMPTZ)) ELSE epoch(CAST({IN_DUCKDB} AS TIMESTAMP)) END) / 86400.0e0 "
            "- 10957.0e0",
            nan="nan",
        ),
        Dialect(
            "sqlite",
            '"',
            "REAL",
            "",
            "TEXT",
            f"(julianday({plain_by_globs('TRIM({x})')}) - 2451544.5)",
            low="MIN",
            high="MAX",
            few_groups=True,
            trim="TRIM({x}, ' ')",
            whole=(
                "CASE WHEN RTRIM({x}, '0') GLOB '*[0-9].' AND LTRIM(RTRIM(RTRIM({x}, '0'), '.'), '+-') NOT GLOB "
                "'*[^0-9]*' AND {x} NOT GLOB '*.' THEN RTRIM(RTRIM({x}, '0'), '.') ELSE {x} END"
            ),
            power=(
                "{x} GLOB '[0-9]*e+[0-9]*' OR {x} GLOB '[-+][0-9]*e+[0-9]*'",
                "CAST(CAST(CAST({x} AS REAL) AS INTEGER) AS TEXT)",
            ),
            truths=(("true", "1", "1.0"), ("false", "0", "0.0")),
        ),
        Dialect(
            "postgres",
            '"',
            "double precision",
            "real",
            "text",
            "CAST(CASE WHEN CAST(pg_typeof({x}) AS text) = 'timestamp with time zone' "
            f"OR {IN_POSTGRES} ~ '{digits(ZONED)}' THEN EXTRACT(EPOCH FROM CAST({IN_POSTGRES} AS timestamptz)) "
            f"ELSE EXTRACT(EPOCH FROM CAST({IN_POSTGRES} AS timestamp)) END AS double precision) / 86400.0 - 10957.0",
            told="SET jit = off;",
            nan="NaN",
            power=(f"{{x}} ~ '{POWER}'", "CAST(CAST({x} AS numeric) AS text)"),
            strict=True,
        ),
        Dialect(
            "spark",
            "`",
            "DOUBLE",
            "FLOAT",
            "STRING",
            "CAST(unix_micros(CASE WHEN typeof({x}) IN ('date', 'timestamp', 'timestamp_ntz') "
            f"THEN CAST({{x}} AS TIMESTAMP) ELSE CAST({IN_SPARK} AS TIMESTAMP) END) AS DOUBLE) / 8.64e10 - 10957.0e0",
            kept="",
            pinned="rand(0) >= 0",
            arrays=True,
            escapes=True,
            salted=True,
            nan="NaN",
            whole=f"regexp_replace({{x}}, '{WHOLE}', '$1')",
            power=(f"{{x}} RLIKE '{POWER}'", "CAST(CAST({x} AS DECIMAL(38, 0)) AS STRING)"),
        ),
    )
}


def number(value: float, digits: int = 17) -> str:
    """Returns a finite number as a literal of float64; in parentheses where it is negative."""
    value = float(value)
    if not math.isfinite(value):
        raise InputError(f"export: a number of the run is {value}, which no query can hold: train again")
    text = repr(value) if digits >= 17 else f"{value:.{digits}g}"
    text = text if "e" in text else f"{text}e0"
    return f"({text})" if value < 0 else text
