"""Two runs side by side: settings that differ, measures, reliability, and alerts that one has and the other has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calirare._util.amounts import amount, class_words
from calirare._util.files import parse_json, read_text
from calirare._util.measure_tables import KNOWN_OR_DRAWN, rare_rows
from calirare._util.run_files import RECALIBRATION, check_as_written, other_metrics
from calirare.page.content import ALERTS, side_of
from calirare.run import SavedRun

QUIET = ("data.relabel", "device", "seed")  # compared as all others, told of last
ABSENT = "not there"
NOT_ANEW = "no fresh labels"


@dataclass(frozen=True)
class Against:
    """What a page says of a second run.

    Attributes:
        name: of the second run's folder.
        same_nodes: whether both speak of nodes of the same names.
        settings: name, value here, value there, of those that differ.
        measures: name, here, there.
        gained: alerts here that are none there, see `_alerts`.
        lost: alerts there that are none here.
        counts: numbers of alerts here and there, of those in both, and of those in one alone.
        caveat: why measures of the two cannot be held beside each other, or empty.
    """

    name: str
    same_nodes: bool
    settings: tuple[tuple[str, str, str], ...]
    measures: tuple[tuple[str, str, str], ...]
    gained: tuple[dict[str, str], ...]
    lost: tuple[dict[str, str], ...]
    counts: dict[str, int]
    caveat: str


def against(here: SavedRun, metrics: dict[str, Any], predictions: pd.DataFrame, there: SavedRun) -> Against:
    """Returns what sets a run apart from another.

    Args:
        here: the run of the page.
        metrics: its metrics.json.
        predictions: its table of nodes.
        there: the other run.

    Raises:
        InputError: a file of the other run is missing or damaged.
    """
    check_as_written(there.folder, ("metrics.json", "predictions.csv"))
    anew = _anew(here), _anew(there)
    try:
        others = parse_json(read_text(there.folder / "metrics.json"))
        measures = (*_measures(metrics, others), *([("maps fitted anew on", *anew)] if set(anew) != {NOT_ANEW} else []))
        frame = there.to_frame()
        caveat = _caveat(metrics, others, names_tested(predictions) == names_tested(frame))
        caveat = f"{caveat} {_of_maps_before(anew)}".strip()
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(there.folder, error) from error
    both = _joined(predictions, frame)
    gained, lost = both["alert"] > both["alert_there"], both["alert"] < both["alert_there"]
    counts = {
        "here": int(both["alert"].sum()),
        "there": int(both["alert_there"].sum()),
        "both": int((both["alert"] * both["alert_there"]).sum()),
        "gained": int(gained.sum()),
        "lost": int(lost.sum()),
    }
    classes = here.scorer.class_names
    return Against(
        there.folder.name,
        len(both) == len(predictions) and bool(both["p_there"].notna().all()),
        tuple(settings_that_differ(here, there)),
        measures,
        tuple(_alerts(both[gained], "p_rare", classes)),
        tuple(_alerts(both[lost], "p_there", classes)),
        counts,
        caveat,
    )


def _anew(run: SavedRun) -> str:
    """Returns what fresh labels the maps of a run were fitted on after it, or that they were not."""
    if not (run.folder / RECALIBRATION).is_file():
        return NOT_ANEW
    check_as_written(run.folder, (RECALIBRATION,))
    facts = parse_json(read_text(run.folder / RECALIBRATION))
    return f"{amount(facts['labels'], 'label')} of {facts['graph']}"


def _of_maps_before(anew: tuple[str, ...]) -> str:
    """Returns that numbers and alerts of runs with new maps, `_anew` here and there, are of the maps before."""
    those = [side for side, what in zip(("here", "there"), anew, strict=True) if what != NOT_ANEW]
    if not those:
        return ""
    return (
        f"Maps were fitted anew on fresh labels {' and '.join(those)} after the run: its numbers and alerts below are "
        "of the maps before, what calirare predict says is of the new ones."
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
            "One run has positive labels alone and is judged by P(known), with hidden rare nodes among the rest: "
            "measures of the two say nothing of each other."
        )
    alike = all(shown[0][key] == shown[1][key] for key in ("n", "n_rare", "judged_on"))
    if not alike or not (same_tests or shown[0]["judged_on"] != "test"):
        return "The runs are judged on different nodes: small differences of the measures mean nothing."
    return ""
