"""Writes the measured part of docs/research/audit.md from audit.json: python benchmarks/audit_page.py."""

from __future__ import annotations

import json
import re
from typing import Any

import record
from auditing.peers import PEERS

PAGE = record.ROOT / "docs" / "research" / "audit.md"
BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"


def table(noises: dict[str, Any]) -> list[str]:
    """Returns a row per noise: what was wrong, expected and flagged, and how well methods rank."""
    rows = [
        "| wrong labels | cases | wrong | expected | flagged | of these wrong | expected | AUROC | "
        + " | ".join(PEERS)
        + " |",
        "| --- " * (8 + len(PEERS)) + "|",
    ]
    for noise, of in noises.items():
        ours = of["ours"]
        scores = [_number(of[name]["auroc"]) for name in ("ours", *PEERS)]
        cells = [
            noise,
            of["cases"],
            of["wrong"],
            f"{ours['expected_all']:.1f}",
            ours["flags"],
            ours["hits"],
            f"{ours['expected_flagged']:.1f}",
            *scores,
        ]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def text(results: dict[str, Any], about: dict[str, Any]) -> str:
    """Returns the part of the page."""
    fresh, tuned = results["fresh"], results["tuned"]
    peers = ", ".join(f"{name} {fresh[name]['hits']} of {fresh[name]['flags']}" for name in PEERS)
    behind = [
        f"{case} ({of['ours']:.3f}, it {max(of[name] for name in PEERS):.3f})" for case, of in results["behind"].items()
    ]
    aurocs = ", ".join(f"{name} {fresh[name]['auroc']:.3f}" for name in PEERS)
    clean = results["noises"]["none"]
    flags = ", ".join(f"{name} {clean[name]['flags']}" for name in PEERS)
    cleaned = fresh["cleaned"]
    seconds = [fresh[name]["seconds"] for name in ("ours", *PEERS)]
    lines = [
        "300 labels of each graph (fewer where there are not so many). Of these 5, 10 or 20 % drawn at random were",
        'made wrong, or that share of the rare ones and as many of the rest ("by class"). Numbers are sums over',
        f"{', '.join(fresh['sets'])}; AUROC, wrong labels ranked before right ones, is a mean. The rules above were",
        f"chosen on {', '.join(tuned['sets'])}. The peer is cleanlab {about['versions']['cleanlab']} as it comes, on",
        "five-fold cross-validated models of scikit-learn, on the same columns.",
        "",
        *table(results["noises"]),
        "",
        f"The 90 % interval of all wrong labels held in {fresh['held_all']} of {fresh['every']} cases (of the sets",
        f"that chose the rules in {tuned['held_all']} of {tuned['every']}), that of the wrong ones among the",
        f"flagged in {fresh['held_flagged']} of {fresh['every']}. Of the flagged, where labels were made wrong, were",
        f"wrong: ours {fresh['ours']['hits']} of {fresh['ours']['flags']}, {peers}.",
        f"Flags on labels that nobody made wrong: ours {clean['ours']['flags']},",
        f"{flags}.",
        f"Mean AUROC of all that were made wrong: ours {fresh['ours']['auroc']:.3f}, {aurocs}.",
        f"A peer's is more than 0.01 above ours in {len(behind)} of {fresh['cases'] + tuned['cases']} cases:",
        f"{'; '.join(behind)}.",
    ]
    if cleaned["cases"]:
        lines += [
            "",
            f"Trained again without the flagged labels ({cleaned['cases']} cases that had any, at 10 %), the log loss",
            f"of test nodes went from {cleaned['loss']:.4f} to {cleaned['loss_cleaned']:.4f}.",
        ]
    if (spared := clean["cleaned"])["cases"]:
        lines += [
            f"Where nobody had made any wrong (cases with flags: {spared['cases']}), it went from "
            f"{spared['loss']:.4f} to {spared['loss_cleaned']:.4f}.",
        ]
    lines += [
        "",
        f"The audit takes {seconds[0]:.1f} s of one core beside a training of {fresh['train_seconds']:.1f} s;",
        f"the peers, five trainings included, {seconds[1]:.1f} and {seconds[2]:.1f} s (medians).",
        "",
        f"[audit.json](../../benchmarks/results/audit.json): `{about['command']}`, commit {about['commit'][:7]},",
        f"torch {about['versions']['torch']}.",
    ]
    return "\n".join(lines)


def main() -> None:
    found = json.loads((record.COMMITTED / "audit.json").read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text(found['results'], found)}\n{END}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
