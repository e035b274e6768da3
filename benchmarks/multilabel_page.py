"""Writes the results of docs/research/multilabel.md from committed files, so that no number there is typed by hand.

python benchmarks/multilabel_page.py            # rewrites the page between its markers
python benchmarks/multilabel_page.py --check    # exits 1 when the page is not what the files say
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import record
from readme_tables import between, load

PAGE = record.ROOT / "docs" / "research" / "multilabel.md"
ESTIMATORS = {
    "copula": "copula, as printed",
    "copula_threshold": "copula, thresholded labels",
    "binned": "label by label, 15 bins",
    "kde": "Beta kernels",
    "kde_residual": "Beta kernels on residuals",
}
METHODS = {
    "bce": "cross-entropy",
    "bce_temperature": "+ temperature",
    "focal": "focal",
    "cmlcc": "CMLCC",
    "cmlcc_per_seed": "CMLCC, beta per seed",
}
MEASURES = {
    "copula": "canonical error",
    "copula_threshold": "thresholded",
    "marginal_ece": "marginal ECE",
    "hamming_loss": "Hamming loss",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "subset_accuracy": "subset accuracy",
    "nll": "NLL",
}


def rule(columns: int) -> str:
    return "| --- " * columns + "|"


def source(name: str, found: dict[str, Any], up: str = "../..") -> str:
    machine = found["machine"]
    return (
        f"[benchmarks/results/{name}.json]({up}/benchmarks/results/{name}.json): `{found['command']}`, commit "
        f"{found['commit']}, torch {found['versions']['torch']}, {machine['cores']} cores of {machine['processor']}."
    )


def simulation(found: dict[str, Any]) -> list[str]:
    study = found["results"]
    lines = ["| world | truth | " + " | ".join(ESTIMATORS.values()) + " |", rule(2 + len(ESTIMATORS))]
    for world in study["worlds"]:
        cells = [c for c in study["cells"] if c["world"] == world and c["p"] == 1]
        shown = []
        for name in ESTIMATORS:
            own = sorted((c for c in cells if c["estimator"] == name), key=lambda c: c["n"])
            shown.append(f"{own[0]['mean']:.4f} to {own[-1]['mean']:.4f}")
        lines.append(f"| {world.replace('_', ', ')} | {cells[0]['truth']:.4f} | " + " | ".join(shown) + " |")
    sizes = {name: {c["n"] for c in study["cells"] if c["estimator"] == name} for name in ESTIMATORS}
    n = {name: max(found) for name, found in sizes.items()}
    return [
        f"Mean estimate of CE per label (p = 1) from n = {min(sizes['copula']):,} to n = {n['copula']:,} rows "
        f"({n['kde']:,} for the kernels, whose cost is quadratic).",
        "",
        *lines,
        "",
        *claims(study),
        "",
        source("multilabel_simulation", found),
    ]


def claims(study: dict[str, Any]) -> list[str]:
    worlds = list(study["worlds"])
    lines = ["| claim | as printed | thresholded labels |", rule(3)]
    rows = [("unbiased for p = 1", "unbiased", 1.0), ("consistent, p = 1", "consistent", 1.0)]
    for title, key, p in [*rows, ("consistent, p = 2", "consistent", 2.0)]:
        cells = []
        for name in ("copula", "copula_threshold"):
            holds = [v["world"] for v in study["verdicts"] if v["estimator"] == name and v["p"] == p and v[key]]
            named = ": " + "; ".join(world.replace("_", ", ") for world in holds) if holds else ""
            cells.append(f"holds in {len(holds)} of {len(worlds)} worlds{named}")
        lines.append(f"| {title} | {cells[0]} | {cells[1]} |")
    return lines


def experiments(found: dict[str, Any]) -> list[str]:
    summary = found["results"]["summary"]
    lines = ["| set | loss | " + " | ".join(MEASURES.values()) + " |", rule(2 + len(MEASURES))]
    for name, part in summary["sets"].items():
        for method, title in METHODS.items():
            table = part["methods"][method]
            cells = " | ".join(f"{table[key][0]:.4f} ± {table[key][1]:.4f}" for key in MEASURES)
            lines.append(f"| {name if method == 'bce' else ''} | {title} | {cells} |")
        floors = [f"{part['methods']['bce'][key + '_floor'][0]:.4f}" for key in list(MEASURES)[:3]]
        lines.append("| | *chance alone* | " + " | ".join(floors) + " |" * (len(MEASURES) - len(floors) + 1))
    return [*lines, "", *passes(summary), "", source("multilabel_experiments", found)]


def passes(summary: dict[str, Any]) -> list[str]:
    lines = [
        "| set | beta | canonical error less cross-entropy's | the same of the noise floors | seeds below | "
        "Hamming loss, times | passes |",
        rule(7),
    ]
    for name, part in summary["sets"].items():
        against = part["against_bce"]["cmlcc"]
        gain, floor = against["paired"]["copula"], against["paired"]["copula_floor"]["mean"]
        cells = (
            name,
            f"{part['beta']:g}",
            f"{gain['mean']:+.4f} ± {gain['half_width']:.4f}",
            f"{floor:+.4f}",
            f"{gain['below_zero']} of {part['seeds']}",
            f"{against['hamming_ratio']:.4f}",
            "yes" if against["passes"] else "**no**",
        )
        lines.append("| " + " | ".join(cells) + " |")
    total = len(summary["sets"])
    lost = [name for name, part in summary["sets"].items() if not part["against_bce"]["cmlcc"]["passes"]]
    paired = {name: part["against_bce"]["cmlcc"]["paired"]["copula"] for name, part in summary["sets"].items()}
    sure = [name for name, gain in paired.items() if gain["mean"] + gain["half_width"] < 0]
    return [
        *lines,
        "",
        "Differences are paired by seed, ± half of a 95 % interval, which lies below zero on "
        f"{', '.join(sure) or 'no set'}.",
        f"CMLCC passes on **{summary['sets_passed']['cmlcc']} of {total} sets** (lower canonical error, Hamming loss "
        f"at most 2 % worse); lost: {', '.join(lost) or 'none'}. With beta chosen anew by each seed's own validation "
        f"rows it passes on {summary['sets_passed']['cmlcc_per_seed']} of {total}.",
    ]


def speed(found: dict[str, Any]) -> list[str]:
    lines = ["| rows | labels | dtype | seconds, median (slowest) | extra memory, bytes per entry |", rule(5)]
    for row in found["results"]["estimator"]:
        lines.append(
            f"| {row['n']:,} | {row['K']} | {row['dtype']} | {row['median_s']:.2f} ({row['max_s']:.2f}) | "
            f"{row['extra_peak_bytes_per_entry']:.0f} |"
        )
    literal = found["results"]["literal_double_sum"]
    return [
        *lines,
        "",
        f"The literal double sum takes {literal['seconds']:.2f} s for {literal['n']} rows of {literal['K']} labels and "
        f"differs by {literal['difference']:.0e}.",
        "",
        source("multilabel_speed", found),
    ]


def page(text: str) -> str:
    for part in (simulation, experiments, speed):
        text = between(text, part.__name__, part(load(f"multilabel_{part.__name__}")))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if options.check:
        sys.exit(page(text) != text)
    PAGE.write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
