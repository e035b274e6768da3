"""How well labels that were made wrong are found, and whether the numbers that are expected hold.

    python benchmarks/bench_audit.py [--sets cora ..] [--splits 1] [--again]
    python benchmarks/bench_audit.py --summary          # audit.json from the lines, nothing is run

300 labels of each graph; 5, 10 and 20 % of them, drawn at random, or so many of the rare ones and as many of the rest,
are made wrong. Each result (set, noise, split) is a line of benchmarks/results/audit.jsonl; what is there is not run
again. Ours is the audit of the default detector. The peer is cleanlab, which must be installed, on five-fold
cross-validated models of scikit-learn, on the same columns (own, neighbours' means, degree). Rules were chosen on the
sets that the summary names as tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from auditing import peers
from auditing.tasks import NOISES, SETS, TUNED, Case, Drawn, draw
from auditing.trained import log_loss, scores, trained
from sklearn.metrics import roc_auc_score

from calirare.explain.audit import LabelNoise, label_noise
from calirare.models import HopColumns

LINES = record.RESULTS / "audit.jsonl"
AT_LEAST, CLOSE = 0.5, 0.01
CLEANED = ("none", "random 10", "by class 10")  # noises at which flagged labels are removed and the rest trained again


def found_by(p_wrong: np.ndarray, flags: np.ndarray, drawn: Drawn) -> dict[str, Any]:
    """Returns how well a score and its flags find the labels that were made wrong."""
    wrong = drawn.flipped
    auroc = float(roc_auc_score(wrong, p_wrong)) if wrong.any() else None
    first = np.argsort(-p_wrong, kind="stable")[: max(int(wrong.sum()), 1)]
    share = float(wrong[first].mean()) if wrong.any() else None
    return {"auroc": auroc, "first": share, "flags": int(flags.sum()), "hits": int((flags & wrong).sum())}


def audited(values: dict[str, Any], drawn: Drawn) -> tuple[LabelNoise, dict[str, Any]]:
    """Returns the posterior, and what it found and expected."""
    begin = time.process_time()
    s, share = scores(values)
    noise = label_noise(s, drawn.given == 1, np.zeros(len(s)), share)
    seconds = time.process_time() - begin
    flags = noise.p_wrong >= AT_LEAST
    told = {"seconds": seconds, "clean": noise.clean}
    for name, among in (("all", np.ones(len(s), dtype=bool)), ("flagged", flags)):
        told[f"expected_{name}"], told[f"low_{name}"], told[f"high_{name}"] = noise.count(among)
    return noise, found_by(noise.p_wrong, flags, drawn) | told


def run(case: Case, drawn: Drawn, kept: Path) -> dict[str, Any]:
    """Returns the result of a case."""
    values = trained(case, drawn, kept)
    noise, ours = audited(values, drawn)
    out = {"wrong": int(drawn.flipped.sum()), "labels": len(drawn.nodes), "train_seconds": float(values["seconds"])}
    out |= {"ours": ours, "loss": log_loss(values["p"], drawn)}
    x = HopColumns.fit(drawn.graph).of(drawn.graph).x
    assert isinstance(x, torch.Tensor)
    for name in peers.PEERS:
        begin = time.process_time()
        doubt, flags = peers.issues(name, x[torch.from_numpy(drawn.nodes)].double().numpy(), drawn.given)
        seconds = time.process_time() - begin
        out[name] = found_by(doubt, flags, drawn) | {"seconds": seconds}
    flags = noise.p_wrong >= AT_LEAST
    if case.noise in CLEANED and flags.any():
        cleaned = replace(case, noise=f"{case.noise} cleaned")
        out["loss_cleaned"] = log_loss(trained(cleaned, drawn.without(flags), kept)["p"], drawn)
    return out


def read() -> dict[Case, dict[str, Any]]:
    """Returns every result there is; of two for one case the later one counts."""
    rows = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()] if LINES.exists() else []
    return {Case(row["set"], row["noise"], row["split"]): row for row in rows}


def summary(rows: dict[Case, dict[str, Any]]) -> dict[str, Any]:
    """Returns means over sets that were not tuned on, by noise, and how often intervals held."""
    methods = ("ours", *peers.PEERS)
    out: dict[str, Any] = {"tuned_sets": list(TUNED), "at_least": AT_LEAST, "noises": {}}
    fresh = {case: row for case, row in rows.items() if case.set not in TUNED}
    for noise in NOISES:
        some = [row for case, row in fresh.items() if case.noise == noise]
        if some:
            out["noises"][noise] = _means(some, methods)
    out["behind"] = {
        f"{case.set}, {case.noise}": {name: row[name]["auroc"] for name in methods}
        for case, row in rows.items()
        if row["wrong"] and max(row[name]["auroc"] for name in peers.PEERS) > row["ours"]["auroc"] + CLOSE
    }
    for name, part in (("fresh", fresh), ("tuned", {c: r for c, r in rows.items() if c.set in TUNED})):
        noisy = [row for row in part.values() if row["wrong"]]
        every = list(part.values())
        out[name] = {
            "every": len(every),
            "sets": sorted({case.set for case in part}),
            "held_all": sum(r["ours"]["low_all"] <= r["wrong"] <= r["ours"]["high_all"] for r in every),
            "held_flagged": sum(
                r["ours"]["low_flagged"] <= r["ours"]["hits"] <= r["ours"]["high_flagged"] for r in every
            ),
        }
        out[name] |= _means(noisy, methods) if noisy else {}
    return out


def _means(rows: list[dict[str, Any]], methods: tuple[str, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {"cases": len(rows), "wrong": sum(row["wrong"] for row in rows)}
    for method in methods:
        aurocs = [row[method]["auroc"] for row in rows if row[method]["auroc"] is not None]
        out[method] = {
            "auroc": float(np.mean(aurocs)) if aurocs else None,
            "flags": sum(row[method]["flags"] for row in rows),
            "hits": sum(row[method]["hits"] for row in rows),
            "seconds": float(np.median([row[method]["seconds"] for row in rows])),
        }
        for name in ("expected_all", "expected_flagged"):
            if name in rows[0][method]:
                out[method][name] = sum(row[method][name] for row in rows)
    cleaned = [row for row in rows if "loss_cleaned" in row]
    out["train_seconds"] = float(np.median([row["train_seconds"] for row in rows]))
    out["cleaned"] = {
        "cases": len(cleaned),
        "loss": float(np.mean([row["loss"] for row in cleaned])) if cleaned else None,
        "loss_cleaned": float(np.mean([row["loss_cleaned"] for row in cleaned])) if cleaned else None,
    }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("runs/bench_audit"), help="folder of finished trainings")
    parser.add_argument("--again", action="store_true", help="run what has a result too")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    for name in () if options.summary else options.sets:
        task = SETS[name]()
        for case in (Case(name, noise, split) for split in range(options.splits) for noise in options.noises):
            if case in read() and not options.again:
                continue
            row = asdict(case) | run(case, draw(task, case), options.keep)
            with LINES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            shown = {method: row[method]["auroc"] for method in ("ours", *peers.PEERS)}
            print(case, row["wrong"], f"{row['ours']['expected_all']:.1f}", shown, flush=True)
    print(record.write("audit", summary(read())))


if __name__ == "__main__":
    main()
