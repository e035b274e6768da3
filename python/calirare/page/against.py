"""Two runs next to each other: settings that differ, measures, and alerts or likeliest classes that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.measure_tables import KNOWN_OR_DRAWN, floor_of, rare_rows
from calirare._util.run_files import RECALIBRATION, check_as_written, other_metrics
from calirare.page.content import ALERTS, side_of
from calirare.run import TOGETHER, SavedRun

QUIET = ("data.relabel", "device", "seed")  # compared as all others, listed last
ABSENT = "not there"
NO_FRESH = "no fresh labels"
FRESH = "recalibrated on"
SHOWN = 25  # rows of the table of nodes whose likeliest class differs
NAMED = 3  # classes that an error names
OF_CLASS = (
    ("auprc", "AUPRC"),
    ("recall", "recall"),
    ("precision", "precision"),
    ("mean_p_over_share", "mean P / share"),
)
OTHER_NODES = "The runs are judged on different nodes: small differences of the measures mean nothing."


def against(here: SavedRun, metrics: dict[str, Any], predictions: pd.DataFrame, there: SavedRun) -> dict[str, Any]:
    """Returns what sets a run apart from another, for the template.

    `name` of the second run's folder, whether both have the `same_nodes`, `settings` that differ and `measures` (name,
    here, there), and a `caveat` where measures of the two cannot be compared. Of a rare class alerts of only one run,
    `gained` here and `lost` there; of many classes `each` class and nodes whose likeliest class `changed`; `counts` of
    both.

    Args:
        here: the run of the page.
        metrics: its metrics.json.
        predictions: its table of nodes.
        there: the other run.

    Raises:
        InputError: the other run has other classes, or a file of it is missing or damaged.
    """
    if here.settings.many:
        check_same_classes(here, there)
    check_as_written(there.folder, ("metrics.json", "predictions.csv"))
    try:
        others, frame = parse_json(read_text(there.folder / "metrics.json")), there.to_frame()
        same_tests = names_tested(predictions) == names_tested(frame)
        if here.settings.many:
            own = _of_classes(metrics, others, predictions, frame, here.class_names, same_tests)
        else:
            own = _of_alerts(metrics, others, predictions, frame, here.class_names, same_tests)
        fresh = _fresh(here), _fresh(there)
        own["measures"] += ((FRESH, *fresh),) if set(fresh) != {NO_FRESH} else ()
        own["caveat"] = f"{own['caveat']} {_of_maps_before(fresh)}".strip()
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(there.folder, error) from error
    return {"name": there.folder.name, "settings": tuple(settings_that_differ(here, there))} | own


def _of_alerts(
    here: dict[str, Any],
    there: dict[str, Any],
    predictions: pd.DataFrame,
    frame: pd.DataFrame,
    classes: tuple[str, ...],
    same_tests: bool,
) -> dict[str, Any]:
    """Returns the comparison of two runs for a rare class."""
    both = _joined(predictions, frame)
    gained, lost = both["alert"] > both["alert_there"], both["alert"] < both["alert_there"]
    counts = {
        "here": int(both["alert"].sum()),
        "there": int(both["alert_there"].sum()),
        "both": int((both["alert"] * both["alert_there"]).sum()),
        "gained": int(gained.sum()),
        "lost": int(lost.sum()),
    }
    return {
        "same_nodes": len(both) == len(predictions) and bool(both["p_there"].notna().all()),
        "measures": tuple(_measures(here, there)),
        "gained": tuple(_alerts(both[gained], "p_rare", classes)),
        "lost": tuple(_alerts(both[lost], "p_there", classes)),
        "counts": counts,
        "caveat": _caveat(here, there, same_tests),
    }


def _of_classes(
    here: dict[str, Any],
    there: dict[str, Any],
    predictions: pd.DataFrame,
    frame: pd.DataFrame,
    names: tuple[str, ...],
    same_tests: bool,
) -> dict[str, Any]:
    """Returns the comparison of two runs of many classes."""
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
    return {
        "same_nodes": len(first) == len(predictions) == len(frame),
        "measures": tuple(_class_measures(here, there)),
        "each_head": ("class", *(f"{label}, {side}" for _, label in OF_CLASS for side in ("here", "there"))),
        "each": tuple(_each(here, there, names)),
        "changed": tuple(_changed(differ, other, label, names)),
        "counts": counts,
        "caveat": _class_caveat(here, there, same_tests),
    }


def _fresh(run: SavedRun) -> str:
    """Returns what fresh labels the maps of a run were fitted on after it, or that they were not."""
    if not (run.folder / RECALIBRATION).is_file():
        return NO_FRESH
    check_as_written(run.folder, (RECALIBRATION,))
    facts = parse_json(read_text(run.folder / RECALIBRATION))
    return f"{amount(facts['labels'], 'label')} of {facts['graph']}"


def _of_maps_before(fresh: tuple[str, ...]) -> str:
    """Returns that numbers and alerts of runs with new calibrators, `_fresh` here and there, are of the maps before."""
    those = [side for side, what in zip(("here", "there"), fresh, strict=True) if what != NO_FRESH]
    if not those:
        return ""
    return (
        f"Recalibrated on fresh labels after training: {' and '.join(those)}. Numbers and alerts below are from "
        "before; calirare predict uses the new calibrators."
    )


def _joined(here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Returns every node of either run with P(rare) and alert of both; no alert where a run has no such node."""
    left = here[["node", "y", "p_rare", "alert"]].assign(node=here["node"].astype(str))
    right = there[["node", "y", "p_rare", "alert"]].assign(node=there["node"].astype(str))
    right = right.rename(columns={"p_rare": "p_there", "alert": "alert_there", "y": "y_there"})
    both = left.merge(right, on="node", how="outer")
    return both.fillna({"alert": 0, "alert_there": 0, "y": -1, "y_there": -1})


def names_tested(predictions: pd.DataFrame) -> frozenset[str]:
    """Returns the names of the nodes of the test part."""
    return frozenset(predictions.loc[predictions["split"] == "test", "node"].astype(str))


def _alerts(rows: pd.DataFrame, by: str, classes: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yields the alerts of one run alone, the likeliest first: node, P(rare) here and there, label."""
    for _, row in rows.nlargest(ALERTS, by).iterrows():
        yield {
            "node": str(row["node"]),
            "here": _p(row["p_rare"]),
            "there": _p(row["p_there"]),
            "label": _label(int(row["y"]), int(row["y_there"]), classes),
        }


def _label(here: int, there: int, classes: tuple[str, ...]) -> str:
    """Returns the class of a node in words, as either run knows it."""
    known = here if here >= 0 else there
    only = " (there)" if here < 0 else ""
    return "unknown" if known < 0 else f"{class_words(classes[int(known == 1)])}{only}"


def _p(value: float) -> str:
    return ABSENT if pd.isna(value) else f"{value:.3f}"


def settings_that_differ(here: SavedRun, there: SavedRun) -> Iterator[tuple[str, str, str]]:
    """Yields name, value here and value there of the settings that differ, and of CaliRare's version if that does."""
    if here.version != there.version:
        yield "version of calirare", here.version, there.version
    first, second = (dict(_flat(run.settings.to_mapping())) for run in (here, there))
    names = [name for name in dict.fromkeys((*first, *second)) if first.get(name) != second.get(name)]
    for name in sorted(names, key=lambda name: name in QUIET):
        yield name, _shown(first.get(name, ABSENT)), _shown(second.get(name, ABSENT))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _measures(here: dict[str, Any], there: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields what both runs measured of themselves, by their own maps."""
    pair = (here, there)
    graphs, found = [run["graph"] for run in pair], [side_of(run["detection"], run) for run in pair]
    yield "labels trained on", f"{graphs[0]['labels_trained_on']:,}", f"{graphs[1]['labels_trained_on']:,}"
    judged = [f"{each['n']:,} {each['judged_on']}, {each['n_rare']:,} rare" for each in found]
    yield "nodes judged on", judged[0], judged[1]
    for key, label in (("auprc", "AUPRC"), ("auroc", "AUROC")):
        cells = [f"{each[key]:.3f} ({each[key + '_lower']:.3f} to {each[key + '_upper']:.3f})" for each in found]
        yield label, cells[0], cells[1]
    for row in rare_rows([side_of(run["p_rare"], run) for run in pair]):
        yield str(row[0]), str(row[1]), str(row[2])
    checks = [run["population_check"] for run in pair]
    told = ["none" if check is None else str(check["verdict"]) for check in checks]
    yield "may P be read as a probability", told[0], told[1]
    decisions = [run["decision"] for run in pair]
    yield "threshold", f"{decisions[0]['threshold']:.3g}", f"{decisions[1]['threshold']:.3g}"


def _caveat(here: dict[str, Any], there: dict[str, Any], same_tests: bool) -> str:
    """Returns why measures of the runs are not of the same nodes, or nothing."""
    if here["graph"]["rare_class"] != there["graph"]["rare_class"]:
        return f"The other run looks for {there['graph']['rare_class']}, this one for {here['graph']['rare_class']}."
    shown = [side_of(run["detection"], run) for run in (here, there)]
    if len({each["judged_on"] == KNOWN_OR_DRAWN for each in shown}) > 1:
        return (
            "One run has positive-only labels and is judged by P(known), with hidden rare nodes among the other nodes: "
            "the measures of the two are not comparable."
        )
    alike = all(shown[0][key] == shown[1][key] for key in ("n", "n_rare", "judged_on"))
    if not alike or not (same_tests or shown[0]["judged_on"] != "test"):
        return OTHER_NODES
    return ""


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


def _class_measures(here: dict[str, Any], there: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields what both runs measured of themselves, for the target of each."""
    pair = (here, there)
    yield _row("labels trained on", [f"{run['graph']['labels_trained_on']:,}" for run in pair])
    yield _row("nodes judged on", [f"{run['n_judged']:,} {run['judged_on']}" for run in pair])
    yield _row("target", [_side(run) for run in pair])
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


def _class_caveat(here: dict[str, Any], there: dict[str, Any], same_tests: bool) -> str:
    """Returns why measures of the runs are not of the same nodes or the same thing, or nothing."""
    told = list[str]()
    if _side(here) != _side(there):
        told.append("The runs have other targets, so that their probabilities are not of the same population.")
    alike = all(here[key] == there[key] for key in ("judged_on", "n_judged"))
    if not alike or (here["judged_on"] == "test" and not same_tests):
        told.append(OTHER_NODES)
    return " ".join(told)
