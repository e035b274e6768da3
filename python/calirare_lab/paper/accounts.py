"""Which rows of the paper ours, or a control that trains or reads otherwise, is within two standard deviations of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from calirare_lab.paper import other_columns
from calirare_lab.paper.cells import Cell
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import DATASETS
from calirare_lab.paper.published import LABEL_RATES, N_RARE, TABLE2, TABLE3, Row, f1_from_accuracy_and_recall
from calirare_lab.paper.render import Table
from calirare_lab.paper.statistics import JUDGED, Key, Summary, summarise
from calirare_lab.paper.table3 import COLUMNS

# The paper's row: our row, and the controls that explain it where ours is off.
EXPLAINED = {
    "uncalibrated": ("uncalibrated", "dropout", "uncalibrated_code"),
    "temperature": ("temperature", "temperature_code"),
    "label_smoothing": ("label_smoothing", "label_smoothing_weighted", "label_smoothing_code"),
    "cagcn": ("cagcn", "cagcn_base"),
    "gat": ("gat", "gat_dropout", "gat_narrow"),
    "gin": ("gin", "gin_batch_norm", "gin_code"),
}
IN_TABLE3 = ("gat", "gin")
KEEPS_DECISIONS = ("temperature", "cagcn")  # neither can move one: their recall and macro-F1 are the network's
DECISIONS = ("recall", "macro_f1")
COLUMNS_OF = {other_columns.INSTEAD_OF: other_columns.NAME}
TIMES = 2  # standard deviations over our seeds
Groups = dict[Key, dict[int, Cell]]
Measured = dict[Key, dict[str, Summary]]  # measures over seeds


@dataclass(frozen=True)
class Account:
    """Which of a row's cells are explained how: places by the method that is within reach.

    Attributes:
        row: the paper's name of the row.
        fits: by ours or a control at the same place.
        equal_width: decisions by ours, errors by bins of equal width.
        columns: by ours or a control with other columns of the same words.
        networks: the paper's row is that of other networks than its uncalibrated row, by its own decisions.
        nothing: not explained.
        by_chance: of how many cells one of our own seeds, taken for the paper's single run, would be out of reach of
            our other seeds.
    """

    row: str
    fits: dict[str, list[str]]
    equal_width: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    nothing: list[str] = field(default_factory=list)
    by_chance: float = 0.0

    def cells(self) -> list[str]:
        """Returns the row of the table."""
        counts = [f"{METHODS[name].title}: {len(places)}" for name, places in self.fits.items()]
        counts += [f"bins of equal width: {len(self.equal_width)}"] * bool(self.equal_width)
        counts += [f"other columns of FaceBook's words: {len(self.columns)}"] * bool(self.columns)
        title = METHODS[next(iter(self.fits))].title
        left = [", ".join(places) or "none" for places in (self.networks, self.nothing)]
        return [title, "; ".join(counts), *left, f"{self.by_chance:.1f}"]


def accounts_table(groups: Groups, equal_width: dict[tuple[str, int, str], bool]) -> Table:
    """Returns, for each re-implemented row of the paper, in which of the cells ours or a control is within reach.

    Args:
        groups: the cells by data set, label rate and method; of FaceBook with other columns too where they were run.
        equal_width: whether the ACEs of a post-hoc row are within reach by bins of equal width (`other_bins`).
    """
    found = measured(groups)
    accounts = [account(row, found, equal_width, missed_by_chance(row, groups)) for row in EXPLAINED]
    header = [
        "the paper's row",
        "within two standard deviations in all measures, of 12 cells",
        "else a row of other networks than the paper's uncalibrated row",
        "in none of these ways",
        "cells that one of our own seeds would miss",
    ]
    data = [asdict(account) for account in accounts]
    return Table(
        "Rows of the paper, and what they are within reach of", header, [a.cells() for a in accounts], [], data
    )


def measured(groups: Groups) -> Measured:
    """Returns what is judged of the cells, over their seeds."""
    names = dict.fromkeys((*JUDGED, *COLUMNS))
    return {key: {name: summarise(seeds.values(), name) for name in names} for key, seeds in groups.items()}


def account(
    published: str, found: Measured, equal_width: dict[tuple[str, int, str], bool], by_chance: float
) -> Account:
    """Returns how the cells of one row of the paper are explained.

    Args:
        published: the paper's name of the row, of `EXPLAINED`.
        found: what was measured by data set, label rate and method.
        equal_width: see `accounts_table`.
        by_chance: see `missed_by_chance`.

    Returns:
        The account.
    """
    names = EXPLAINED[published]
    account = Account(published, {name: [] for name in names}, by_chance=by_chance)
    for dataset, rate in ((d, r) for d in DATASETS for r in LABEL_RATES):
        place = f"{dataset} {rate}"
        row, measures = _published(dataset, rate, published)

        def reach(data: str, rate: int = rate, row: Row = row, measures: Iterable[str] = measures) -> list[str]:
            return [n for n in names if _within(found.get((data, rate, n)), row, measures)]

        def by_bins(data: str, rate: int = rate, row: Row = row) -> bool:
            return any(equal_width.get((data, rate, name), False) for name in reach(data, rate, row, DECISIONS))

        own = found.get((dataset, rate, published))
        columns = COLUMNS_OF.get(dataset)
        if near := reach(dataset):
            account.fits[near[0]].append(place)
        elif by_bins(dataset):
            account.equal_width.append(place)
        elif columns is not None and (reach(columns) or by_bins(columns)):
            account.columns.append(place)
        elif published in KEEPS_DECISIONS and _of_other_networks(own, row, TABLE2[dataset, rate, "uncalibrated"]):
            account.networks.append(place)
        else:
            account.nothing.append(place)
    return account


def missed_by_chance(published: str, groups: Groups) -> float:
    """Returns the number of cells of a row that a perfect reproduction, run once, would be expected to miss.

    The paper gives single runs. Each of our seeds is taken for one in turn and judged by the others as the paper is.
    """
    measures = COLUMNS if published in IN_TABLE3 else JUDGED
    expected = 0.0
    for dataset, rate in ((d, r) for d in DATASETS for r in LABEL_RATES):
        seeds = groups.get((dataset, rate, published), {})
        missed = 0
        for left_out, cell in seeds.items():
            others = [other for seed, other in seeds.items() if seed != left_out]
            found = {m: summarise(others, m) for m in measures} if len(others) > 1 else None
            missed += not _within(found, cell["measures"], measures)
        expected += missed / max(len(seeds), 1)
    return expected


def _published(dataset: str, rate: int, name: str) -> tuple[Row, tuple[str, ...]]:
    """Returns a row of Table 2, or of Table 3 with the rare class's F1 turned into macro-F1, and its measures."""
    if name not in IN_TABLE3:
        return TABLE2[dataset, rate, name], JUDGED
    row = dict(TABLE3[dataset, rate, name])
    row["macro_f1"] = f1_from_accuracy_and_recall(row["accuracy"], row["recall"], N_RARE[dataset])[1]
    return row, COLUMNS


def _within(found: dict[str, Summary] | None, row: Row, measures: Iterable[str]) -> bool:
    """Returns whether all measures are within two standard deviations over at least two seeds."""
    if found is None:
        return False
    return all(found[m].n > 1 and not _away(found[m], found[m].mean - row[m]) for m in measures)


def _of_other_networks(own: dict[str, Summary] | None, row: Row, uncalibrated: Row) -> bool:
    """Returns whether a map that moves no decision has others than the paper's uncalibrated row, and than ours."""
    if own is None or _within(own, row, DECISIONS):
        return False
    return any(_away(own[m], row[m] - uncalibrated[m]) for m in DECISIONS)


def _away(found: Summary, difference: float) -> bool:
    return found.n > 1 and abs(difference) > TIMES * found.std
