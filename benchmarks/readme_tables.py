"""Writes the tables of README.md, docs/index.md and docs/research/performance.md from committed files.

python benchmarks/readme_tables.py            # rewrites the pages between their markers
python benchmarks/readme_tables.py --check    # exits 1 when a page differs from the files
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record

README = record.ROOT / "README.md"
INDEX = record.ROOT / "docs" / "index.md"
PERFORMANCE = record.ROOT / "docs" / "research" / "performance.md"
COLUMNS = ("recall", "macro_f1", "ace_minority", "macro_ace", "ece", "nll")
TITLES = ("recall", "macro-F1", "ACE(rare)", "Macro-ACE", "ECE", "NLL")


def load(name: str) -> dict[str, Any]:
    return json.loads((record.RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def cell(value: dict[str, float]) -> str:
    return f"{value['mean']:.3f} ± {value['std']:.3f}"


def quality_table(found: dict[str, Any]) -> list[str]:
    lines = ["| data set | probabilities | " + " | ".join(TITLES) + " |", "| --- | --- |" + " --- |" * len(TITLES)]
    for dataset, sides in found["results"]["quality"].items():
        for side, title in (("raw", "before"), ("balanced", "after, balanced"), ("population", "after, population")):
            cells = " | ".join(cell(sides[side][name]) for name in COLUMNS)
            lines.append(f"| {dataset if side == 'raw' else ''} | {title} | {cells} |")
        floors = sides["balanced"]
        shown = [
            f"{floors[name + '_noise_floor']['mean']:.3f}" if name + "_noise_floor" in floors else ""
            for name in COLUMNS
        ]
        lines.append("| | *chance alone* | " + " | ".join(shown) + " |")
    return lines


def verdicts(found: dict[str, Any]) -> list[str]:
    """Returns how often each data set's leave-one-out check had each outcome."""
    told = []
    for dataset, sides in found["results"]["quality"].items():
        counts = Counter(sides["verdicts"])
        told.append(f"{dataset} {', '.join(f'{verdict} {n}' for verdict, n in counts.most_common())}")
    return [
        f"Leave-one-out check, by seeds: {'; '.join(told)}. Where it says *do not trust*, the maps were fitted on",
        "five-fold cross-validated logits instead: those rows owe nothing to leave-one-out logits.",
    ]


def results(found: dict[str, Any]) -> list[str]:
    cost = found["results"]["cost"]["cora"]
    machine, versions = found["machine"], found["versions"]
    first = next(iter(found["results"]["quality"].values()))
    seeds = len(first["epochs"])
    return [
        f"Label rate 20, {seeds} seeds, mean ± standard deviation on test nodes that chose nothing. The network trains",
        "on training and validation labels. *Chance alone*: what a perfectly calibrated model scores on as many nodes.",
        "",
        *quality_table(found),
        "",
        *verdicts(found),
        "",
        f"`{cost['command']}`: {cost['wall_s']['median']:.1f} s wall, imports and pictures included, "
        f"{cost['peak_mb']:.0f} MB at most.",
        "",
        f"[benchmarks/results/main_job.json](../../benchmarks/results/main_job.json): `{found['command']}`, commit "
        f"{found['commit']}, torch {versions['torch']}, {machine['cores']} cores of {machine['processor']}.",
    ]


def propagate_lines(found: dict[str, Any]) -> list[str]:
    cells = [c for c in found["results"]["cells"] if "ratio" in c and c["dtype"] == "float32"]
    total = found["results"]["summary"]
    commits = ", ".join(sorted({c["commit"] for c in cells}))
    lines = [
        "| A X, milliseconds on 1 / 2 threads | width | calirare | best other | ratio | at the floor | copy X to Y |",
        "| --- " * 7 + "|",
    ]
    for graph, width in dict.fromkeys((c["graph"], c["width"]) for c in cells):
        pair = [c for c in cells if (c["graph"], c["width"]) == (graph, width)]

        def both(pick: Callable[[dict[str, Any]], float], pair: list[dict[str, Any]] = pair) -> str:
            return " / ".join(f"{pick(c):.3g}" for c in pair)

        best = " / ".join(f"{c['times'][c['best']]['median_ms']:.3g} ({c['best']})" for c in pair)
        ratio, mine = both(lambda c: c["ratio"]), both(lambda c: c["times"]["ours"]["median_ms"])
        copied = both(lambda c: c["times"]["copy"]["median_ms"])
        most = both(lambda c: c["best_rival_times_the_floor"])
        lines.append(f"| {graph} | {width} | {mine} | {best} | {ratio} | {most} | {copied} |")
    return [
        *lines,
        "",
        f"Geometric mean of {total['cells']} cells: {total['geometric_mean_ratio']:.2f} times the fastest of MKL,",
        f"SciPy, index_add and torch-sparse, lowest {total['worst_ratio']:.2f}, {total['cells_below_1.2']} below 1.2.",
        "*At the floor*: the ratio of a kernel that takes no longer than copying X to Y and reading A.",
        *([f"Note: {found['results']['note']}."] if "note" in found["results"] else []),
        "",
        source("propagate", found | {"command": "python benchmarks/bench_propagate.py --fresh"}, commits),
    ]


def training_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        "| 200 epochs, dropout off, seconds | calirare | full-graph PyG | ratio | losses apart |",
        "| --- " * 5 + "|",
    ]
    for name, case in found["results"].items():
        times, rival = case["times"], case["fastest_rival"]
        lines.append(
            f"| {name} | {times['calirare']['median_s']:.2f} | {times[rival]['median_s']:.2f} ({rival}) | "
            f"{case['speedup']:.1f} | {max(case['largest_difference_of_losses'].values()):.0e} |"
        )
    return [*lines, "", source("training_speed", found)]


def jackknife_lines(found: dict[str, Any]) -> list[str]:
    def ms(stage: dict[str, Any], name: str) -> float:
        return 1e3 * stage["times"][name]["median_s"]

    cases = found["results"]
    clocks = " and ".join(sorted({case["clock"] for case in cases.values()}))
    threads = f"{found['machine']['threads']} thread(s), {clocks} time"
    lines = [
        f"| every label left out, milliseconds, {threads} | labels x parameters | `alo` | plain torch.func | "
        "ratio | exact Hessian: direct / CG / torch.func CG | whole jackknife / cheapest product | "
        "Algorithm 2 / PyG epoch | extra memory |",
        "| --- " * 9 + "|",
    ]
    for name, case in cases.items():
        one, whole, epoch = case["one_change"], case["whole"], case["epoch"]
        lines.append(
            f"| {name} | {one['labels']} x {one['parameters']:,} | {ms(one, 'alo'):.3g} | "
            f"{ms(one, 'torch_func'):.0f} | {one['speedup_of_alo']:.0f} | "
            f"{ms(one, 'exact'):.0f} / {ms(one, 'cg'):.0f} / {ms(one, 'torch_func_cg'):.0f} | "
            f"{ms(whole, 'jackknife'):.3g} / {ms(whole, whole['ratio_to']):.3g} | "
            f"{ms(epoch, 'algorithm 2'):.3g} / {ms(epoch, 'pyg'):.3g} | {case['extra_memory_mb']:.0f} MB |"
        )
    return [
        *lines,
        "",
        "`alo`: the change of every logit without each label. Whole: directions, changes, intervals and uncertainty",
        "of every node, beside the cheapest product the same algebra needs. Epoch: Algorithm 2 with leave-one-out",
        "models made anew in every epoch, beside plain full-graph training by PyG without them.",
        "Direct: the exact Hessian in its range, the solver of two layers; CG works on all parameters. The machine was",
        "shared: compare numbers of one row.",
        "",
        source("jackknife_speed", found),
    ]


def source(name: str, found: dict[str, Any], commits: str | None = None) -> str:
    """Returns file, command, commits (None: the file's) and torch."""
    path = f"benchmarks/results/{name}.json"
    commits = commits or found["commit"]
    return f"[{path}](../../{path}): `{found['command']}`, commit {commits}, torch {found['versions']['torch']}."


def performance() -> list[str]:
    return [
        *jackknife_lines(load("jackknife_speed")),
        "",
        *training_lines(load("training_speed")),
        "",
        *propagate_lines(load("propagate")),
    ]


def example() -> list[str]:
    return ["```", *(record.RESULTS / "example.txt").read_text(encoding="utf-8").rstrip().splitlines(), "```"]


def unseen() -> list[str]:
    """Returns the README's table: the default on graphs that played no part in its design."""
    lines = [
        "| graph | rare | AUPRC | best peer | log loss | best peer |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in load("unseen")["results"]["shot"]:
        cells = " | ".join(f"{row[key]['ours']:.3f} | {row[key]['best']:.3f}" for key in ("auprc", "nll"))
        lines.append(f"| {row['set']} | {row['prevalence']:.1%} | {cells} |")
    return lines


def between(text: str, marker: str, lines: list[str]) -> str:
    begin, end = f"<!-- {marker}:begin -->\n", f"<!-- {marker}:end -->"
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    return head + begin + "\n".join(lines) + "\n" + end + tail


def pages() -> dict[Path, str]:
    """Returns each page as the committed files say it."""
    performed = between(PERFORMANCE.read_text(encoding="utf-8"), "results", results(load("main_job")))
    return {
        README: between(README.read_text(encoding="utf-8"), "unseen", unseen()),
        INDEX: between(INDEX.read_text(encoding="utf-8"), "example", example()),
        PERFORMANCE: between(performed, "performance", performance()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    written = pages()
    if options.check:
        sys.exit(any(path.read_text(encoding="utf-8") != text for path, text in written.items()))
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
