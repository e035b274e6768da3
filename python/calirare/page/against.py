"""Two runs next to each other: measures, settings that differ, and nodes whose alert or likeliest class differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from calirare._util.amounts import class_words
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.measure_tables import detection_rows, rare_rows, together_rows
from calirare._util.run_files import check_as_written, other_metrics
from calirare.page.content import ALERTS, class_side, side_of
from calirare.run import TOGETHER, SavedRun, predictions_of

ABSENT = "not there"
OTHER_NODES = "The runs are judged on different nodes: small differences of the measures mean nothing."
DECISIONS = ("no alert", "an alert")
Values = dict[str, Any]


def against(here: SavedRun, metrics: Values, predictions: pd.DataFrame, there: SavedRun) -> Values:
    """Returns what sets a run apart from another, for the template.

    `name` of the other run's folder, `settings` that differ and `measures` (name, here, there), a `caveat` where the
    measures are of other nodes, how many nodes `both` runs have, how many of these `differ` in their alert or likeliest
    class, and the first of those, `changed`.

    Args:
        here: the run of the page.
        metrics: its metrics.json.
        predictions: its table of nodes.
        there: the other run.

    Raises:
        InputError: the other run has other classes, or a file of it is missing or damaged.
    """
    if here.settings.many != there.settings.many or {*here.class_names} != {*there.class_names}:
        raise InputError(
            f"report: --against must be a run of the same classes as {here.folder}, "
            f"{', '.join(here.class_names)}, but {there.folder} has {', '.join(there.class_names)}: name another run"
        )
    check_as_written(there.folder, ("metrics.json", f"{predictions_of(there.folder)}.csv"))
    try:
        pair, other = (metrics, parse_json(read_text(there.folder / "metrics.json"))), there.to_frame()
        alike = _judged(metrics, predictions) == _judged(pair[1], other)
        return {
            "name": there.folder.name,
            "settings": tuple(_settings(here, there)),
            "measures": _measures(*pair, many=here.settings.many),
            "caveat": "" if alike else OTHER_NODES,
        } | _changed(predictions, other, here)
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(there.folder, error) from error


def _judged(run: Values, table: pd.DataFrame) -> tuple[str, object]:
    """Returns what a run is judged on, and its test nodes, or without any how many labels it has."""
    tested = frozenset(table.loc[table["split"] == "test", "node"].astype(str))
    return run["judged_on"], tested or run["graph"]["labels_trained_on"]


def _measures(here: Values, there: Values, *, many: bool) -> list[list[str]]:
    """Returns rows of name, value here and value there."""
    pair = here, there
    rows = [
        ["labels trained on", *(f"{run['graph']['labels_trained_on']:,}" for run in pair)],
        ["judged on", *(run["judged_on"] for run in pair)],
    ]
    if many:
        rows.append(["target", *map(class_side, pair)])
        return rows + together_rows([run["report"][class_side(run)] for run in pair], TOGETHER, 4)
    auprc = (detection_rows(side_of(run["detection"], run))[0] for run in pair)
    rows.append(["AUPRC", *(f"{value} ({ends})" for _, value, ends, _ in auprc)])
    rows += rare_rows([side_of(run["p_rare"], run) for run in pair])
    rows.append(["verdict", *(str(run["verdict"]["answer"]) for run in pair)])
    return [*rows, ["threshold", *(f"{run['decision']['threshold']:.3g}" for run in pair)]]


def _changed(here: pd.DataFrame, there: pd.DataFrame, run: SavedRun) -> Values:
    """Returns the nodes that both runs have and decide differently, the surest first."""
    decision, p = ("prediction", "confidence") if run.settings.many else ("alert", "p_rare")
    tables = (table[["node", "y", decision, p]].assign(node=table["node"].astype(str)) for table in (here, there))
    both = pd.merge(*tables, on="node", suffixes=("", "_there"))
    differ = both[both[decision] != both[f"{decision}_there"]]
    first = differ.assign(sure=differ[p] + differ[f"{p}_there"]).nlargest(ALERTS, "sure")
    names = run.class_names

    def words(value: Any) -> str:
        return class_words(value) if run.settings.many else DECISIONS[int(value)]

    def label(y: Any) -> str:
        return "unknown" if y in ("", -1) else class_words(y if run.settings.many else names[int(y == 1)])

    rows = []
    for row in first.to_dict("records"):
        cells = [(words(row[decision + side]), f"{row[p + side]:.3f}") for side in ("", "_there")]
        rows.append((row["node"], *cells[0], *cells[1], label(row["y"])))
    return {"both": len(both), "differ": len(differ), "changed": rows}


def _settings(here: SavedRun, there: SavedRun) -> Iterator[tuple[str, str, str]]:
    """Yields name, value here and value there of the settings that differ, and of CaliRare's version if that does."""
    first, second = (
        {"version of calirare": run.version} | dict(_flat(run.settings.to_mapping())) for run in (here, there)
    )
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            one, other = (side.get(name, ABSENT) for side in (first, second))
            yield name, *("none" if value is None else str(value) for value in (one, other))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value
