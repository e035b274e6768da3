"""Two runs of many classes side by side: measures, each class, settings, and nodes whose likeliest class differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.measure_tables import floor_of
from calirare._util.run_files import check_as_written, other_metrics
from calirare.page.against import names_tested, settings_that_differ
from calirare.run import TOGETHER, SavedRun

SHOWN = 25  # rows of the table of nodes whose likeliest class differs
NAMED = 3  # classes that an error names
OF_CLASS = (
    ("auprc", "AUPRC"),
    ("recall", "recall"),
    ("precision", "precision"),
    ("mean_p_over_share", "mean P / share"),
)
OWN = {"own_graph": True}  # what a run that was not recalibrated has its maps of
SIDES = ("here", "there")


@dataclass(frozen=True)
class ClassesAgainst:
    """What a page says of a second run of the same classes.

    Attributes:
        name: of the second run's folder.
        same_nodes: whether both speak of nodes of the same names.
        settings: name, value here, value there, of those that differ.
        measures: name, here, there.
        each_head: names of the columns of `each`.
        each: a row per class: its name, and of each measure the value here and there.
        changed: nodes whose likeliest class differs, those first whose probabilities are furthest apart.
        counts: nodes of both runs ("both"), those whose likeliest class differs ("differ"), how many of these have a
            label ("labelled") and it is the class here ("right_here") or there ("right_there").
        caveat: why measures of the two cannot be held beside each other, or empty.
    """

    name: str
    same_nodes: bool
    settings: tuple[tuple[str, str, str], ...]
    measures: tuple[tuple[str, str, str], ...]
    each_head: tuple[str, ...]
    each: tuple[tuple[str, ...], ...]
    changed: tuple[dict[str, str], ...]
    counts: dict[str, int]
    caveat: str


def against_classes(
    here: SavedRun, metrics: dict[str, Any], predictions: pd.DataFrame, there: SavedRun
) -> ClassesAgainst:
    """Returns what sets a run of many classes apart from another.

    Args:
        here: the run of the page.
        metrics: its metrics.json.
        predictions: its table of nodes.
        there: the other run.

    Raises:
        InputError: the other run has other classes, or a file of it is missing or damaged.
    """
    check_same_classes(here, there)
    check_as_written(there.folder, ("metrics.json", "predictions.csv"))
    frame, names = there.to_frame(), here.class_names
    try:
        others = parse_json(read_text(there.folder / "metrics.json"))
        measures, each = tuple(_measures(metrics, others)), tuple(_each(metrics, others, names))
        caveat = _caveat(metrics, others, names_tested(predictions) == names_tested(frame))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(there.folder, error) from error
    first, second = _common(predictions, frame)
    apart = (first["prediction"] != second["prediction"]).to_numpy()
    differ, other = first[apart], second[apart]
    label = differ["y"].where(differ["y"] != "", other["y"])
    counts = {
        "both": len(first),
        "differ": len(differ),
        "labelled": int((label != "").sum()),
        "right_here": int(((label != "") & (label == differ["prediction"])).sum()),
        "right_there": int(((label != "") & (label == other["prediction"])).sum()),
    }
    return ClassesAgainst(
        there.folder.name,
        len(first) == len(predictions) == len(frame),
        tuple(settings_that_differ(here, there)),
        measures,
        ("class", *(f"{label}, {side}" for _, label in OF_CLASS for side in SIDES)),
        each,
        tuple(_changed(differ, other, label, names)),
        counts,
        caveat,
    )


def check_same_classes(here: SavedRun, there: SavedRun) -> None:
    """Checks that two runs have the same classes, in any order.

    Raises:
        InputError: they have not.
    """
    ours, theirs = here.class_names, there.class_names
    if set(ours) == set(theirs):
        return
    one = next((name for name in theirs if name not in ours), None)
    what = f"has {one!r}" if one is not None else f"has no {next(n for n in ours if n not in theirs)!r}"
    raise InputError(
        f"report: --against must be a run of the same classes as {here.folder}, {_named(ours)}, but {there.folder} "
        f"{what}: name another run"
    )


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names[:NAMED]) + (", .." if len(names) > NAMED else "")


def _measures(here: dict[str, Any], there: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields what both runs measured of themselves, for the target of each."""
    pair = (here, there)
    yield _row("labels trained on", [f"{run['graph']['labels_trained_on']:,}" for run in pair])
    yield _row("nodes judged on", [f"{run['n_judged']:,} {run['judged_on']}" for run in pair])
    yield _row("target", [_side(run) for run in pair])
    if any("recalibrated" in run for run in pair):
        yield _row("maps fitted anew on", [_anew(run) for run in pair])
    reports = [run["report"][_side(run)] for run in pair]
    for key, label in TOGETHER:
        floor = f"{key}_noise_floor"
        floors = all(floor in report for report in reports)
        cells = [f"{report[key]:.4f}" + (floor_of(report[floor]) if floors else "") for report in reports]
        yield _row(label + (" (floor)" if floors else ""), cells)
    checks = [run["agreement"] for run in pair]
    yield _row("leave-one-out check", ["none" if check is None else str(check["verdict"]) for check in checks])


def _row(name: str, cells: list[str]) -> tuple[str, str, str]:
    return name, cells[0], cells[1]


def _anew(metrics: dict[str, Any]) -> str:
    """Returns what fresh labels the maps of a run were fitted on (`calirare recalibrate`), or that they were not."""
    facts = metrics.get("recalibrated")
    if facts is None:
        return "no fresh labels"
    return f"{amount(facts['labels'], 'label')} of {'its own graph' if facts['own_graph'] else facts['graph']}"


def _side(metrics: dict[str, Any]) -> str:
    """Returns what a run's predictions.csv is of: its target, or without a map "raw"."""
    return metrics["target"] if metrics["target"] in metrics["report"] else "raw"


def _each(here: dict[str, Any], there: dict[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields a row per class, in the order of this run."""
    rows = [{row["name"]: row for row in run["classes"][_side(run)]} for run in (here, there)]
    for name in names:
        values = [side[name][key] for key, _ in OF_CLASS for side in rows]
        yield class_words(name), *("" if value is None else f"{value:.3f}" for value in values)


def _common(here: pd.DataFrame, there: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the rows of the nodes of both runs, in the same order, with their names as index."""
    first, second = (table.set_index(table["node"].astype(str)) for table in (here, there))
    names = first.index[first.index.isin(second.index)]
    return first.loc[names], second.loc[names]


def _changed(
    here: pd.DataFrame, there: pd.DataFrame, label: pd.Series, names: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """Yields nodes whose likeliest class differs, those first whose probabilities are furthest apart."""
    p, q = (side[[f"p_{name}" for name in names]].to_numpy(dtype=np.float64) for side in (here, there))
    apart = np.abs(p - q).sum(1) / 2
    for i in np.argsort(-apart, kind="stable")[:SHOWN]:
        first, second, known = here.iloc[i], there.iloc[i], str(label.iloc[i])
        yield {
            "node": str(here.index[i]),
            "here": class_words(first["prediction"]),
            "p_here": f"{first['confidence']:.3f}",
            "there": class_words(second["prediction"]),
            "p_there": f"{second['confidence']:.3f}",
            "apart": f"{apart[i]:.3f}",
            "label": (class_words(known) + (" (there)" if first["y"] == "" else "")) if known else "unknown",
        }


def _caveat(here: dict[str, Any], there: dict[str, Any], same_tests: bool) -> str:
    """Returns why measures of the runs are not of the same nodes or the same thing, or nothing."""
    told = list[str]()
    if _side(here) != _side(there):
        told.append("The runs have other targets, so that their probabilities are not of the same population.")
    others = {facts["graph"] for run in (here, there) if not (facts := run.get("recalibrated", OWN))["own_graph"]}
    if others and here.get("recalibrated") != there.get("recalibrated"):
        told.append(f"Maps are of labels of {' and of '.join(sorted(others))}, where classes may be in other shares.")
    alike = all(here[key] == there[key] for key in ("judged_on", "n_judged"))
    same = {"test": same_tests, "fresh": here.get("recalibrated") == there.get("recalibrated")}
    if not alike or not same.get(here["judged_on"], True):
        told.append("The runs are judged on different nodes: small differences of the measures mean nothing.")
    return " ".join(told)
