"""Writes the tables of docs/research/reproduction.md and docs/research/reproduction/ from a run of `calirare paper`.

python benchmarks/paper_page.py --run paper     # reads the run's cells into benchmarks/results/paper.json, then writes
python benchmarks/paper_page.py --run paper --keep       # what the run does not hold stays as the file has it
python benchmarks/paper_page.py --time          # times Table 2 at two seeds of Cora and CiteSeer into paper_time.json
python benchmarks/paper_page.py                 # rewrites the pages between their markers
python benchmarks/paper_page.py --check         # exits 1 when a page is not what the file says
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import paper_keep
import record
from readme_tables import between, load

from calirare_lab.paper import other_columns, table2
from calirare_lab.paper.accounts import accounts_table
from calirare_lab.paper.cells import read_cells, run_cells
from calirare_lab.paper.choosing import HOPS, WEIGHT_DECAYS
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.other_bins import other_bins_table
from calirare_lab.paper.protocol import DATASETS, HIGHER_IS_BETTER, N_SEEDS, places
from calirare_lab.paper.published import LABEL_RATES, TABLE2
from calirare_lab.paper.render import Table
from calirare_lab.paper.statistics import JUDGED, by_key, compare_with_paper, summarise
from calirare_lab.paper.table3 import TABLE3_METHODS, table3_table

PAGE = record.ROOT / "docs" / "research" / "reproduction.md"
TABLES = PAGE.with_suffix("")  # the folder of the pages beside it
HEADLINE = (  # rows of the table of equal labels that the page itself shows
    "ours",
    "ours_one",
    "ours_once",
    "ours_unsharpened",
    "ours_uncalibrated",
    "crossfit_ours",
    "crossfit_balanced",
    "crossfit_temperature",
    "jackknife_balanced",
    "jackknife_temperature",
    "uncalibrated_all",
    "official",
    "calirare_all",
    "temperature",
    "platt_balanced",
    "cagcn",
    "gats",
)
OURS = ("ours", "ours_one", "ours_unsharpened")
VARIANTS = (*OURS[1:], "ours_once")  # the default before is a rival as well
SHOWN = ("official", "ours")  # beside the rows the paper has
NOT_EXPLAINED = ("matrix", "mixup", "official")  # published rows that are in no account
ROWS_BAR = "re-implemented rows within two standard deviations of the paper's, or explained"


def collect(run: Path, file: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the tables, the numbers behind them and the verdicts of a run folder.

    Args:
        run: the folder.
        file: the results file of which stays what the run does not hold; None: nothing stays.
    """
    where = places((*DATASETS, other_columns.NAME), LABEL_RATES, N_SEEDS)
    everything = by_key(read_cells(run, where, METHODS))
    if file is not None:
        everything = paper_keep.groups_to_take(run, file["results"])
    groups = {key: seeds for key, seeds in everything.items() if key[0] in DATASETS}
    columns = {key: seeds for key, seeds in everything.items() if key[0] == other_columns.NAME}
    published = {key: seeds for key, seeds in groups.items() if METHODS[key[2]].published or key[2] in SHOWN}
    networks = {key: seeds for key, seeds in groups.items() if key[2] in TABLE3_METHODS}
    judged = groups if file is None else paper_keep.with_means(groups, file["results"])
    tables = {
        "verdict": table2.verdict_table(judged),
        "equal_labels": table2.same_labels_table(judged),
        "rivals": table2.bars_table(judged),
        "population": table2.population_table(judged),
        "coverage": table2.coverage_table(groups),
        "table2": table2.paper_table({k: v for k, v in published.items() if k[2] in table2.TABLE2_METHODS}, {}),
        "off": table2.reproduced_table({k: v for k, v in groups.items() if METHODS[k[2]].published}),
        "other_bins": (bins := other_bins_table(run, where)),
        "accounts": accounts_table(
            everything, {(r["dataset"], r["label_rate"], r["method"]): r["within"] for r in bins.data}
        ),
        "table3": table3_table(networks, {}),
        "decays": chosen_table(groups, "weight_decay", WEIGHT_DECAYS),
        "hops": chosen_table(groups, "hops", HOPS),
        "bag": table2.means_table(by_key(read_cells(run, places(("facebook_bag",), LABEL_RATES, N_SEEDS), METHODS))),
        "columns": columns_table(columns),
        "columns3": table3_table(groups_like({k: v for k, v in columns.items() if k[2] in TABLE3_METHODS}), {}),
    }
    found: dict[str, Any] = {
        "seeds": {f"{d} {rate}": len(seeds) for (d, rate, name), seeds in groups.items() if name == "ours"},
        "tables": {name: as_dict(t) for name, t in tables.items()},
        "bars": bars(tables, judged),
        "cells": table2.table_data(groups),
    }
    for name in ("search", "figure3"):
        path = run / f"{name}.json"
        if path.is_file():
            found[name] = json.loads(path.read_text(encoding="utf-8"))
    if file is not None:
        paper_keep.merge(found, everything, file)
    off, accounts = (found["tables"][name] for name in ("off", "accounts"))
    accounts["notes"] = [left_out_note(off["rows"])]
    found["bars"].insert(-1, rows_bar(accounts["rows"]))
    return found


def columns_table(groups: Any) -> Table:
    """Returns the rows with other columns of FaceBook's words beside the paper's FaceBook rows."""
    rows = []
    for (_, rate, name), seeds in groups.items():
        published = TABLE2.get((other_columns.INSTEAD_OF, rate, METHODS[name].published or name))
        if published is None:
            continue
        row = [str(rate), METHODS[name].title, str(len(seeds))]
        for measure in JUDGED:
            times, digits = (100, 2) if measure in HIGHER_IS_BETTER else (1, 4)
            row.append(summarise(list(seeds.values()), measure).text(times, digits))
            row.append(f"{times * published[measure]:.{digits}f}")
        rows.append(row)
    header = ["rate", "method", "seeds"]
    for measure in JUDGED:
        header += [measure, "paper"]
    return Table("FaceBook with other columns", header, rows, [], [])


def chosen_table(groups: Any, what: str, candidates: tuple[float, ...]) -> Table:
    """Returns how often the default took each candidate for one of its numbers, a row per data set."""
    rows = []
    for dataset in DATASETS:
        cells = [cell for key, seeds in groups.items() if key[::2] == (dataset, "ours") for cell in seeds.values()]
        taken = [cell["numbers"][what] for cell in cells]
        rows.append([dataset, *[str(taken.count(candidate)) for candidate in candidates]])
    return Table(what, ["data set", *[f"{candidate:g}" for candidate in candidates]], rows, [], [])


def bars(tables: dict[str, Table], groups: Any) -> list[dict[str, Any]]:
    """Returns each bar on our own methods with what was measured and whether it is met."""
    verdicts, equal, population = tables["verdict"].data, tables["equal_labels"].data, tables["population"].data
    won = sum(not v["lost"] for v in verdicts)
    lost = "; ".join(f"{v['dataset']} {v['label_rate']} ({', '.join(v['lost'])})" for v in verdicts if v["lost"])
    by_variant = {name: [not c.lost for c in compare_with_paper(groups, name)] for name in VARIANTS}
    variants = ", ".join(f"`{name}` {sum(found)}" for name, found in by_variant.items())
    ours, bare = equal["ours"], equal["ours_uncalibrated"]
    rivals = {name: m for name, m in equal.items() if name not in OURS}
    better = [name for name, m in rivals.items() if m["macro_ace"] <= ours["macro_ace"]]
    told = ", ".join(f"{METHODS[n].title} ({equal[n]['macro_ace']:.4f})" for n in better) or "none"
    target, rival = population["ours_population"], population["temperature"]
    crossed = population["crossfit_temperature"]
    recall, f1 = (ours[m] - bare[m] for m in ("recall", "macro_f1"))
    plain_recall, plain_f1 = (ours[m] - equal["uncalibrated_all"][m] for m in ("recall", "macro_f1"))
    took = load("paper_time")["results"]
    first, other = took["wall_s"].values()
    return [
        {
            "bar": 'beat the paper\'s "Ours" on all four measures in at least 10 of 12 cells',
            "measured": f"{won} of {len(verdicts)} won; lost: {lost or 'none'}; won by other rows of ours: {variants}",
            "met": won >= 10,
        },
        {
            "bar": "mean Macro-ACE below every other method with the same labels",
            "measured": f"ours {ours['macro_ace']:.4f}; not beaten: {told}",
            "met": not better,
        },
        {
            "bar": "recall and macro-F1 at most .01 below the same networks without a map",
            "measured": f"recall {recall:+.4f}, macro-F1 {f1:+.4f}; against the uncalibrated GCN-CS on the same labels "
            f"{plain_recall:+.4f}, {plain_f1:+.4f}",
            "met": recall >= -0.01 and f1 >= -0.01,
        },
        {
            "bar": "population target: ECE and NLL below temperature scaling's with the same labels",
            "measured": f"ours ECE {target['ece']:.4f}, NLL {target['nll']:.4f}; temperature scaling (train / val) "
            f"{rival['ece']:.4f}, {rival['nll']:.4f}; cross-fitted {crossed['ece']:.4f}, {crossed['nll']:.4f}",
            "met": all(target[m] < rival[m] and target[m] < crossed[m] for m in ("ece", "nll")),
        },
        {
            "bar": "Table 2 for Cora and CiteSeer, 3 label rates, 10 seeds, all methods: at most 45 min on 2 cores",
            "measured": f"{first:.0f} s for seed 0 with its bootstrap, {other:.0f} s for another, "
            f"{took['whole_s'] / 60:.0f} min for ten",
            "met": took["whole_s"] <= 45 * 60,
        },
    ]


def rows_bar(accounts: list[list[str]]) -> dict[str, Any]:
    """Returns the bar of the re-implemented rows, from the rows of the accounts table."""
    other, left = ([[] if row[k] == "none" else row[k].split(", ") for row in accounts] for k in (2, 3))
    n_other, n_left = (sum(map(len, listed)) for listed in (other, left))
    chance = sum(float(row[4]) for row in accounts)
    unexplained = "; ".join(f"{row[0]} on {', '.join(at)}" for row, at in zip(accounts, left, strict=True) if at)
    n_cells = len(accounts) * len(DATASETS) * len(LABEL_RATES)
    return {
        "bar": ROWS_BAR,
        "measured": f"{n_cells - n_left - n_other} of {n_cells} cells of six rows within reach of ours or a control, "
        f"{n_other} more of other networks by their own decisions; {n_left} not explained ({unexplained}), single "
        f"runs like the paper's would miss {chance:.0f} of our own by chance",
        "met": n_left <= chance,
    }


def groups_like(groups: Any) -> Any:
    """Returns the cells with other columns of FaceBook's words under the name of the data set they stand for."""
    return {
        (other_columns.INSTEAD_OF, *key[1:]): seeds for key, seeds in groups.items() if key[0] == other_columns.NAME
    }


def as_dict(found: Table) -> dict[str, Any]:
    return {"header": found.header, "rows": found.rows, "notes": found.notes}


def timed() -> dict[str, Any]:
    """Returns the seconds of Table 2 at every label rate of Cora and CiteSeer, in two processes.

    Of seed 0, which alone is bootstrapped, and of seed 1, which stands for the others.
    """
    both = places(("cora", "citeseer"), LABEL_RATES, 2)
    walls = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in (0, 1):
            where = [place for place in both if place.seed == seed]
            begin = time.perf_counter()
            run_cells(Path(folder), where, table2.TABLE2_METHODS, 2, lambda *_: None)
            walls[seed] = time.perf_counter() - begin
        cells = read_cells(Path(folder), both, table2.TABLE2_METHODS)
    by_method: dict[str, float] = {}
    for cell in cells:
        by_method[cell["method"]] = by_method.get(cell["method"], 0.0) + cell["seconds"] / len(both)
    return {
        "places": len(both) // 2,
        "processes": 2,
        "wall_s": {"seed 0, bootstrapped": walls[0], "any other seed": walls[1]},
        "whole_s": walls[0] + (N_SEEDS - 1) * walls[1],
        "mean_seconds_by_method": by_method,
    }


def table(found: dict[str, Any]) -> list[str]:
    rows = [found["header"], ["---"] * len(found["header"]), *found["rows"]]
    lines = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return [*lines, *["", *[f"- {note}" for note in found["notes"]]] * bool(found["notes"])]


def verdicts(found: dict[str, Any]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "see below"}
    lines = ["| bar | measured | met |", "| --- | --- | --- |"]
    lines += [f"| {b['bar']} | {b['measured']} | {words[b['met']]} |" for b in found["bars"]]
    return [seeds_told(found["cells"]), "", *lines]


def seeds_told(cells: list[dict[str, Any]]) -> str:
    """Returns in which cells of the four data sets there are fewer seeds than wanted."""
    few: dict[str, list[str]] = {}
    for cell in cells:
        if len(cell["seeds"]) < N_SEEDS:
            told = f"{cell['dataset']} {cell['label_rate']}: {len(cell['seeds'])}"
            few.setdefault(METHODS[cell["method"]].title, []).append(told)
    if not few:
        return f"{N_SEEDS} seeds in every cell."
    rest = "; ".join(f"{title} ({', '.join(told)})" for title, told in few.items())
    return f"{N_SEEDS} seeds in every cell of the four data sets but for {rest}."


def left_out_note(off: list[list[str]]) -> str:
    """Returns how the published rows stand that no control tries to explain, from the rows of the table `off`."""
    counts = []
    for name in NOT_EXPLAINED:
        rows = [row for row in off if row[2] == METHODS[name].title]
        counts.append(f"{METHODS[name].title} {sum(row[-1] == 'none' for row in rows)}")
    return f"Not among them, as no control was tried; of 12 cells within reach in all measures: {', '.join(counts)}."


def search(found: dict[str, Any]) -> list[str]:
    if "search" not in found:
        return ["The search has not been run."]
    ((title, data),) = found["search"].items()
    columns = ("recall", "macro-F1", "ACE(rare)", "Macro-ACE", "ECE", "NLL", "balanced NLL")
    lines = [f"{title}.", "", "| training | networks | map | " + " | ".join(columns) + " |", "| --- " * 10 + "|"]
    for name, values in data["means"].items():
        mark = "**" * (name in data["chosen"].values())
        cells = [*name.split(" | "), *[f"{value:.4f}" for value in values]]
        lines.append("| " + " | ".join(f"{mark}{cell}{mark}" for cell in cells) + " |")
    return lines


def headline(found: dict[str, Any]) -> list[str]:
    """Returns the rows of the table of equal labels that the page itself shows."""
    equal = found["tables"]["equal_labels"]
    titles = {METHODS[name].title for name in HEADLINE}
    return table(equal | {"rows": [row for row in equal["rows"] if row[0] in titles]})


def parts(found: dict[str, Any]) -> dict[str, list[str]]:
    """Returns the lines that stand between each pair of markers."""
    results = found["results"]
    link = "[paper.json](../../benchmarks/results/paper.json)"
    source = f"{link}: commit {found['commit']}, torch {found['versions']['torch']}"
    at: dict[str, list[str]] = {}
    for name, stamp in results.get("rows", {}).items():
        at.setdefault(stamp["commit"], []).append(f"`{name}`")
    later = "".join(f"; {', '.join(names)} at {commit}" for commit, names in at.items())
    return {name: table(columns) for name, columns in results["tables"].items()} | {
        "bars": [*verdicts(results), "", f"{source}, {found['machine']['processor']}{later}."],
        "headline": headline(results),
        "search": search(results),
    }


def pages() -> dict[Path, str]:
    """Returns the text of the page and of those beside it."""
    return {path: path.read_text(encoding="utf-8") for path in (PAGE, *sorted(TABLES.glob("*.md")))}


def filled(texts: dict[Path, str], found: dict[str, Any]) -> dict[Path, str]:
    """Returns the texts with every part between its markers; each part must have its place on one page."""
    texts = dict(texts)
    for name, lines in parts(found).items():
        (path,) = (path for path, text in texts.items() if f"<!-- {name}:begin -->" in text)
        texts[path] = between(texts[path], name, lines)
    return texts


def _finite(value: Any) -> Any:
    """Returns the value with NaN, which JSON does not have, as None."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="folder of `calirare paper`")
    parser.add_argument("--keep", action="store_true", help="with --run: what is not there stays as the file has it")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.time:
        record.write("paper_time", timed())
    if options.run is not None:
        record.write("paper", _finite(collect(options.run, load("paper") if options.keep else None)))
    texts = pages()
    new = filled(texts, load("paper"))
    if options.check:
        sys.exit(new != texts)
    for path, text in new.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
