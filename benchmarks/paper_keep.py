"""Puts what a run of `calirare paper` holds into the results file beside what the file already has.

A group of cells (data set, label rate, method) of the run replaces the file's where it has at least as many seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from calirare_lab.paper import other_columns, table2
from calirare_lab.paper.accounts import EXPLAINED, account, measured
from calirare_lab.paper.cells import read_cells
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import DATASETS, N_SEEDS, places
from calirare_lab.paper.published import LABEL_RATES
from calirare_lab.paper.statistics import JUDGED, Summary, by_key

# Tables of one row per group, and how many columns name the group; the other tables are made of means or of accounts.
BY_GROUP = {"table2": 3, "off": 3, "coverage": 3, "other_bins": 3, "table3": 3, "columns": 2, "columns3": 3, "bag": 3}
OF_MEANS = ("equal_labels", "population")  # one row per method
OF_OURS = ("verdict", "rivals", "decays", "hops")  # rest on our default's seeds
PSEUDO = -1  # the seed under which the file's means stand where the run has no seeds


def groups_to_take(run: Path, kept: dict[str, Any]) -> Any:
    """Returns the groups of the run that replace the file's or are new, of the other columns all of them."""
    where = places((*DATASETS, other_columns.NAME), LABEL_RATES, N_SEEDS)
    seeds = {(e["dataset"], e["label_rate"], e["method"]): len(e["seeds"]) for e in kept["cells"]}
    return {
        key: found for key, found in by_key(read_cells(run, where, METHODS)).items() if len(found) >= seeds.get(key, 1)
    }


def with_means(groups: Any, kept: dict[str, Any]) -> Any:
    """Returns the groups, and the file's means as groups of one pseudo-seed where there are none."""
    means = {
        (e["dataset"], e["label_rate"], e["method"]): {
            PSEUDO: {"measures": {name: value[0] for name, value in e.items() if is_summary(value)}}
        }
        for e in kept["cells"]
    }
    return means | groups


def merge(found: dict[str, Any], groups: Any, file: dict[str, Any]) -> None:
    """Completes what was collected from the run with what the file has.

    Args:
        found: results of the run alone, its tables of means and verdicts made with `with_means`; changed in place.
        groups: see `groups_to_take`.
        file: the results file.
    """
    kept, own = file["results"], {key: seeds for key, seeds in groups.items() if key[0] in DATASETS}
    entries = {(e["dataset"], e["label_rate"], e["method"]): e for e in kept["cells"]}
    new = {(e["dataset"], e["label_rate"], e["method"]): e for e in table2.table_data(own)}
    moved = {key[2] for key, e in new.items() if key not in entries or any(e[m] != entries[key][m] for m in JUDGED)}
    older = {key[2] for key in entries if key not in new}
    found["cells"] = list((entries | new).values())
    names = {method.title: name for name, method in METHODS.items()}
    bins = found["tables"]["other_bins"]
    bins["rows"] = [row for row in bins["rows"] if (row[0], int(row[1]), names[row[2]]) in groups]
    for name, width in BY_GROUP.items():
        found["tables"][name]["rows"] = _rows(kept["tables"][name]["rows"], found["tables"][name]["rows"], width)
    run_again = {METHODS[key[2]].title for key in own}
    for name in OF_MEANS:  # a mean of rounded means may differ in its last digit
        as_it_was = {row[0]: row for row in kept["tables"][name]["rows"] if row[0] not in run_again}
        found["tables"][name]["rows"] = [as_it_was.get(row[0], row) for row in found["tables"][name]["rows"]]
    if any(key[2] == "ours" for key in own):
        _check_rivals(found["tables"]["rivals"]["rows"], own)
    else:
        found["tables"] |= {name: kept["tables"][name] for name in OF_OURS if name in kept["tables"]}
    found["tables"]["accounts"]["rows"] = _accounts(kept, entries | new, groups, moved, bins["rows"])
    found["rows"] = _stamps(file, older)
    for name in ("search", "figure3"):
        found.setdefault(name, kept[name])


def _accounts(
    kept: dict[str, Any], entries: Any, groups: Any, moved: set[str], bins: list[list[str]]
) -> list[list[str]]:
    """Returns the rows of the accounts; those of which a method has moved are made anew, `by_chance` as it was."""
    rows = [list(row) for row in kept["tables"]["accounts"]["rows"]]
    found = {
        key: {m: Summary(*entry[m], len(entry["seeds"])) for m in (*JUDGED, "accuracy")}
        for key, entry in entries.items()
    } | measured({key: seeds for key, seeds in groups.items() if key[0] == other_columns.NAME})
    titles = {method.title: name for name, method in METHODS.items()}
    equal_width = {(row[0], int(row[1]), titles[row[2]]): row[-1] == "yes" for row in bins}
    for k, (row, names) in enumerate(EXPLAINED.items()):
        if moved.intersection(names):
            rows[k] = account(row, found, equal_width, float(rows[k][4])).cells()
    return rows


def _check_rivals(rows: list[list[str]], own: Any) -> None:
    """Stops where a paired test would need seeds that neither the run nor the file has."""
    names = {method.title: name for name, method in METHODS.items()}
    for dataset, rate, _, _, title, *_ in rows:
        if (dataset, int(rate), names[title]) not in own:
            sys.exit(f"the strongest rival at {dataset} {rate} is {names[title]}: run it there as well")


def _rows(kept: list[list[str]], new: list[list[str]], width: int) -> list[list[str]]:
    """Returns the kept rows with new ones in place of those of the same name, or behind those they belong to."""
    rows, left = [], {tuple(row[:width]): row for row in new}
    rows = [left.pop(tuple(row[:width]), row) for row in kept]
    for row in left.values():
        same = [k for k, old in enumerate(rows) if old[: width - 1] == row[: width - 1]]
        rows.insert(1 + max(same, default=len(rows) - 1), row)
    return rows


def _stamps(file: dict[str, Any], methods: set[str]) -> dict[str, Any]:
    """Returns the commit and command of each method of which the file's cells stay."""
    stamps = {name: {key: file[key] for key in ("commit", "command")} for name in sorted(methods)}
    for row, stamp in file["results"].get("rows", {}).items():
        stamps |= {name: stamp for name in EXPLAINED.get(row, (row,)) if name in methods}
    return stamps


def is_summary(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, float | None) for part in value)
