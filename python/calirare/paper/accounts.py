"""Which rows of the paper ours, or a control that trains or reads otherwise, is within two standard deviations of."""

from __future__ import annotations

from collections.abc import Iterable

from calirare.paper.cells import Cell
from calirare.paper.methods import METHODS
from calirare.paper.protocol import DATASETS
from calirare.paper.published import LABEL_RATES, N_RARE, TABLE2, TABLE3, Row, f1_from_accuracy_and_recall
from calirare.paper.render import Table
from calirare.paper.statistics import JUDGED, Key, summarise
from calirare.paper.table3 import COLUMNS

# The paper's row: our row, and the controls that explain it where ours is off.
EXPLAINED = {
    "uncalibrated": ("uncalibrated", "dropout"),
    "temperature": ("temperature",),
    "label_smoothing": ("label_smoothing", "label_smoothing_weighted"),
    "cagcn": ("cagcn", "cagcn_base"),
    "gat": ("gat", "gat_dropout"),
    "gin": ("gin", "gin_batch_norm"),
}
IN_TABLE3 = ("gat", "gin")
DECISIONS = ("recall", "macro_f1")


def accounts_table(groups: dict[Key, dict[int, Cell]], equal_width: dict[tuple[str, int, str], bool]) -> Table:
    """Returns, for each re-implemented row of the paper, in which of the cells ours or a control is within reach.

    Args:
        groups: the cells by data set, label rate and method.
        equal_width: whether the ACEs of a post-hoc row are within reach by bins of equal width (`other_bins`).
    """
    rows, data = [], []
    for published, names in EXPLAINED.items():
        fits: dict[str, list[str]] = {name: [] for name in names}
        by_bins, nothing = [], []
        for dataset, rate in ((d, r) for d in DATASETS for r in LABEL_RATES):
            place = f"{dataset} {rate}"
            row, measures = _published(dataset, rate, published)
            near = [n for n in names if _within(groups.get((dataset, rate, n), {}).values(), row, measures)]
            if near:
                fits[near[0]].append(place)
            elif equal_width.get((dataset, rate, published)) and _within(
                groups.get((dataset, rate, published), {}).values(), row, DECISIONS
            ):
                by_bins.append(place)
            else:
                nothing.append(place)
        counts = [f"{METHODS[name].title}: {len(places)}" for name, places in fits.items()]
        counts += [f"bins of equal width: {len(by_bins)}"] * bool(by_bins)
        rows.append([METHODS[names[0]].title, "; ".join(counts), ", ".join(nothing) or "none"])
        data.append({"row": published, "fits": fits, "equal_width": by_bins, "nothing": nothing})
    header = ["the paper's row", "within two standard deviations in all measures, of 12 cells", "in none of these ways"]
    return Table("Rows of the paper, and what they are within reach of", header, rows, [], data)


def _published(dataset: str, rate: int, name: str) -> tuple[Row, tuple[str, ...]]:
    """Returns a row of Table 2, or of Table 3 with the rare class's F1 turned into macro-F1, and its measures."""
    if name not in IN_TABLE3:
        return TABLE2[dataset, rate, name], JUDGED
    row = dict(TABLE3[dataset, rate, name])
    row["macro_f1"] = f1_from_accuracy_and_recall(row["accuracy"], row["recall"], N_RARE[dataset])[1]
    return row, COLUMNS


def _within(cells: Iterable[Cell], row: Row, measures: Iterable[str]) -> bool:
    """Returns whether all measures are within two standard deviations over at least two seeds."""
    found = list(cells)
    if len(found) < 2:
        return False
    summaries = {measure: summarise(found, measure) for measure in measures}
    return all(abs(s.mean - row[measure]) <= 2 * s.std for measure, s in summaries.items())
