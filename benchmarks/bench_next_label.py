"""Which rule needs the fewest labels: AUPRC and log loss of held-out nodes over rounds of labels that are asked for.

    python benchmarks/bench_next_label.py [--sets cora ..] [--splits 3] [--rules value ..]
    python benchmarks/bench_next_label.py --summary      # next_label.json from the lines, nothing is run

Half of the labelled nodes are never asked for and judge. At the start there are five labels of each class and 40 drawn
at random (more, where fewer than two of them are rare); each of 20 rounds asks for five more. The detector is `hops`,
calibrated on the random labels alone (`--calibrate-on val`). Each game (set, rule, split) is a line of
benchmarks/results/next_label.jsonl; what is there is not run again. The form of the value was chosen on the simulated
graphs. The rule of scikit-activeml needs that package (1.0.1), which is not installed with ours; without it it is left
out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import asdict
from typing import Any

import numpy as np
import record
from labelling.rounds import BATCH, N_ROUNDS, SETS, TUNED, Case, played
from labelling.rules import RULES

LINES = record.RESULTS / "next_label.jsonl"
LEFT_OUT = ("likeliest",)
MODEL = "hops"


def read() -> dict[Case, dict[str, Any]]:
    """Returns every game there is."""
    rows = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()] if LINES.exists() else []
    return {Case(row["set"], row["rule"], row["split"]): row for row in rows}


def reached(curve: np.ndarray, target: float, *, low: bool) -> int:
    """Returns how many rounds it takes to stay at a measure or better; one more than there were where it never does."""
    good = curve <= target if low else curve >= target
    return int(len(good) - np.argmin(good[::-1]) if not good.all() else 0)


def summary(rows: dict[Case, dict[str, Any]]) -> dict[str, Any]:
    """Returns each set's mean curves, their means over all rounds, and the rounds to where random labels end."""
    out: dict[str, Any] = {"tuned_sets": list(TUNED), "rounds": N_ROUNDS, "batch": BATCH, "model": MODEL, "sets": {}}
    for name in SETS:
        there = {rule: {c.split: row for c, row in rows.items() if (c.set, c.rule) == (name, rule)} for rule in RULES}
        there = {rule: games for rule, games in there.items() if games}
        shared = set.intersection(*map(set, there.values())) if there else set()  # splits that every rule has
        of = {rule: _game([games[i] for i in sorted(shared)]) for rule, games in there.items() if shared}
        if "random" in of:
            for each in of.values():
                ends = of["random"]["auprc"][-1], of["random"]["log_loss"][-1]
                each["rounds_to_auprc"] = reached(np.array(each["auprc"]), ends[0], low=False)
                each["rounds_to_log_loss"] = reached(np.array(each["log_loss"]), ends[1], low=True)
        if of:
            out["sets"][name] = of
    return out


def _game(games: list[dict[str, Any]]) -> dict[str, Any]:
    n = min(len(game["auprc"]) for game in games)
    curves = {key: np.array([game[key][:n] for game in games]) for key in ("auprc", "log_loss", "rare")}
    out: dict[str, Any] = {"splits": len(games), "labels": [games[0]["labels"][0], games[0]["labels"][n - 1]]}
    out |= {key: curve.mean(0).round(4).tolist() for key, curve in curves.items() if key != "rare"}
    out["rare_asked"] = float((curves["rare"][:, -1] - curves["rare"][:, 0]).mean())
    for key in ("auprc", "log_loss"):
        means = curves[key].mean(1)
        out[f"mean_{key}"], out[f"spread_{key}"] = (
            float(means.mean()),
            float(means.std(ddof=1)) if len(means) > 1 else 0.0,
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=[rule for rule in RULES if rule not in LEFT_OUT])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    there = importlib.util.find_spec("skactiveml") is not None
    rules = [rule for rule in options.rules if there or not rule.startswith("scikit-activeml")]
    cases = [Case(name, rule, i) for i in range(options.splits) for name in options.sets for rule in rules]
    for case in () if options.summary else cases:
        if case in read():
            continue
        row = asdict(case) | played(SETS[case.set](), case, MODEL)
        with LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        means = {key: round(float(np.mean(row[key])), 4) for key in ("auprc", "log_loss")}
        print(case, means, flush=True)
    print(record.write("next_label", summary(read())))


if __name__ == "__main__":
    main()
