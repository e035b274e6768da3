"""What can be typed: every command of ours with its options. Light: a command's module is imported when it runs."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from calirare.cli.options import OLD_OPTIONS, UsageError, add_settings, budget, prevalence, share, whole, words

COLUMNS = ("label", "unknown", "weight", "unweighted", "id", "source_column", "target_column", "time", "as_of")
DECISION = ("decide", "cost_fn", "cost_fp", "budget", "max_alerts", "min_precision", "min_recall", "sort_by")
SCORED = (
    "root",
    "nodes",
    *COLUMNS,
    "duplicates",
    "self_loops",
    "symmetrize",
    "unknown_ends",
    "target_nodes",
    "download",
)


KINDS = {"path": Path, "whole": whole, "share": share, "prevalence": prevalence, "budget": budget, "words": words}


@dataclass(frozen=True)
class Command:
    """One command; `run` of the module of its name does it.

    Attributes:
        help: what it does, one line.
        more: further sentences of its own help.
        options: its own, as `add_argument` takes them, or the names of such that commands share.
        settings: which of the generated options it has too: "all", those of a graph that is "scored", with "decided"
            those of a decision too, or none.
    """

    help: str
    more: str
    options: list[dict[str, Any] | str]
    settings: str = ""

    def declare(self, parser: argparse.ArgumentParser, *, every: bool) -> None:
        """Adds its options to a parser, whose help shows `every` one of them or the most used."""
        for name, kind in KINDS.items():
            parser.register("type", name, kind)
        for shared in self.options:
            option = dict(_SHARED[shared] if isinstance(shared, str) else shared)
            parser.add_argument(option.pop("name"), **option)
        if self.settings:
            names = {"all": None, "scored": SCORED, "decided": SCORED + DECISION}
            add_settings(parser, names[self.settings], every=every)


_TOLD = json.loads(Path(__file__).with_name("commands.json").read_text(encoding="utf-8"))
_SHARED: dict[str, dict[str, Any]] = _TOLD["shared"]
COMMANDS = {name: Command(**facts) for name, facts in _TOLD["commands"].items()}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, with what may have been meant."""

    def error(self, message: str) -> NoReturn:
        """Raises a usage error.

        Raises:
            UsageError: always.
        """
        message = re.sub(r"^the following arguments are required: (.*)", r"missing \1", message)
        message = re.sub(r"^argument (\S+?)(?:/\S+)?: ", r"\1 ", message)
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def values(self, words: list[str]) -> dict[str, Any]:
        """Returns the value of every option by its name.

        Raises:
            UsageError: a word is not known, or a value is of a wrong type.
        """
        known = self._option_string_actions
        words = [self._renamed(word) for word in _positive_only(words, known)]
        if "--run" in known and words and not words[0].startswith("-"):
            words = ["--run", *words]
        strange = [name for name in (word.partition("=")[0] for word in words) if name in USUAL and name not in known]
        if strange:  # before what is missing, which it may stand for
            self.error(unknown("option", strange[0], known))
        values, extra = self.parse_known_args(words)
        if extra:
            self.error(unknown("option", extra[0].partition("=")[0], known))
        return vars(values)

    def _renamed(self, word: str) -> str:
        """Returns a word with the present name of an option whose name changed."""
        name, equals, value = word.partition("=")
        new, known = OLD_OPTIONS.get(name), self._option_string_actions
        if name in known or new not in known:
            return word
        note_renamed(name, new)
        return f"{new}{equals}{value}"


def note_renamed(old: str, new: str) -> None:
    """Notes on stderr that a name has changed."""
    print(f"note: {old} is now {new}. The old name works until version 2.0.", file=sys.stderr)


def _positive_only(words: list[str], known: Collection[str]) -> list[str]:
    """Returns words with version 0's `--labels all` and `--labels positive-only` in their present form."""
    out, left = list[str](), list(words)
    while left:
        word = left.pop(0)
        if "--positive-only" not in known or word.partition("=")[0] != "--labels":
            out.append(word)
            continue
        value = word.partition("=")[2] or (left.pop(0) if left else "")
        if value not in ("all", "positive-only"):
            raise UsageError(f"no such option --labels; a table of labels is --labels-file, got {value!r}")
        note_renamed(f"--labels {value}", "--positive-only" if value != "all" else "the default")
        out += ["--positive-only"] if value != "all" else []
    return out


# Words of other tools, and of other commands, for options of ours: the first that a command has is meant.
GRAPH = ("--dataset", "--graph")
USUAL = {"--edges": GRAPH, "--input": GRAPH, "--output": ("--out",)} | dict.fromkeys(GRAPH, GRAPH)


def unknown(what: str, word: str, known: Collection[str]) -> str:
    """Returns what says that there is no such command or option, and what may have been meant."""
    meant = [name for name in USUAL.get(word, ()) if name in known]
    close = meant or get_close_matches(word, known, 1)
    if what == "option" and not word.startswith("-"):
        return f"unexpected word {word!r}"
    return f"no such {what} {word}" + (f"; did you mean {close[0]}?" if close else "")


def parser_of(name: str, *, every: bool = False) -> Parser:
    """Returns the parser of a command, whose help shows every option or the most used."""
    command = COMMANDS[name]
    hidden, run = command.settings and not every, "RUN " if "run" in command.options else ""
    parser = Parser(
        prog=f"calirare {name}",
        description=" ".join([command.help, command.more]) if every else command.help,
        epilog=f"Every option, in full: calirare {name} --help-all" if hidden else None,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
        usage=f"calirare {name} " + {"metrics": "[OPTIONS] TABLE"}.get(name, f"{run}[OPTIONS]"),
    )
    command.declare(parser, every=every)
    return parser
