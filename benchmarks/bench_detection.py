"""How well the rare class is found, and how right P(rare) is: our detectors beside peers, on ten graphs.

    python benchmarks/bench_detection.py [--sets cora ..] [--regimes scarce ..] [--methods boosting ..] [--splits 10]
    python benchmarks/bench_detection.py --summary     # detection.json from the lines, nothing is run
    python benchmarks/bench_detection.py --page        # docs/research/detection.md from detection.json, nothing is run

Each result (set, regime, split, method) is a line of benchmarks/results/detection_ours.jsonl or detection_peers.jsonl;
what is there is not run again (--again: it is, and the later line counts). Methods see the labels of training and
validation nodes alone. Peers named "..., calibrated" are the same in scikit-learn's CalibratedClassifierCV with five
folds of the same labels. --keep FOLDER keeps P(rare) of the test nodes too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import detection_page
import numpy as np
import record
from detection import cells, peers
from detection.cells import TRUTH, Place
from detection.columns import Tables
from detection.sets import SETS, truth
from detection.summary import summary
from detection.tasks import REGIMES, draw

N_SPLITS = 10


def wanted(name: str, options: argparse.Namespace, simulated: bool) -> list[Place]:
    """Returns the places of a set that were asked for and have no result."""
    known = set() if options.again else cells.done()
    places = [
        Place(name, regime, split, method)
        for split in range(options.first, options.splits)
        for regime in options.regimes
        for method in options.methods
        if method != TRUTH or simulated
    ]
    return [place for place in places if place not in known]


def run_set(name: str, options: argparse.Namespace) -> None:
    tables = Tables(SETS[name]())
    print(tables.task.graph, flush=True)
    for place in wanted(name, options, truth(tables.task) is not None):
        if not options.again and place in cells.done():  # another run has done it meanwhile
            continue
        drawn = draw(tables.task, place.regime, place.split)
        found, p = cells.run(place, tables, drawn)
        cells.append(place, found)
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            file = options.keep / f"{place.set}-{place.regime}-{place.split}-{place.method}.npz".replace(" ", "_")
            np.savez_compressed(file, p=p, test=drawn.test, y=tables.task.y[drawn.test])
        shown = " ".join(f"{key} {found[key]:.3f}" for key in cells.MEASURES)
        print(f"{name} {place.regime} {place.split} {place.method:<32} {shown} {found['cpu_s']:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--methods", nargs="+", choices=cells.METHODS, default=list(cells.METHODS))
    parser.add_argument(
        "--splits", type=int, default=N_SPLITS, help="run splits from --first up to this one, without it"
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        detection_page.write()
        return
    if not options.summary:
        absent = {m: peers.missing(m) for m in options.methods if m.removesuffix(peers.CALIBRATED) in peers.PEERS}
        for method, package in absent.items():
            if package is not None:
                print(f"left out: {method}, {package} is not installed")
        options.methods = [m for m in options.methods if absent.get(m) is None]
        for name in options.sets:
            run_set(name, options)
    print(record.write("detection", summary(cells.read())))


if __name__ == "__main__":
    main()
