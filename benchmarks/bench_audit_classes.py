"""How well wrong labels among many classes are found, and whether the numbers that are expected hold.

    python benchmarks/bench_audit_classes.py [--sets cora ..]
    python benchmarks/bench_audit_classes.py --page   # the table of docs/research/audit.md, nothing is run

Three quarters of each graph's nodes keep a label, of which some are made wrong: any into any other class ("alike"), any
into the next class ("pairs"), or those of the first class alone ("one class"). The detector is `trees` with five folds.
The peer is cleanlab's ranking and its confident learning on the same probabilities without each label. The form of the
noise was chosen on Cora, CiteSeer and digits with other labels made wrong; DBLP and Computers are of no say in it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any

import numpy as np
import record
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import roc_auc_score

import calirare
from calirare.explain.audit import Audit
from calirare_lab.published import data_root

SETS = ("cora", "citeseer", "digits", "dblp", "computers")
CHOSEN_ON = ("cora", "citeseer", "digits")
FILES = {"computers": str(data_root() / "amazon_computers.npz")}
NOISES = (("none", 0.0), ("alike", 0.05), ("alike", 0.2), ("pairs", 0.1), ("one class", 0.3))
SEED = 11
BEGIN, END = "<!-- classes:begin -->", "<!-- classes:end -->"


def noisy(graph: calirare.Graph, kind: str, rate: float, seed: int) -> tuple[calirare.Graph, np.ndarray]:
    """Returns a graph some of whose training labels are wrong, and which, bool [n]."""
    assert graph.y is not None
    assert graph.split is not None
    rng, k, y = np.random.default_rng(seed), graph.n_classes, graph.y.clone()
    nodes = torch.cat([graph.split.train, graph.split.val]).numpy()
    chosen = rng.random(len(nodes)) < rate
    if kind == "one class":
        chosen &= y[nodes].numpy() == 0
    away = np.ones(len(nodes), dtype=np.int64) if kind == "pairs" else rng.integers(1, k, len(nodes))
    moved = nodes[chosen]
    y[moved] = (y[moved] + torch.from_numpy(away[chosen])) % k
    wrong = np.zeros(graph.n_nodes, dtype=bool)
    wrong[moved] = True
    return dataclasses.replace(graph, y=y), wrong


def found_by(doubt: np.ndarray, flags: np.ndarray, wrong: np.ndarray) -> dict[str, Any]:
    """Returns how well a score and its flags find the labels that were made wrong."""
    auroc = float(roc_auc_score(wrong, doubt)) if wrong.any() else None
    return {"auroc": auroc, "flags": int(flags.sum()), "hits": int((flags & wrong).sum())}


def judged(audit: Audit, p: np.ndarray, wrong: np.ndarray, seconds: float) -> dict[str, Any]:
    """Returns what the audit and cleanlab say of the labels, p [m, k] without each label."""
    expected, low, high = audit.noise.count(np.ones(len(wrong), dtype=bool))
    ours = found_by(audit.p_wrong, audit.flagged, wrong)
    ours |= {"expected": expected, "low": low, "high": high, "clean": audit.noise.clean, "seconds": seconds}
    peer = find_label_issues(audit.given, p)
    quality = get_label_quality_scores(audit.given, p, method="self_confidence")
    return {"labels": len(wrong), "wrong": int(wrong.sum()), "ours": ours, "cleanlab": found_by(-quality, peer, wrong)}


def run(name: str, kind: str, rate: float) -> dict[str, Any]:
    """Returns the result of a set and a noise."""
    clean = calirare.load_dataset(FILES.get(name, name), task="classes", split="share")
    graph, wrong = noisy(clean, kind, rate, SEED)
    outcome = calirare.train(graph, task="classes", model="trees", folds=5)
    begin = time.process_time()
    audit = outcome.audit()
    seconds = time.process_time() - begin
    assert outcome.own_logits is not None
    p = outcome.mapped_logits(outcome.own_logits, "population").numpy()
    place = {node: row for row, node in enumerate(outcome.fit.nodes.tolist())}
    rows = [place[node] for node in audit.nodes.tolist()]
    return {"set": name, "noise": kind, "rate": rate} | judged(audit, p[rows], wrong[audit.nodes], seconds)


def page(results: dict[str, Any]) -> str:
    """Returns the table of docs/research/audit.md."""
    rows = results["rows"]
    ours_of = "of | wrong | expected | 90 % | flagged | right | AUROC"
    head = f"| set | wrong labels | {ours_of} | cleanlab: flagged | right | AUROC |"
    lines = [head, "| --- " * 12 + "|"]
    for row in rows:
        ours, peer = row["ours"], row["cleanlab"]
        noise = "none" if row["noise"] == "none" else f"{row['noise']}, {row['rate']:.0%}".replace("%", " %")
        interval = f"{ours['low']:,} to {ours['high']:,}"
        cells = [row["set"], noise, f"{row['labels']:,}", f"{row['wrong']:,}", f"{ours['expected']:,.1f}", interval]
        for of in (ours, peer):
            cells += [f"{of['flags']:,}", f"{of['hits']:,}", "" if of["auroc"] is None else f"{of['auroc']:.4f}"]
        lines.append("| " + " | ".join(cells) + " |")
    held = sum(row["ours"]["low"] <= row["wrong"] <= row["ours"]["high"] for row in rows)
    noisy = [row for row in rows if row["wrong"]]
    best = sum(row["ours"]["auroc"] >= row["cleanlab"]["auroc"] for row in noisy)
    flags = {of: sum(row[of]["flags"] for row in rows if not row["wrong"]) for of in ("ours", "cleanlab")}
    said = (
        f"The interval held in {held} of {len(rows)} cases. Ours ranks at least as well in {best} of {len(noisy)}. "
        f"Where nobody made a label wrong ours flags {flags['ours']}, cleanlab {flags['cleanlab']:,}."
    )
    return "\n".join([*lines, "", said])


def write_page() -> None:
    """Puts the table into docs/research/audit.md."""
    facts = json.loads((record.RESULTS / "audit_classes.json").read_text())
    link = "[audit_classes.json](../../benchmarks/results/audit_classes.json): "
    source = f"{link}`{facts['command'].split(' --sets')[0]}`, commit {facts['commit']}."
    path = record.ROOT / "docs" / "research" / "audit.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{page(facts['results'])}\n\n{source}\n{END}{after}")


def main() -> None:
    """Runs what is asked for and writes audit_classes.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--page", action="store_true", help="the table of docs/research/audit.md from the results")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    path = record.RESULTS / "audit_classes.json"
    kept = json.loads(path.read_text())["results"]["rows"] if path.is_file() else []
    rows = [row for row in kept if row["set"] not in options.sets]
    for name in options.sets:
        for kind, rate in NOISES:
            rows.append(run(name, kind, rate))
            print(rows[-1], flush=True)
            record.write("audit_classes", {"seed": SEED, "chosen_on": CHOSEN_ON, "rows": rows})


if __name__ == "__main__":
    main()
