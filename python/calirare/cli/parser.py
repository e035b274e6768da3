"""What can be typed: every command of ours with its options. Light: a command's module is imported when it runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from calirare.cli.options import UsageError, add_settings, budget, prevailing, share, whole

COLUMNS = ("label", "weight", "id", "source_column", "target_column", "time", "as_of")
SCORED = ("root", "features", *COLUMNS, "duplicates", "self_loops", "symmetrize", "unknown_ends", "download")


@dataclass(frozen=True)
class Command:
    """One command; `run` of the module of its name does it.

    Attributes:
        help: what it does, one line.
        more: further sentences of its own help.
        declare: adds its options to a parser.
    """

    help: str
    more: str
    declare: Callable[[argparse.ArgumentParser], None]


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
        strange = [name for name in (word.partition("=")[0] for word in words) if name in USUAL and name not in known]
        if strange:  # before what is missing, which it may stand for
            self.error(unknown("option", strange[0], known))
        values, extra = self.parse_known_args(words)
        if extra:
            self.error(unknown("option", extra[0].partition("=")[0], known))
        return vars(values)


# Words of other tools, and of other commands, for options of ours: the first that a command has is meant.
GRAPH = ("--dataset", "--graph")
USUAL = {"--edges": GRAPH, "--nodes": ("--features",), "--input": GRAPH, "--output": ("--out",)} | dict.fromkeys(
    GRAPH, GRAPH
)


def unknown(what: str, word: str, known: Collection[str]) -> str:
    """Returns what says that there is no such command or option, and what may have been meant."""
    meant = [name for name in USUAL.get(word, ()) if name in known]
    close = meant or get_close_matches(word, known, 1)
    if what == "option" and not word.startswith("-"):
        return f"unexpected word {word!r}"
    return f"no such {what} {word}" + (f"; did you mean {close[0]}?" if close else "")


def parser_of(name: str) -> Parser:
    """Returns the parser of a command."""
    command = COMMANDS[name]
    parser = Parser(
        prog=f"calirare {name}",
        description=" ".join([command.help, command.more]),
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
        usage=f"calirare {name} [OPTIONS]" + (" TABLE" if name == "metrics" else ""),
    )
    command.declare(parser)
    return parser


def _overwrite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--overwrite", action="store_true", help="Replace what is there.")


def _run(parser: argparse.ArgumentParser) -> None:
    help_text = "Folder written by `calirare train`."
    parser.add_argument("--run", type=Path, required=True, metavar="FOLDER", dest="folder", help=help_text)


def _moved(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graph", metavar="PATH", help="Where the run's own graph is now, if it has moved.")


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("runs/run"), help="Folder of the run. [default: runs/run]"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with any of the settings, nested as config.yaml is."
    )
    _overwrite(parser)
    add_settings(parser)


def _predict(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    parser.add_argument(
        "--graph", required=True, metavar="PATH", help="Graph to score: all that `calirare train --dataset` takes."
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="CSV to write. [default: in the run's folder]")
    _overwrite(parser)
    words = (
        "Share of the rare class in this graph, or two numbers that it lies between (95 %%), as 0.01 or 0.008,0.015: "
        "P(rare) is corrected to it; estimate: by what the scores tell."
    )
    parser.add_argument("--prevalence", type=prevailing, metavar="P|A,B|estimate", help=words)
    words = "End with code 3 where the graph differs so much from the run's that P(rare) is not to be trusted."
    parser.add_argument("--fail-on-drift", action="store_true", help=words)
    words = (
        "Which nodes get an interval: all; alerts (the likeliest, and what review.csv begins with); or auto, of 50,000 "
        "nodes or more the alerts. [default: the run's]"
    )
    parser.add_argument("--interval-nodes", metavar="auto|all|alerts", help=words)
    words = (
        "P(rare) and alerts alone, as Parquet, no intervals. With --model gcn or hops a graph in a folder is read a "
        "block of rows at a time, for graphs larger than the memory, and goes on where it was stopped."
    )
    parser.add_argument("--scores-only", action="store_true", help=words)
    add_settings(parser, SCORED)


def _recalibrate(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    words = "Graph with fresh labels, drawn at random: all that `calirare train --dataset` takes."
    parser.add_argument("--graph", required=True, metavar="PATH", help=words)
    words = "Folder of the run with new maps. [default: the run's own, with --overwrite]"
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=words)
    _overwrite(parser)
    add_settings(parser, SCORED)


def _report(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="HTML file. [default: report.html in the run's folder]"
    )
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="Another run, to be shown beside it.")
    _overwrite(parser)


def _review(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    add = parser.add_argument
    words = "SQLite file of the answers. [default: beside the run's folder, with its name and .review.sqlite]"
    add("--out", type=Path, metavar="FILE", help=words)
    add("--port", type=whole, metavar="N", default=0, help="Of 127.0.0.1. [default: any that is free]")
    words = "Write the answers so far as a table of labels, in place of the page."
    add("--export", type=Path, metavar="FILE", dest="to", help=words)
    _overwrite(parser)


def _eice(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    parser.add_argument("--nodes", metavar="PART", default="val", help="train, val, test or all. [default: val]")
    parser.add_argument("--coverage", type=share, metavar="X", help="Of the intervals. [default: the run's]")


def _explain(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    add = parser.add_argument
    add("--node", nargs="+", metavar="ID", help="Nodes, as the graph calls them.")
    add("--top", type=whole, metavar="K", help="The K likeliest alerts, in place of nodes.")
    words = "Labels of each node that are told of. [default: 10]"
    add("--labels", type=whole, metavar="N", default=10, help=words)
    words = "Column of the node table: labels of one value of it (of a date: one month) are left out together too."
    add("--group", metavar="COLUMN", help=words)
    add("--json", action="store_true", dest="as_json", help="Print JSON in place of text.")
    add("--out", type=Path, metavar="FILE", help="JSON file to write.")
    add("--pictures", type=Path, metavar="FOLDER", help="Folder for a picture of each node among its neighbours.")
    _overwrite(parser)


def _export(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    add = parser.add_argument
    either = parser.add_mutually_exclusive_group(required=True).add_argument
    either("--sql", metavar="ENGINE", help="Write a query for duckdb, sqlite, postgres or spark.")
    words = "Write a network with its maps as an ONNX model, .onnx. It takes none of the options below but --overwrite."
    either("--onnx", type=Path, metavar="FILE", help=words)
    words = "File of the query, .sql. [default: score_<engine>.sql in the run's folder]"
    add("--out", type=Path, metavar="FILE", help=words)
    for name, default, words in (
        ("nodes", "nodes", "Table with a row per node, as schema.table."),
        ("edges", "edges", "Table with a row per edge."),
    ):
        words = f"{words} [default: {default}]"
        add(f"--{name}-table", metavar="TABLE", default=default, help=words)
    words = "Table of sparse features: columns node, feature and value."
    add("--features-table", metavar="TABLE", help=words)
    words = "Of the nodes: what the edges refer to. [default: that of the run's tables, else node]"
    add("--id", metavar="COLUMN", dest="id_column", help=words)
    for name in ("source", "target"):
        words = f"Of the edges. [default: that of the run's tables, else {name}]"
        add(f"--{name}-column", metavar="COLUMN", help=words)
    add("--weight", metavar="COLUMN", help="Of the edges: weights. [default: that of the run's tables, else none]")
    words = "For spark: keys that a hub's neighbours are spread over. [default: 1]"
    add("--salt", type=whole, metavar="N", default=1, help=words)
    _overwrite(parser)


def _loo_check(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    for name, default, words in (
        ("nodes", 30, "Labels to retrain without, drawn at random."),
        ("jobs", 1, "Processes."),
        ("seed", 0, "Of the draw."),
    ):
        words = f"{words} [default: {default}]"
        parser.add_argument(f"--{name}", type=whole, metavar="N", default=default, help=words)
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="Folder that keeps finished retrainings.")
    _overwrite(parser)


def _audit(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    words = "P(wrong) from which a label is flagged. [default: 0.5]"
    parser.add_argument("--at-least", type=share, metavar="P", default=0.5, help=words)
    words = "Name K nodes without a label that are worth one next, in place of the audit."
    parser.add_argument("--next", type=whole, metavar="K", dest="following", help=words)
    words = "Choose them by value (what their labels teach of the others) or uncertainty. [default: value]"
    parser.add_argument("--by", metavar="RULE", help=words)
    words = "CSV to write, beside it a Parquet file. [default: audit.csv or next.csv in the run's folder]"
    parser.add_argument("--out", type=Path, metavar="FILE", help=words)
    _overwrite(parser)


def _update(parser: argparse.ArgumentParser) -> None:
    _run(parser)
    _moved(parser)
    add = parser.add_argument
    add("--labels", type=Path, metavar="FILE", help="CSV with columns node and label; unknown: forgotten.")
    add("--forget", type=Path, metavar="FILE", help="CSV with a column node: labels to be forgotten.")
    words = "How nodes came to their first label: chosen, or random (a random sample). [default: chosen]"
    add("--drawn", metavar="HOW", default="chosen", help=words)
    add("--out", type=Path, metavar="FOLDER", required=True, help="Folder of the new run.")
    _overwrite(parser)


def _compact(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--graph", type=Path, required=True, metavar="PATH", help="Folder or .npz file of the graph.")
    add("--log", type=Path, metavar="FILE", help="Its log. [default: beside it, with its name and .log]")
    add("--out", type=Path, required=True, metavar="FOLDER", help="Folder of the new graph; it must not be there.")


def _datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", metavar="FOLDER", help="Folder to look in.")


def _doctor(parser: argparse.ArgumentParser) -> None:
    """Takes no options."""


def _metrics(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("table", type=Path, metavar="TABLE", help="Table of predictions: CSV, TSV or Parquet, one row per sample.")
    for name, words in (
        ("y", "Label column; several for multi-label. [default: y]"),
        ("p", "Probability column: of the rare class, or one per class. [default: p]"),
        ("before", "The same columns of an earlier model."),
    ):
        add(f"--{name}", action="append", metavar="COLUMN", help=words)
    add("--weights", metavar="COLUMN", help="Column of sample weights.")
    add("--where", metavar="COLUMN=VALUE", help="Only these rows, such as split=test.")
    words = "The rare class, as it stands in the label column. [default: 1]"
    add("--minority", metavar="CLASS", default="1", help=words)
    add("--bins", type=whole, metavar="N", default=15, help="Bins of ECE and of the pictures. [default: 15]")
    words = "How many samples are looked at: a number, or a share as 0.01 or 1%%; several. [default: 1%% and 100]"
    add("--budget", type=budget, action="append", metavar="N", help=words)
    words = "P(rare class) above which is an alert, in the picture. [default: 0.5]"
    add("--threshold", type=share, metavar="P", default=0.5, help=words)
    add("--out", type=Path, metavar="FOLDER", help="Folder for metrics.json and the pictures.")
    _overwrite(parser)


COMMANDS = {
    "train": Command(
        "Train, calibrate and explain a network on a graph; write a run's folder.",
        "The folder holds config.yaml, metrics.json, predictions.csv, review.csv (what a human should look at first), "
        "model.safetensors, reliability.png, p_rare.png, precision_recall.png, budget.png, intervals.png and log.txt; "
        "with --task classes config.yaml, metrics.json, predictions.csv, classes.safetensors, reliability.png, "
        "classes.png and log.txt. Options given here win over --config.",
        _train,
    ),
    "predict": Command(
        "Score a graph with a saved run.",
        "It needs the run's folder alone. It says how many rare nodes to expect and whether the graph is one that the "
        "run can be relied on for; beside the table is a JSON file with all of it. A run of --task classes gives P of "
        "every class.",
        _predict,
    ),
    "recalibrate": Command(
        "Check a saved run on fresh labels, and fit its maps on them anew.",
        "Nothing else of the run changes; it says how right P(rare) was before and is after.",
        _recalibrate,
    ),
    "report": Command(
        "Write one HTML page of a saved run, to hand over.",
        "What was found, how far to believe it, where P(rare) is wrong, the alerts, limits and settings; nothing is "
        "fetched. Slices need the run's own graph.",
        _report,
    ),
    "review": Command(
        "Work through the review queue of a saved run on a local page, and get the answers as labels (--export).",
        "For each node P(rare), why, and keys to say what it is; every answer is saved at once. The page is for this "
        "machine alone. Reasons need the run's own graph.",
        _review,
    ),
    "eice": Command("Recompute uncertainty, ICE and EICE of a saved run.", "It needs the run's own graph.", _eice),
    "audit": Command(
        "Find labels of a saved run that are probably wrong and say why, or name nodes worth a label next (--next).",
        "It needs the run's own graph.",
        _audit,
    ),
    "explain": Command(
        "Say why nodes of a saved run have their P(rare): labels, edges, features.",
        "It needs the run's own graph; nothing is trained.",
        _explain,
    ),
    "update": Command(
        "Train a saved run again with new, other or forgotten labels, and say what that changed.",
        "It needs the run's own graph; the old run stays.",
        _update,
    ),
    "export": Command(
        "Write a saved run as one SQL query that scores tables where they are, or as one ONNX model.",
        "It needs the run's folder alone.",
        _export,
    ),
    "compact": Command(
        "Fold a log of new, changed and removed nodes and edges into a graph's folder of its own.",
        "The log is one of calirare.graph.GraphLog; it and the old graph stay. The graph is held in memory. Of nodes "
        "without names numbers.csv in the folder says which number each has now.",
        _compact,
    ),
    "loo-check": Command(
        "Hold every leave-one-out method of a saved run beside true retraining.",
        "It needs the run's own graph.",
        _loo_check,
    ),
    "datasets": Command("List the data sets, where they are looked for and how to get them.", "", _datasets),
    "doctor": Command("Print what was built, and check every kernel against its reference.", "", _doctor),
    "metrics": Command("Measure and draw calibration and detection of a table of predictions.", "", _metrics),
}
