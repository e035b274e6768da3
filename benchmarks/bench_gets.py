"""The calibration record of docs/record.md: the protocol of GETS, our maps beside the published rows.

python benchmarks/bench_gets.py                    # runs cells that results/gets.jsonl does not hold, then the page
python benchmarks/bench_gets.py --page             # rewrites results/gets.json and the page from what is there
python benchmarks/bench_gets.py --check            # exits 1 when the page is not what results/gets.json says

`calirare study gets --out FOLDER` makes the same cells; --commit says at which commit, where it was another one.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import record
from multilabel_page import rule, source
from readme_tables import between, load

from calirare_lab.studies.gets import DATASETS, MEASURES, TRACKS, read, run, summary

PAGE = record.ROOT / "docs" / "record.md"
CELLS = record.RESULTS / "gets.jsonl"
TITLES = {"cora": "Cora", "citeseer": "CiteSeer", "computers": "Computers"}
# ECE x 100 of the predicted class, mean of 10 seeds, as GETS prints it for a graph convolution (Zhuang et al. 2025).
PUBLISHED = {
    "uncalibrated": {"cora": 22.62, "citeseer": 20.51, "computers": 5.63},
    "temperature": {"cora": 2.31, "citeseer": 3.10, "computers": 3.29},
    "vector": {"cora": 2.43, "citeseer": 2.82, "computers": 2.80},
    "ets": {"cora": 2.56, "citeseer": 3.06, "computers": 3.45},
    "cagcn": {"cora": 3.22, "citeseer": 2.79, "computers": 1.90},
    "gats": {"cora": 2.60, "citeseer": 3.36, "computers": 3.28},
    "GETS": {"cora": 2.29, "citeseer": 2.50, "computers": 2.03},
}
NAMES = {
    "uncalibrated": "uncalibrated",
    "temperature": "temperature scaling",
    "vector": "vector scaling",
    "ets": "ensemble temperature scaling",
    "matrix": "matrix scaling (Dirichlet)",
    "prior-platt": "Platt scaling with a prior",
    "cagcn": "CaGCN",
    "gats": "GATS",
}
LABELS = {"frozen": "validation labels", "peers": "validation labels", "left-out": "all labels, left out"}
HEADS = {"nll": "NLL", "brier": "Brier", "ece": "ECE", "ece_floor": "by chance", "classwise_ece": "classwise ECE"}


def summarise() -> dict[str, Any]:
    """Returns mean and spread of every cell over seeds, and what the check of leave-one-out said."""
    rows = read(CELLS)
    cells = [
        {"dataset": d, "track": t, "map": m, "seeds": values["seeds"]}
        | {
            name: {"mean": values[name][0], "std": values[name][1] if values["seeds"] > 1 else None}
            for name in MEASURES
        }
        for (d, t, m), values in summary(rows).items()
    ]
    verdicts: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["track"] == "left-out" and row["map"] == "uncalibrated":
            said = verdicts.setdefault(row["dataset"], {})
            said[row["verdict"]] = said.get(row["verdict"], 0) + 1
    return {"cells": cells, "verdicts": verdicts, "published": PUBLISHED}


def with_spread(values: dict[str, float | None], factor: float, digits: int) -> str:
    """Returns mean ± standard deviation over seeds, of a single seed its value."""
    assert values["mean"] is not None
    spread = "" if values["std"] is None else f" ± {factor * values['std']:.{digits}f}"
    return f"{factor * values['mean']:.{digits}f}{spread}"


def table(found: dict[str, Any], dataset: str) -> list[str]:
    """Returns a row per map, the most seeds and then the lowest NLL first; ECE beside the published one."""
    cells = [cell for cell in found["results"]["cells"] if cell["dataset"] == dataset]
    if not cells:
        return [f"**{TITLES[dataset]}**: not run yet.", ""]
    lines = [f"**{TITLES[dataset]}**", ""]
    lines += ["| map | fitted on | seeds | accuracy | NLL | Brier | ECE | by chance | published | classwise ECE |"]
    lines += [rule(10)]
    for cell in sorted(cells, key=lambda cell: (-cell["seeds"], cell["nll"]["mean"])):
        known = PUBLISHED.get(cell["map"], {}) if cell["track"] != "left-out" else {}
        published = f"{known[dataset]:.2f}" if dataset in known else ""
        shown = [with_spread(cell["nll"], 1, 3), with_spread(cell["brier"], 1, 3), with_spread(cell["ece"], 100, 2)]
        shown += [f"{100 * cell['ece_floor']['mean']:.2f}", published, f"{100 * cell['classwise_ece']['mean']:.2f}"]
        words = [
            NAMES[cell["map"]],
            LABELS[cell["track"]],
            str(cell["seeds"]),
            f"{100 * cell['accuracy']['mean']:.1f}",
            *shown,
        ]
        lines.append("| " + " | ".join(words) + " |")
    return [*lines, "", f"GETS itself, as published: ECE {PUBLISHED['GETS'][dataset]:.2f}.", ""]


def page(text: str, found: dict[str, Any]) -> str:
    """Returns the page with its tables made anew."""
    lines = [line for dataset in DATASETS for line in table(found, dataset)]
    said = [
        f"{TITLES[d]} " + ", ".join(f"{word} {n}" for word, n in sorted(verdicts.items()))
        for d, verdicts in found["results"]["verdicts"].items()
    ]
    if said:
        lines += [f"Leave-one-out beside five-fold cross-validation, by seeds: {'; '.join(said)}.", ""]
    return between(text, "record", [*lines, source("gets", found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--tracks", default=",".join(TRACKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--commit")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if options.check:
        sys.exit(page(text, load("gets")) != text)
    if not options.page:
        run(CELLS, options.datasets.split(","), options.tracks.split(","), options.seeds, print)
    about = record.environment() | ({"commit": options.commit} if options.commit else {})
    record.write("gets", summarise(), about)
    PAGE.write_text(page(text, load("gets")), encoding="utf-8")


if __name__ == "__main__":
    main()
