"""The calibration record of docs/research/record.md: the protocols of GETS and GATS, with rivals and published rows.

python benchmarks/bench_record.py --protocol gats      # cells that results/gats.jsonl does not hold, then the page
python benchmarks/bench_record.py --protocol rules     # graphs that are none of the record's, where maps were chosen
python benchmarks/bench_record.py --page               # rewrites the results files and the page from what is there
python benchmarks/bench_record.py --check              # exits 1 when the page is not what the results files say

`calirare study gets --out FOLDER` and `calirare study gats` make the same cells; --commit says at which commit, where
it was another one.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import record
from record_page import page
from record_pairs import pairs, whole_draws

from calirare_lab.studies.record import MEASURES, PROTOCOLS, RULES_PROTOCOL, TRACKS, Protocol, read, run, summary

PAGE = record.ROOT / "docs" / "research" / "record.md"
EVERY = PROTOCOLS | {RULES_PROTOCOL.name: RULES_PROTOCOL}


def summarise(protocol: Protocol) -> dict[str, Any]:
    """Returns mean and spread of every cell over draws, the paired comparisons, and what leave-one-out's check said."""
    rows = whole_draws(read(protocol, record.RESULTS / f"{protocol.name}.jsonl"))
    cells = [
        {"dataset": d, "network": n, "track": t, "map": m, "seeds": values["seeds"]}
        | {
            name: {"mean": values[name][0], "std": values[name][1] if values["seeds"] > 1 else None}
            for name in MEASURES
        }
        for (d, n, t, m), values in summary(rows).items()
    ]
    verdicts: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["track"] == "left-out" and row["map"] == "uncalibrated" and "verdict" in row:
            said = verdicts.setdefault(row["dataset"], {})
            said[row["verdict"]] = said.get(row["verdict"], 0) + 1
    return {"draws": protocol.draws, "cells": cells, "pairs": pairs(rows), "verdicts": verdicts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--protocol", choices=tuple(EVERY), default="gets")
    parser.add_argument("--datasets", help="comma-separated; all of the protocol where it is left out")
    parser.add_argument("--networks", default="gcn")
    parser.add_argument("--tracks", default=",".join(TRACKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--commit")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if options.check:
        sys.exit(page(text) != text)
    made = list(EVERY.values()) if options.page else [EVERY[options.protocol]]
    if not options.page:
        datasets = options.datasets.split(",") if options.datasets else list(made[0].datasets)
        asked = (datasets, options.networks.split(","), options.tracks.split(","))
        run(made[0], record.RESULTS / f"{made[0].name}.jsonl", *asked, options.seeds, print)
    about = record.environment() | ({"commit": options.commit} if options.commit else {})
    for protocol in made:
        record.write(protocol.name, summarise(protocol), about)
    PAGE.write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
