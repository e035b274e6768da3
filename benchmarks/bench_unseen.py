"""`auto` beside peers on published graphs that no rule of ours was fixed by, neither before nor after these results.

    python benchmarks/bench_unseen.py [--sets tolokers ..] [--regimes scarce ..] [--splits 3]
    python benchmarks/bench_unseen.py --summary     # unseen.json and the table in docs/research/detection.md

Where the files come from: benchmarks/detection/unseen.py. Draws of labels, peers and their columns are those of
bench_detection.py; peers are judged by AUPRC as they are and by Brier score and NLL calibrated. Each result is a line
of benchmarks/results/detection_unseen.jsonl; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import record
from detection import cells, peers
from detection.cells import Place
from detection.columns import Tables
from detection.peers import CALIBRATED
from detection.tasks import REGIMES, draw
from detection.unseen import SETS

LINES, PAGE = "detection_unseen", record.ROOT / "docs" / "research" / "detection.md"
BEGIN, END = "<!-- unseen:begin -->", "<!-- unseen:end -->"
OURS = "calirare"
TABULAR = tuple(name for name, peer in peers.PEERS.items() if not peer.by_node)
METHODS = (OURS, *TABULAR, *(name + CALIBRATED for name in TABULAR))
Row = dict[str, Any]


def read() -> list[Row]:
    path = cells.path_of(LINES)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def place_of(row: Row) -> Place:
    return Place(row["set"], row["regime"], row["split"], row["method"])


def run_set(name: str, options: argparse.Namespace) -> None:
    tables = Tables(SETS[name][1]())
    print(tables.task.graph, flush=True)
    done = {place_of(row) for row in read()}
    for split in range(options.splits):
        for regime in options.regimes:
            drawn = draw(tables.task, regime, split)
            for place in (Place(name, regime, split, method) for method in METHODS):
                if place not in done:
                    found, _ = cells.run(place, tables, drawn)
                    cells.append(place, found, LINES)
                    print(*vars(place).values(), *(f"{m} {found[m]:.4f}" for m in cells.MEASURES), flush=True)


def compared(rows: list[Row], regime: str) -> list[Row]:
    """Returns, for each set, our mean and the best peer's of each measure, and their paired difference."""
    out = []
    for name in SETS:
        found = [row for row in rows if (row["set"], row["regime"]) == (name, regime)]
        by: dict[str, dict[int, Row]] = {}
        for row in found:
            by.setdefault(row["method"], {})[row["split"]] = row
        if OURS not in by:
            continue
        ours = by[OURS]
        out.append(facts(name, ours) | {m: beside(by, ours, m) for m in ("auprc", "brier", "nll")})
    return out


def facts(name: str, ours: dict[int, Row]) -> Row:
    first, promised = next(iter(ours.values())), [row["mean_p"] / row["prevalence"] for row in ours.values()]
    counts = {key: first[key] for key in ("labels", "rare_labels", "test", "prevalence")}
    return {"set": name, "splits": len(ours), "promised": statistics.mean(promised)} | counts


def beside(by: dict[str, dict[int, Row]], ours: dict[int, Row], measure: str) -> Row:
    """Returns our mean, the best peer's, and the difference of ours from it over the splits with its standard error."""
    sign = 1 if measure == "auprc" else -1
    means = {
        method: statistics.mean(rows[split][measure] for split in ours)
        for method, rows in by.items()
        if method != OURS and method.endswith(CALIBRATED) == (measure != "auprc") and rows.keys() >= ours.keys()
    }
    best = max(means, key=lambda method: sign * means[method])
    differences = [row[measure] - by[best][split][measure] for split, row in ours.items()]
    error = statistics.stdev(differences) / len(ours) ** 0.5 if len(ours) > 1 else float("nan")
    mean = statistics.mean(row[measure] for row in ours.values())
    found = {
        "ours": mean,
        "peer": best.removesuffix(CALIBRATED),
        "best": means[best],
        "ahead": sign * (mean - means[best]),
    }
    return found | {"error": error}


def page(results: Row, commits: str) -> str:
    sets = ", ".join(f"{name} ({what})" for name, (what, _) in SETS.items())
    lines, rows = [f"{sets}.", ""], [row for regime in REGIMES for row in results[regime]]
    for regime in REGIMES:
        if results[regime]:
            lines += [f"**{regime}**", "", *table(results[regime]), ""]
    lines += [
        f"Of {len(rows)} sets and regimes `auto` is ahead of the best peer of each (chosen by these very results) in"
    ]
    ahead = [f"{sum(row[m]['ahead'] > 0 for row in rows)} by {word}" for m, word in MEASURES.items()]
    lost = [f"{row['set']} {regime} ({-row['auprc']['ahead']:.3f})" for regime in REGIMES for row in results[regime]
            if row["auprc"]["ahead"] < -0.01]  # fmt: skip
    lines += [f"{', '.join(ahead)}; more than .01 of AUPRC behind: {'; '.join(lost) or 'nowhere'}.", ""]
    file = "benchmarks/results/unseen.json"
    return "\n".join([*lines, f"[{file}](../../{file}): `python benchmarks/bench_unseen.py`, commit {commits}."])


MEASURES = {"auprc": "AUPRC", "brier": "Brier score", "nll": "NLL"}


def table(rows: list[Row]) -> list[str]:
    lines = [
        "| set | labels (rare) | rare, % | mean P(rare) over that | AUPRC | best peer | Brier score | best peer | NLL "
        "| best peer |",
        "| --- |" + " ---: |" * 9,
    ]
    for row in rows:
        words = [row["set"], f"{row['labels']:,} ({row['rare_labels']:,})", f"{100 * row['prevalence']:.1f}"]
        words.append(f"{row['promised']:.2f}")
        for measure, digits in (("auprc", 3), ("brier", 4), ("nll", 3)):
            one = row[measure]
            pair = [f"{one[side]:.{digits}f}" for side in ("ours", "best")]
            pair[one["ahead"] <= 0] = f"**{pair[one['ahead'] <= 0]}**"
            words += [pair[0], f"{pair[1]}, {one['peer']} ({one['ahead']:+.{digits}f} ± {one['error']:.{digits}f})"]
        lines.append(f"| {' | '.join(words)} |")
    return lines


def summarize() -> None:
    rows = read()
    results: Row = {regime: compared(rows, regime) for regime in REGIMES}
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    measured = record.environment() | {"command": "python benchmarks/bench_unseen.py", "commit": commits}
    record.write("unseen", results, measured)
    record.put_on_page(PAGE, BEGIN, END, page(results, commits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    for name in [] if options.summary else options.sets:
        run_set(name, options)
    if options.summary:
        summarize()


if __name__ == "__main__":
    main()
