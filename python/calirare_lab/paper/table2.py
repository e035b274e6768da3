"""Table 2: calibration of every method, beside the paper's numbers, with equal labels, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calirare_lab.paper.cells import Cell
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import MEASURES
from calirare_lab.paper.published import TABLE2
from calirare_lab.paper.render import Table, write_tables
from calirare_lab.paper.statistics import (
    JUDGED,
    Key,
    by_key,
    compare_with_paper,
    mean_and_std,
    mean_over_places,
    paired_p,
    same_label_rivals,
    strongest,
    summarise,
)

OURS = (
    "ours",
    "ours_one",
    "ours_once",
    "ours_population",
    "jackknife_temperature",
    "jackknife_platt",
    "jackknife_balanced",
)
POPULATION = ("ours_population", "jackknife_platt", "jackknife_temperature", "crossfit_platt", "crossfit_temperature")
TABLE2_METHODS = tuple(name for name in METHODS if not name.startswith(("gat", "gin")) or name == "gats")

NOTES = [
    "Mean ± standard deviation over seeds (one seed: no ±). Recall and macro-F1 in per cent. ACE: true class, "
    "confidence of the predicted class, 20 bins of equal numbers. Floor: what a perfectly calibrated model would read.",
    "[lower, upper]: 95 % bootstrap interval over the test nodes at seed 0. Resampling adds noise: the intervals of "
    "binned errors sit high.",
]


def table2(cells: Iterable[Cell], not_run: dict[str, str], out: Path) -> list[Path]:
    """Writes Table 2 in all its parts.

    Args:
        cells: what was run.
        not_run: reason for each data set that could not be run.
        out: folder.

    Returns:
        The files.
    """
    groups = by_key(cells)
    tables = [
        paper_table(groups, not_run),
        same_labels_table(groups),
        verdict_table(groups),
        bars_table(groups),
        population_table(groups),
        reproduced_table(groups),
        coverage_table(groups),
        full_table(groups),
    ]
    return write_tables(tables, out, "table2")


def _keys(groups: dict[Key, dict[int, Cell]]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((dataset, rate) for dataset, rate, _ in groups))


def paper_table(groups: dict[Key, dict[int, Cell]], not_run: dict[str, str]) -> Table:
    """Returns our rows of Table 2 beside the paper's."""
    header = ["data set", "rate", "method", "trains on", "calibrates on", "seeds"]
    for measure in JUDGED:
        header += [measure, "paper"]
    rows = []
    for (dataset, rate, name), seeds in groups.items():
        method = METHODS[name]
        published = TABLE2.get((dataset, rate, method.published or ("ours" if name == "ours" else "")), {})
        row = [dataset, str(rate), method.title, method.trains_on, method.calibrates_on, str(len(seeds))]
        for measure in JUDGED:
            row += [_with_extras(list(seeds.values()), measure), _number(published.get(measure), measure)]
        rows.append(row)
    rows += [[dataset, "", "not run", "", "", "", *[""] * (2 * len(JUDGED))] for dataset in not_run]
    notes = NOTES + [f"{dataset}: not run. {reason}" for dataset, reason in not_run.items()]
    return Table("Table 2: ours beside the paper's", header, rows, notes, table_data(groups))


def means_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns each method's means and standard deviations where the paper has no row to stand beside."""
    measures = (*JUDGED, "ece", "nll")
    rows = [
        [dataset, str(rate), METHODS[name].title, METHODS[name].trains_on, str(len(seeds))]
        + [_summary(list(seeds.values()), measure) for measure in measures]
        for (dataset, rate, name), seeds in groups.items()
    ]
    return Table("Means over seeds", ["data set", "rate", "method", "trains on", "seeds", *measures], rows, [])


def same_labels_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns the methods that used training and validation labels, means over all data sets and label rates run."""
    names = [n for n in METHODS if METHODS[n].all_labels and any(key[2] == n for key in groups)]
    at = [key for key in groups if key[2] == "ours"]
    measures = (*JUDGED, "ece", "nll", "eice")
    values = {n: [mean_over_places(groups, n, m, at) for m in measures] for n in names}
    ordered = sorted((n for n in names if values[n][3] == values[n][3]), key=lambda n: values[n][3])
    rows = [
        [METHODS[n].title, METHODS[n].trains_on, METHODS[n].calibrates_on]
        + [_number(v, m) for v, m in zip(values[n], measures, strict=True)]
        for n in ordered
    ]
    title = f"Equal labels (train + val): means over {len(at)} data sets x label rates, best Macro-ACE first"
    header = ["method", "trains on", "calibrates on", *measures]
    return Table(title, header, rows, [], {n: dict(zip(measures, values[n], strict=True)) for n in ordered})


def verdict_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns our default against the paper's "Ours", cell by cell, lost cells named."""
    comparisons = compare_with_paper(groups)
    rows, data = [], []
    for c in comparisons:
        row = [c.dataset, str(c.label_rate), str(c.n_seeds)]
        for measure in JUDGED:
            row += [f"{_number(c.ours[measure], measure)} / {_number(c.paper[measure], measure)}"]
        cells = groups[c.dataset, c.label_rate, "ours"].values()
        by = [f"{m} by {abs(c.ours[m] - c.paper[m]):.4f} (std {summarise(cells, m).std:.4f})" for m in c.lost]
        rows.append([*row, "lost: " + ", ".join(by) if by else "won"])
        data.append(
            {"dataset": c.dataset, "label_rate": c.label_rate, "ours": c.ours, "paper": c.paper, "lost": c.lost}
        )
    won = sum(not c.lost for c in comparisons)
    header = ["data set", "rate", "seeds", *[f"{m}: ours / paper" for m in JUDGED], "verdict"]
    title = f'Our default against the paper\'s "Ours": {won} of {len(comparisons)} cells won'
    notes = ["Means over seeds against the paper's single run, without allowance for noise; std: over our seeds."]
    return Table(title, header, rows, notes, data)


def bars_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns our default against the strongest method with the same labels, with paired tests, per cell."""
    rows, data = [], []
    rivals = same_label_rivals(OURS)
    for dataset, rate in _keys(groups):
        if (dataset, rate, "ours") not in groups:
            continue
        ours = groups[dataset, rate, "ours"]
        for measure in ("ace_minority", "macro_ace"):
            rival = strongest(groups, dataset, rate, rivals, measure)
            if not rival:
                continue
            theirs = groups[dataset, rate, rival]
            p = paired_p(ours, theirs, measure)
            a, b = summarise(ours.values(), measure).mean, summarise(theirs.values(), measure).mean
            rows.append([dataset, str(rate), measure, f"{a:.4f}", METHODS[rival].title, f"{b:.4f}", f"{p:.3f}"])
            data.append([dataset, rate, measure, a, rival, b, p])
    header = ["data set", "rate", "measure", "ours", "strongest with the same labels", "its mean", "paired t-test p"]
    note = "The strongest rival is chosen per cell on the test nodes, which favours it."
    return Table("Our default against the strongest rival", header, rows, [note], data)


def population_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns the population target, judged by ECE and NLL, against temperature scaling with the same labels."""
    at = [key for key in groups if key[2] == "ours_population"]
    names = [*POPULATION, "temperature", "platt", "beta", "uncalibrated_all", "ours_uncalibrated"]
    measures = ("ece", "nll", "brier", "recall", "macro_f1")
    data, rows = {}, []
    for name in names:
        values = [mean_over_places(groups, name, measure, at) for measure in measures]
        if values[0] == values[0]:
            data[name] = dict(zip(measures, values, strict=True))
            shown = [_number(v, m) for v, m in zip(values, measures, strict=True)]
            rows.append([METHODS[name].title, METHODS[name].trains_on, METHODS[name].calibrates_on, *shown])
    header = ["method", "trains on", "calibrates on", *measures]
    return Table(f"Population target: means over {len(at)} data sets x label rates", header, rows, [], data)


def reproduced_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns, for each row of the paper we have re-implemented, the measures more than two standard deviations off."""
    rows, data = [], []
    for (dataset, rate, name), seeds in groups.items():
        published = TABLE2.get((dataset, rate, METHODS[name].published), {})
        if not published or len(seeds) < 2:
            continue
        off = {}
        for measure in JUDGED:
            s = summarise(seeds.values(), measure)
            distance = (s.mean - published[measure]) / s.std if s.std > 0 else float("inf")
            if abs(distance) > 2:
                off[measure] = s.mean - published[measure]
        shown = ", ".join(f"{measure} {difference:+.3f}" for measure, difference in off.items())
        rows.append([dataset, str(rate), METHODS[name].title, str(len(seeds)), shown or "none"])
        data.append({"dataset": dataset, "label_rate": rate, "method": name, "off": off})
    title = "Re-implemented rows: measures more than two standard deviations from the paper's (ours minus paper's)"
    return Table(title, ["data set", "rate", "method", "seeds", "off"], rows, [], data)


def coverage_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns how often the jackknife intervals of the uncalibrated networks hold the label, overall and per class."""
    rows, data = [], []
    for (dataset, rate, name), seeds in groups.items():
        found = [cell["intervals_of_network"] for cell in seeds.values() if "intervals_of_network" in cell]
        if name not in ("uncalibrated", "uncalibrated_all") or not found:
            continue
        shares = {kind: mean_and_std([f["coverage"][kind] for f in found]) for kind in ("all", "rare", "majority")}
        width = mean_and_std([f["width"] for f in found])
        shown = [s.text(100, 1) for s in shares.values()]
        rows.append([dataset, str(rate), METHODS[name].trains_on, str(width.n), *shown, width.text(1, 3)])
        data.append({"dataset": dataset, "label_rate": rate, "trains_on": METHODS[name].trains_on, "width": width.mean})
        data[-1] |= {kind: s.mean for kind, s in shares.items()}
    header = ["data set", "rate", "trains on", "seeds", "all", "rare", "majority", "mean width"]
    note = "Intervals [C-, C+] of P(rare) (Eq. 8) at coverage 90 %; a label counts as held when 0 or 1 lies inside."
    return Table("Empirical coverage of the jackknife intervals, per cent of test nodes", header, rows, [note], data)


def full_table(groups: dict[Key, dict[int, Cell]]) -> Table:
    """Returns every measure of every method."""
    rows = []
    for (dataset, rate, name), seeds in groups.items():
        cells = list(seeds.values())
        rows.append([dataset, str(rate), METHODS[name].title, *[_summary(cells, m) for m in MEASURES]])
    return Table("Every measure", ["data set", "rate", "method", *MEASURES], rows, NOTES[:1])


def table_data(groups: dict[Key, dict[int, Cell]]) -> list[dict[str, object]]:
    """Returns mean and standard deviation of every measure of every method, with noise floors and seconds."""
    out: list[dict[str, object]] = []
    for (dataset, rate, name), seeds in groups.items():
        cells = list(seeds.values())
        entry: dict[str, object] = {"dataset": dataset, "label_rate": rate, "method": name, "seeds": sorted(seeds)}
        for measure in (*MEASURES, "ace_minority_noise_floor", "macro_ace_noise_floor", "ece_noise_floor"):
            s = summarise(cells, measure)
            entry[measure] = [round(s.mean, 5), round(s.std, 5)]
        entry["seconds"] = round(sum(cell["seconds"] for cell in cells) / len(cells), 3)
        out.append(entry)
    return out


def _with_extras(cells: list[Cell], measure: str) -> str:
    text = _summary(cells, measure)
    if f"{measure}_noise_floor" in cells[0]["measures"]:
        text += f" floor {summarise(cells, f'{measure}_noise_floor').mean:.3f}"
    intervals = [cell["intervals"][measure] for cell in cells if measure in cell.get("intervals", {})]
    if intervals:
        text += f" [{intervals[0][0]:.3f}, {intervals[0][1]:.3f}]"
    return text


def _summary(cells: list[Cell], measure: str) -> str:
    s = summarise(cells, measure)
    return s.text(100, 2) if measure in ("recall", "macro_f1", "accuracy") else s.text(1, 4)


def _number(value: float | None, measure: str) -> str:
    if value is None:
        return ""
    return f"{100 * value:.2f}" if measure in ("recall", "macro_f1", "accuracy") else f"{value:.4f}"
