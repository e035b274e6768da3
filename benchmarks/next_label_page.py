"""Writes the measured part of docs/research/labels.md from next_label.json: python benchmarks/next_label_page.py."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import record

PAGE = record.ROOT / "docs" / "research" / "labels.md"
BEGIN, END = "<!-- next:begin -->", "<!-- next:end -->"


def table(sets: dict[str, Any], rules: list[str], key: str, to: str) -> list[str]:
    """Returns a row per graph: of each rule the mean over all rounds, and the rounds to where random labels end."""
    rows = ["| graph | splits | " + " | ".join(rules) + " |", "| --- " * (2 + len(rules)) + "|"]
    for name, of in sets.items():
        best = (max if key == "mean_auprc" else min)(of[rule][key] for rule in rules if rule in of)
        cells = [_cell(of.get(rule), key, to, best) for rule in rules]
        rows.append("| " + " | ".join([name, str(of[rules[0]]["splits"]), *cells]) + " |")
    return rows


def _cell(of: dict[str, Any] | None, key: str, to: str, best: float) -> str:
    if of is None:
        return ""
    number = f"**{of[key]:.4f}**" if of[key] == best else f"{of[key]:.4f}"
    return f"{number} ({of[to]})"


def losses(sets: dict[str, Any]) -> str:
    """Returns where ours is not ahead of every other rule, in words."""
    out = []
    for key, words, sign in (("mean_auprc", "AUPRC", 1), ("mean_log_loss", "log loss", -1)):
        best = {
            name: max(sign * each[key] for rule, each in of.items() if rule != "value") for name, of in sets.items()
        }
        behind = [name for name, of in sets.items() if sign * of["value"][key] <= best[name]]
        out.append(f"in {words} on {', '.join(behind) if behind else 'none of them'}")
    return " and ".join(out)


def text(results: dict[str, Any], about: dict[str, Any]) -> str:
    """Returns the part of the page."""
    sets = results["sets"]
    rules = list(next(iter(sets.values())))
    first = "five of each class, and 40 drawn at random (more where fewer than two of these are rare)"
    how = (
        f"{results['rounds']} rounds of {results['batch']} labels, from {first}; half of the labelled nodes are never "
        f"asked for and judge. The detector is `{results['model']}`, calibrated on the random labels alone. The form "
        f"of the value was chosen on {' and on '.join(results['tuned_sets'])}. Numbers are means over all rounds, and "
        "in brackets the round from which a rule stays as good as random labels are at the end "
        f"({results['rounds'] + 1}: never); the best is bold."
    )
    what = (
        f"Some other rule is as good as ours or better {losses(sets)}. *Density* is uncertainty times the mean "
        "cosine similarity to the other nodes; McPAL of scikit-activeml asks by a Parzen window of its own, and our "
        "detector is trained on what it asks for. These are few splits: differences in the third digit mean nothing, "
        "and log loss, whose map sees about 40 random labels, moves most."
    )
    file = "[next_label.json](../../benchmarks/results/next_label.json)"
    source = f"{file}: `{about['command']}`, commit {about['commit']}, torch {about['versions']['torch']}."
    auprc = table(sets, rules, "mean_auprc", "rounds_to_auprc")
    loss = table(sets, rules, "mean_log_loss", "rounds_to_log_loss")
    parts = [[how], ["AUPRC:"], auprc, ["Log loss:"], loss, [what], [source]]
    return "\n\n".join("\n".join(line for row in part for line in _wrapped(row)) for part in parts)


def _wrapped(row: str) -> list[str]:
    return [row] if row.startswith("|") else textwrap.wrap(row, 120, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    found = json.loads((record.COMMITTED / "next_label.json").read_text(encoding="utf-8"))
    pattern = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
    part = f"{BEGIN}\n{text(found['results'], found)}\n{END}"
    PAGE.write_text(pattern.sub(lambda _: part, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
