"""Two runs next to each other: settings that differ, measures, and alerts or likeliest classes that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.measure_tables import KNOWN_OR_DRAWN, rare_rows
from calirare._util.run_files import RECALIBRATION, check_as_written, other_metrics
from calirare.page.content import ALERTS, OF_CLASS, class_side, side_of, together
from calirare.run import SavedRun, predictions_of

QUIET = ("data.relabel", "device", "seed")  # compared as all others, listed last
ABSENT = "not there"
NO_FRESH = "no fresh labels"
FRESH = "recalibrated on"
OTHER_NODES = "The runs are judged on different nodes: small differences of the measures mean nothing."
Values = dict[str, Any]


def against(here: SavedRun, metrics: Values, predictions: pd.DataFrame, there: SavedRun) -> Values:
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
    many, names = here.settings.many, here.class_names
    missing, more = set(names) - set(there.class_names), set(there.class_names) - set(names)
    if many and (missing or more):
        what = f"has {min(more)!r}" if more else f"has no {min(missing)!r}"
        raise InputError(
            f"report: --against must be a run of the same classes as {here.folder}, but {there.folder} {what}: name "
            "another run"
        )
    check_as_written(there.folder, ("metrics.json", f"{predictions_of(there.folder)}.csv"))
    try:
        pair, tables = (metrics, parse_json(read_text(there.folder / "metrics.json"))), (predictions, there.to_frame())
        fresh = _fresh(here), _fresh(there)
        same_tests = names_tested(tables[0]) == names_tested(tables[1])
        apart = _classes_apart(*tables, names) if many else _alerts_apart(*tables, here.scorer.class_names)
        rows = [[name, *map(cell, pair)] for name, cell in (CLASS_MEASURES if many else RARE_MEASURES)]
        if many:
            sides = [run["report"][class_side(run)] for run in pair]
            rows[3:3] = together(sides, 4)
            apart |= _each_class(pair, names)
            caveat = class_caveat(*pair, same_tests)
        else:
            rows[4:4] = rare_rows([side_of(run["p_rare"], run) for run in pair])
            caveat = rare_caveat(*pair, same_tests)
        if set(fresh) != {NO_FRESH}:
            rows.append([FRESH, *fresh])
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(there.folder, error) from error
    return apart | {
        "name": there.folder.name,
        "settings": tuple(settings_that_differ(here, there)),
        "measures": tuple(map(tuple, rows)),
        "caveat": f"{caveat} {_of_before(fresh)}".strip(),
    }


def _found(run: Values) -> Values:
    return side_of(run["detection"], run)


def _with_ends(key: str) -> Callable[[Values], str]:
    """Returns what shows a measure of detection with its interval."""
    return lambda run: (
        f"{_found(run)[key]:.3f} ({_found(run)[key + '_lower']:.3f} to {_found(run)[key + '_upper']:.3f})"
    )


def _verdict(key: str) -> Callable[[Values], str]:
    """Returns what shows the verdict of a check."""
    return lambda run: "none" if run[key] is None else str(run[key]["verdict"])


def _labels(run: Values) -> str:
    return f"{run['graph']['labels_trained_on']:,}"


RARE_MEASURES: tuple[tuple[str, Callable[[Values], str]], ...] = (
    ("labels trained on", _labels),
    ("nodes judged on", lambda run: "{n:,} {judged_on}, {n_rare:,} rare".format(**_found(run))),
    ("AUPRC", _with_ends("auprc")),
    ("AUROC", _with_ends("auroc")),
    ("verdict", lambda run: str(run["verdict"]["answer"])),
    ("threshold", lambda run: f"{run['decision']['threshold']:.3g}"),
)
CLASS_MEASURES: tuple[tuple[str, Callable[[Values], str]], ...] = (
    ("labels trained on", _labels),
    ("nodes judged on", lambda run: f"{run['n_judged']:,} {run['judged_on']}"),
    ("target", class_side),
    ("leave-one-out check", _verdict("agreement")),
)


def _alerts_apart(here: pd.DataFrame, there: pd.DataFrame, classes: tuple[str, ...]) -> Values:
    """Returns how the alerts of two runs differ."""
    both = _joined(here, there)
    gained, lost = both["alert"] > both["alert_there"], both["alert"] < both["alert_there"]
    counts = {
        "here": int(both["alert"].sum()),
        "there": int(both["alert_there"].sum()),
        "both": int((both["alert"] * both["alert_there"]).sum()),
        "gained": int(gained.sum()),
        "lost": int(lost.sum()),
    }
    return {
        "same_nodes": len(both) == len(here) and bool(both["p_there"].notna().all()),
        "gained": tuple(_alerts(both[gained], "p_rare", classes)),
        "lost": tuple(_alerts(both[lost], "p_there", classes)),
        "counts": counts,
    }


def _classes_apart(here: pd.DataFrame, there: pd.DataFrame, names: tuple[str, ...]) -> Values:
    """Returns how the likeliest classes of two runs differ, at the nodes that both have."""
    first, second = (table.set_index(table["node"].astype(str)) for table in (here, there))
    common = first.index[first.index.isin(second.index)]
    first, second = first.loc[common], second.loc[common]
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
        "same_nodes": len(first) == len(here) == len(there),
        "changed": tuple(_changed(differ, other, label, names)),
        "counts": counts,
    }


def _fresh(run: SavedRun) -> str:
    """Returns what fresh labels the calibrators of a run were fitted on after it, or that they were not."""
    if not (run.folder / RECALIBRATION).is_file():
        return NO_FRESH
    check_as_written(run.folder, (RECALIBRATION,))
    facts = parse_json(read_text(run.folder / RECALIBRATION))
    return f"{amount(facts['labels'], 'label')} of {facts['graph']}"


def _of_before(fresh: tuple[str, str]) -> str:
    """Returns that numbers and alerts of runs with new calibrators, `_fresh` here and there, are from before."""
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
    """Yields the alerts of only one run, the likeliest first: node, P(rare) here and there, label."""
    for _, row in rows.nlargest(ALERTS, by).iterrows():
        known = [classes[int(y == 1)] if y >= 0 else "" for y in (row["y"], row["y_there"])]
        here, there = (ABSENT if pd.isna(p) else f"{p:.3f}" for p in (row["p_rare"], row["p_there"]))
        yield {"node": str(row["node"]), "here": here, "there": there, "label": _label(*known)}


def _label(here: str, there: str) -> str:
    """Returns the class of a node in words, as either run knows it; empty: it does not."""
    if not here and not there:
        return "unknown"
    return class_words(here) if here else f"{class_words(there)} (there)"


def settings_that_differ(here: SavedRun, there: SavedRun) -> Iterator[tuple[str, str, str]]:
    """Yields name, value here and value there of the settings that differ, and of CaliRare's version if that does."""
    if here.version != there.version:
        yield "version of calirare", here.version, there.version
    first, second = (dict(_flat(run.settings.to_mapping())) for run in (here, there))
    names = [name for name in dict.fromkeys((*first, *second)) if first.get(name) != second.get(name)]
    for name in sorted(names, key=lambda name: name in QUIET):
        values = (side.get(name, ABSENT) for side in (first, second))
        one, other = ("none" if value is None else str(value) for value in values)
        yield name, one, other


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _each_class(pair: tuple[Values, Values], names: tuple[str, ...]) -> Values:
    """Returns a table with a row per class, in the order of this run."""
    sides = [{row["name"]: row for row in run["classes"][class_side(run)]} for run in pair]
    measures = (OF_CLASS[-1], *OF_CLASS[1:-1], OF_CLASS[0])
    each = []
    for name in names:
        values = [side[name][key] for key, _ in measures for side in sides]
        each.append((class_words(name), *("" if value is None else f"{value:.3f}" for value in values)))
    return {"each_head": ("class", *(f"{m}, {side}" for _, m in measures for side in ("here", "there"))), "each": each}


def _changed(
    here: pd.DataFrame, there: pd.DataFrame, label: pd.Series, names: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """Yields nodes whose likeliest class differs, those first whose probabilities are furthest apart."""
    p, q = (side[[f"p_{name}" for name in names]].to_numpy(dtype=np.float64) for side in (here, there))
    apart = np.abs(p - q).sum(1) / 2
    for i in np.argsort(-apart, kind="stable")[:ALERTS]:
        first, second = here.iloc[i], there.iloc[i]
        yield {
            "node": str(here.index[i]),
            "here": class_words(first["prediction"]),
            "p_here": f"{first['confidence']:.3f}",
            "there": class_words(second["prediction"]),
            "p_there": f"{second['confidence']:.3f}",
            "apart": f"{apart[i]:.3f}",
            "label": _label(first["y"], label.iloc[i]),
        }


def rare_caveat(here: Values, there: Values, same_tests: bool) -> str:
    """Returns why measures of two runs for a rare class are not of the same nodes, or nothing."""
    if here["graph"]["rare_class"] != there["graph"]["rare_class"]:
        return f"The other run looks for {there['graph']['rare_class']}, this one for {here['graph']['rare_class']}."
    first, second = _found(here), _found(there)
    if (first["judged_on"] == KNOWN_OR_DRAWN) != (second["judged_on"] == KNOWN_OR_DRAWN):
        return (
            "One run has positive-only labels and is judged by P(known), with hidden rare nodes among the other nodes: "
            "the measures of the two are not comparable."
        )
    return _other_nodes(first, second, ("n", "n_rare"), same_tests)


def class_caveat(here: Values, there: Values, same_tests: bool) -> str:
    """Returns why measures of two runs of classes are not of the same nodes or the same thing, or nothing."""
    target = "The runs have other targets, so that their probabilities are not of the same population."
    other = target if class_side(here) != class_side(there) else ""
    return f"{other} {_other_nodes(here, there, ('n_judged',), same_tests)}".strip()


def _other_nodes(here: Values, there: Values, keys: tuple[str, ...], same_tests: bool) -> str:
    """Returns that measures are of other nodes, where they are."""
    same = all(here[key] == there[key] for key in (*keys, "judged_on"))
    return "" if same and (same_tests or here["judged_on"] != "test") else OTHER_NODES
