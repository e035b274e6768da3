"""The options generated from the settings, and how what is typed becomes a value. Light: it imports no settings."""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError

TABLE = Path(__file__).with_name("options.json")  # written by `make options`
# Options and commands of version 0, accepted until 2.0.
OLD_OPTIONS = {
    "--features": "--nodes",
    "--minority": "--rare-class",
    "--target": "--calibrate-for",
    "--leave-out": "--drop-columns",
    "--scored": "--target-nodes",
    "--cost-miss": "--cost-fn",
    "--cost-alarm": "--cost-fp",
    "--by": "--sort-by",
    "--precision": "--min-precision",
    "--recall": "--min-recall",
    "--confidence": "--guarantee",
    "--relabel": "--labels-file",
    "--label-table": "--labels-file",
    "--next": "--top",
}
PLACEHOLDERS = {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH", "tuple": "A,B"}


class UsageError(InputError):
    """What was typed is no command, or not one of its options."""


@cache
def table() -> list[dict[str, Any]]:
    """Returns the options of `calirare train`, written from the settings by `make options`."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


@cache
def first() -> dict[str, str]:
    """Returns what `--help` shows of the options most used; `--help-all` shows every option."""
    return json.loads(TABLE.with_name("first.json").read_text(encoding="utf-8"))


def spelled(name: str) -> str:
    """Returns how a setting is typed."""
    return "--" + name.replace("_", "-")


def add_settings(parser: argparse.ArgumentParser, names: Collection[str] | None, *, every: bool) -> None:
    """Adds generated options to a command's, which puts what is given into `settings`, by name.

    Args:
        parser: of the command.
        names: which; None: all.
        every: whether its help shows every option in full; else those of `first`, in a line each.
    """
    parser.set_defaults(settings={})
    groups: dict[str, Any] = {}
    for option in table():
        if names is not None and option["name"] not in names:
            continue
        title = option["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        spellings = [spelled(option["name"])]
        flag = option["types"] == ["bool"]
        if flag:
            spellings.append(spelled(f"no_{option['name']}"))
        how: dict[str, Any] = {"nargs": 0} if flag else {"metavar": _placeholder(option)}
        help_text = _sentence(option["help"]) if every else first().get(option["name"], argparse.SUPPRESS)
        groups[title].add_argument(*spellings, action=_Set, option=option, help=help_text.replace("%", "%%"), **how)


def _placeholder(option: dict[str, Any]) -> str:
    return "|".join([*option["words"], *dict.fromkeys(PLACEHOLDERS[kind] for kind in option["types"])])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class _Set(argparse.Action):
    """Puts the value of a generated option into `settings`."""

    def __init__(self, option: dict[str, Any], **how: Any) -> None:
        super().__init__(**how | {"dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})
        self.option = option

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, text: Any, spelling: str | None = None
    ) -> None:
        """Takes what was typed."""
        name, typed = self.option["name"], str(spelling).removeprefix("--").replace("-", "_")
        value = typed == name if self.nargs == 0 else value_of(self.option, text, str(spelling))
        before = namespace.settings.get(name)
        if isinstance(value, tuple) and isinstance(before, tuple):  # a list goes on where it is typed again
            value = before + value
        namespace.settings[name] = value


def value_of(option: dict[str, Any], text: str, spelling: str) -> Any:
    """Returns the value of what was typed; its range is checked with the settings.

    Args:
        option: of `table`.
        text: what was typed.
        spelling: of the option, for a message.

    Raises:
        UsageError: it is of another type.
    """
    types = option["types"]
    if text in option["words"] or "str" in types:
        return text
    if text == "none" and option["optional"]:
        return None
    if "tuple" in types:
        return words(text)
    for kind in (kind for kind in (int, float) if kind.__name__ in types):
        try:
            return kind(text)
        except ValueError:
            continue
    raise UsageError(f"{spelling} must be {option['takes']}, got {text!r}")


def words(text: str) -> tuple[str, ...]:
    """Returns a list of words with commas between them, those with a comma in quotes; the `type` of an option."""
    return tuple(word for row in csv.reader(text.splitlines(keepends=True)) for word in row if word)


def whole(text: str) -> int:
    """Returns a whole number; the `type` of an option."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def share(text: str) -> float:
    """Returns a number in (0, 1); the `type` of an option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be in (0, 1), got {text}")
    return value


def prevalence(text: str) -> float | tuple[float, float] | str:
    """Returns "estimate", a number in (0, 1) or two of them in order; the `type` of an option."""
    if text == "estimate":
        return text
    try:
        ends = tuple(share(part) for part in text.split(","))
    except argparse.ArgumentTypeError:
        ends = ()
    if len(ends) == 1:
        return ends[0]
    if len(ends) == 2 and ends[0] <= ends[1]:
        return ends[0], ends[1]
    raise argparse.ArgumentTypeError(f"must be a number in (0, 1), two such numbers in order, or estimate, got {text}")


def budget(text: str) -> int | float:
    """Returns a number of samples >= 1, or a share in (0, 1] written as 0.01 or 1%; the `type` of an option."""
    percent, number = text.endswith("%"), text.removesuffix("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if percent or "." in number or "e" in number.lower():
        if 0 < value <= 1:
            return value
    elif value >= 1 and math.isfinite(value):
        return int(number)
    raise argparse.ArgumentTypeError(
        f"must be a number of samples such as 100, or a share such as 0.01 or 1%, got {text}"
    )
