"""Writes the results of docs/research/detection.md from the committed file, so that no number there is typed by hand.

python benchmarks/detection_page.py            # rewrites the page between its markers
python benchmarks/detection_page.py --check    # exits 1 when the page is not what the file says
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import record
from detection.cells import METHODS, TRUTH
from detection.ours import RECIPES
from detection.peers import CALIBRATED
from detection.sets import SETS
from detection.tasks import REGIMES
from multilabel_page import rule
from readme_tables import between, load

PAGE = record.ROOT / "docs" / "research" / "detection.md"
DIGITS = {"auprc": 3, "brier": 4, "nll": 3, "cpu_s": 1}
Cells = dict[tuple[str, str, str], dict[str, Any]]


def shown(cell: dict[str, Any] | None, measure: str) -> str:
    """Returns mean ± standard deviation over splits, of a single split its value."""
    if cell is None:
        return ""
    digits = DIGITS[measure]
    spread = f" ± {cell[measure]['std']:.{digits}f}" if cell["splits"] > 1 else ""
    return f"{cell[measure]['mean']:.{digits}f}{spread}"


def table(cells: Cells, regime: str, measure: str, methods: list[str]) -> list[str]:
    """Returns a row per method and a column per set; the best in bold."""
    sets = [s for s in SETS if any((s, regime, m) in cells for m in methods)]
    methods = [m for m in methods if any((s, regime, m) in cells for s in sets)]
    if not methods:
        return ["Not measured yet."]
    sign = 1 if measure == "auprc" else -1
    lines = ["| | " + " | ".join(sets) + " |", rule(1 + len(sets))]
    best = {
        s: max(
            (m for m in methods if m != TRUTH and (s, regime, m) in cells),
            key=lambda m, s=s: sign * cells[s, regime, m][measure]["mean"],
            default=None,
        )
        for s in sets
    }
    for method in methods:
        words = [shown(cells.get((s, regime, method)), measure) for s in sets]
        words = [f"**{w}**" if best[s] == method and w else w for s, w in zip(sets, words, strict=True)]
        lines.append(f"| {method} | " + " | ".join(words) + " |")
    return lines


def head(cells: Cells, regime: str) -> list[str]:
    """Returns what is labelled and tested in a regime."""
    lines = ["| set | labels (rare) | test nodes | rare among them, % | splits |", rule(5)]
    for name in SETS:
        found = [cells[name, regime, m] for m in METHODS if (name, regime, m) in cells]
        if found:
            one, splits = found[0], sorted({cell["splits"] for cell in found})
            lines.append(
                f"| {name} | {one['labels']['mean']:,.0f} ({one['rare_labels']['mean']:,.0f}) | "
                f"{one['test']['mean']:,.0f} | {100 * one['prevalence']['mean']:.1f} | "
                f"{splits[0] if len(splits) == 1 else f'{splits[0]} to {splits[-1]}'} |"
            )
    return lines


def regime_lines(cells: Cells, regime: str) -> list[str]:
    plain = [m for m in METHODS if not m.endswith(CALIBRATED)]
    judged = [m for m in METHODS if m in RECIPES or m.endswith(CALIBRATED) or m == TRUTH]
    return [
        f"**{regime}**: {REGIMES[regime]}.",
        "",
        *head(cells, regime),
        "",
        "AUPRC:",
        "",
        *table(cells, regime, "auprc", plain),
        "",
        "Brier score of P(rare), peers calibrated:",
        "",
        *table(cells, regime, "brier", judged),
        "",
        "NLL of P(rare), peers calibrated:",
        "",
        *table(cells, regime, "nll", judged),
        "",
        "CPU seconds of one split, tables included (where it ran twice, the smaller number):",
        "",
        *table(cells, regime, "cpu_s", plain),
        "",
    ]


def bar_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for recipe, bars in found["results"]["bars"].items():
        if not bars["places"]:
            continue
        below = sum(place["brier"] and place["nll"] for place in bars["probabilities"])
        lost = "; ".join(f"{c['set']} {c['regime']} {c['behind']:.3f} behind {c['peer']}" for c in bars["lost"])
        means = "; ".join(f"{m} {c['peer']:.3f} against {c['ours']:.3f}" for m, c in bars["means"].items())
        lines += [
            f"- `{recipe}`, {bars['places']} sets and regimes. Mean AUPRC of each peer and ours where both have "
            f"results: {means or 'none'}. More than .01 below the best peer: {lost or 'nowhere'}. Brier score and NLL "
            f"below every calibrated peer's: {below} of {len(bars['probabilities'])}.",
        ]
    return lines or ["Ours have not been measured yet."]


def source(found: dict[str, Any]) -> str:
    machine = found["machine"]
    commits = sorted({commit for cell in found["results"]["cells"] for commit in cell["commits"]})
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"[benchmarks/results/detection.json](../../benchmarks/results/detection.json): `{found['command']}`, commits "
        f"{', '.join(commits)}; {versions}; {machine['threads']} thread of {machine['processor']}."
    )


def results(found: dict[str, Any]) -> list[str]:
    cells = {(c["set"], c["regime"], c["method"]): c for c in found["results"]["cells"]}
    lines = [line for regime in REGIMES for line in regime_lines(cells, regime)]
    return [*lines, "**Bars**", "", *bar_lines(found), "", source(found)]


def page(text: str) -> str:
    return between(text, "results", results(load("detection")))


def write() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        text = PAGE.read_text(encoding="utf-8")
        sys.exit(page(text) != text)
    write()


if __name__ == "__main__":
    main()
