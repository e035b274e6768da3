"""Writes example and speed of docs/research/metrics.md: what the example prints, and the committed times.

python benchmarks/metrics_page.py            # rewrites the page between its markers, and its picture
python benchmarks/metrics_page.py --check    # exits 1 when the page is not what the example and the file say
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import record
from multilabel_page import rule, source
from readme_tables import between, load

from calirare.cli import main as main_of_calirare

PAGE = record.ROOT / "docs" / "research" / "metrics.md"
PICTURE = record.ROOT / "docs" / "figures" / "metrics_reliability.png"
PEERS = ("torchmetrics", "netcal", "sklearn")
CODE = """\
import numpy as np, pandas as pd
from calirare import metrics

rng = np.random.default_rng(0)
p = rng.beta(0.5, 2.0, 1200)                       # P(rare class), exact
y = (rng.random(1200) < p).astype(int)
q = p**1.8 / (p**1.8 + (1 - p) ** 1.8)             # the same model, log-odds 1.8 times too large
floor = metrics.noise_floor(metrics.ece, q)
low, high = metrics.bootstrap_interval(metrics.ece, y, q, n_draws=200)
print(f"ECE {metrics.ece(y, q):.4f} [{low:.4f}, {high:.4f}], by chance {floor.mean:.4f} +- {floor.std:.4f}")
print(f"slope {metrics.calibration_line(y, q).slope:.2f} (1 / 1.8 = {1 / 1.8:.2f})")
pd.DataFrame({"y": y, "p": p, "raw": q}).to_csv("preds.csv", index=False)
"""
COMMAND = "calirare evaluate preds.csv --y y --p p --before raw --out pictures"


def printed(run: Callable[[], object]) -> list[str]:
    """Returns the lines that a program prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            run()
        except SystemExit as stop:
            if stop.code:
                raise
    return [line.rstrip() for line in said.getvalue().splitlines()]


def example() -> tuple[list[str], bytes]:
    """Runs code and command in an empty folder; returns the page's lines and the reliability picture."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shown = printed(lambda: exec(compile(CODE, PAGE.name, "exec"), {}))
        with mock.patch.object(sys, "argv", COMMAND.split()):
            table = printed(main_of_calirare)
        picture = Path("pictures", "reliability.png").read_bytes()
    lines = ["```python", *CODE.splitlines(), "```", "", "```", *shown, "```", ""]
    lines += ["The same for a table, with pictures (bars, gaps, counts, consistency bands; before and after):", ""]
    lines += ["```", f"$ {COMMAND}", *table, "```", ""]
    return [*lines, f"![reliability diagrams](../figures/{PICTURE.name})"], picture


def speed(found: dict[str, Any]) -> list[str]:
    results = found["results"]
    size = f"{results['rows']:,} rows, {results['classes']} classes, {found['machine']['threads']} threads"
    bar = f"bar for ECE: below {results['ece_budget_ms']:g}, and nowhere slower than a peer"
    lines = [
        f"Milliseconds for {size}: median of {results['repeats']} ({bar}).",
        "",
        "| measure | calirare | " + " | ".join(PEERS) + " |",
        rule(2 + len(PEERS)),
    ]
    for case in results["cases"]:
        times = case["milliseconds"]
        cells = [f"{times[peer]['median']:.1f}" if peer in times else "" for peer in PEERS]
        lines.append(f"| {case['case']} | {times['calirare']['median']:.1f} | " + " | ".join(cells) + " |")
    slower, over = results["slower_than_a_peer"], results["ece_over_budget"]
    versions = ", ".join(f"{name} {version}" for name, version in results["peers"].items() if version)
    verdict = f"Slower than a peer: {', '.join(slower) or 'none'}. ECE over its bar: {', '.join(over) or 'none'}."
    return [*lines, "", f"{verdict} Peers: {versions}.", "", source("metrics", found)]


def page(text: str, shown: list[str]) -> str:
    return between(between(text, "example", shown), "speed", speed(load("metrics")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    shown, picture = example()
    if options.check:
        sys.exit(page(text, shown) != text)
    PAGE.write_text(page(text, shown), encoding="utf-8")
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
