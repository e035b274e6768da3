"""Our effects of edges beside PyG's and Captum's explainers, for the same graph convolution: whose order is right?

    pip install --no-deps captum                    # 0.9; everything else is in the project's own environment
    python benchmarks/bench_explain_peers.py [--sets cora otc "houses 5" "houses 2" rings]
    python benchmarks/bench_explain_peers.py --page # the table of docs/research/explain.md from explain_peers.json

Each graph has 100 labels, 20 of them rare ("scarce" of bench_detection.py); model "gcn". Explained are at most
`N_ALERTS` rare nodes without a label that are alerts, before calibration too, drawn at random among those that read at
least `LEAST` edges. The peers get a
module of PyG with the same weights (logits must agree to 1e-5) on what the network reads at the node, and score both
directions of an edge: the scores are added. An order is judged by the network itself on the graph without the
edges, with degrees made anew (`explaining/judge.py`). Seconds are of processor time of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import explain_page
import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import Draw, draw
from explaining.judge import Field, Judge, curves, found, ordered
from explaining.peers import Peers, Scores
from explaining.planted import Planted, houses, rings
from sklearn.metrics import average_precision_score
from torch import Tensor

import calirare
from calirare.explain import difference

NAME = "explain_peers"
REAL = "cora", "otc"
PLANTED: dict[str, Callable[[], Planted]] = {
    "houses 5": partial(houses, 5),
    "houses 2": partial(houses, 2),
    "rings": rings,
}
N_ALERTS, LEAST, SEED = 100, 8, 20  # LEAST: more than any motif has
TRAINED = 3  # times that PGExplainer is, each with a seed of its own
OURS, TOLD = "CaliRare", "CaliRare, own edges"
AGREED = 1e-5


class Ours:
    """Effects of a node's edges as the explainer of a run makes them: log-odds with an edge minus those without it."""

    def __init__(self, judge: Judge) -> None:
        self.model = judge.outcome.explainer.model
        self.scores: dict[str, Scores] = {OURS: self._every, TOLD: self._told}

    def prepare(self, field: Field) -> None:
        """Makes what is made once for all nodes."""
        self.model.without_edges(int(field.nodes[0]), field.edges[:1])

    def _every(self, field: Field, _: int) -> Tensor:
        node = field.nodes[:1]
        return difference(self.model.logits(node)) - difference(self.model.without_edges(int(node), field.edges))

    def _told(self, field: Field, _: int) -> Tensor:
        """Returns the effects of the node's own edges, which `explain` tells; 0 of those between others."""
        node = field.nodes[:1]
        own = (field.ends == 0).any(1)
        others = field.edges[own].sum(1) - node
        out = torch.zeros(len(own), dtype=torch.float64)
        ends = torch.stack([node.expand(len(others)), others], 1)
        out[own] = difference(self.model.logits(node)) - difference(self.model.without_edges(int(node), ends))
        return out


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    out = work()
    return time.process_time() - started, out


def chosen(judge: Judge, drawn: Draw, y: Tensor) -> list[Field]:
    """Returns the fields of the alerts that are explained."""
    explainer = judge.outcome.explainer
    assert drawn.seen.y is not None
    asked = ((y == 1) & (drawn.seen.y < 0)).nonzero().flatten()
    right = (explainer.p_rare(asked) >= explainer.context.threshold) & (difference(explainer.model.logits(asked)) > 0)
    alerts = asked[right].numpy()
    fields = (judge.field(int(node)) for node in np.random.default_rng(SEED).permutation(alerts))
    enough = (field for field in fields if len(field.ends) >= LEAST)
    return [field for field, _ in zip(enough, range(N_ALERTS), strict=False)]


def run_set(name: str) -> dict[str, Any]:
    """Returns what is found of a graph."""
    planted = PLANTED[name]() if name in PLANTED else None
    task = SETS[name]() if planted is None else planted.task
    drawn = draw(task, "scarce", 0)
    judge = Judge(calirare.train(drawn.seen, model="gcn", seed=drawn.seed % 1000))
    assert task.graph.y is not None
    fields = chosen(judge, drawn, task.graph.y)
    peers, ours = Peers(judge, fields, SEED), Ours(judge)
    apart = max(peers.difference(field) for field in fields)
    if apart > AGREED:
        raise RuntimeError(f"{name}: the module must return the logits of the run, they are {apart:.1e} apart")
    ours.prepare(fields[0])
    methods = {name: judged(judge, fields, [scores], planted) for name, scores in (ours.scores | peers.scores).items()}
    spent, trained = seconds(lambda: [peers.pg_explainer(number) for number in range(TRAINED)])
    methods["PGExplainer"] = judged(judge, fields, trained, planted) | {"once_s": spent / TRAINED}
    p = judge.outcome.explainer.p_rare(torch.from_numpy(drawn.test)).numpy()
    facts = {
        "nodes": drawn.seen.n_nodes,
        "edges": drawn.seen.n_edges // 2,
        "auprc": float(average_precision_score(task.y[drawn.test], p)),
        "alerts": len(fields),
        "edges_of_alert": float(np.mean([len(field.ends) for field in fields])),
        "logits_apart": apart,
    }
    if planted is not None:
        sizes = [int(planted.motif(int(field.nodes[0]), field.edges).sum()) for field in fields]
        facts["motif"] = float(np.mean(sizes))
    every = torch.cat([judge.p_rare(field, torch.ones(1, len(field.ends), dtype=torch.bool)) for field in fields])
    none = torch.cat([judge.p_rare(field, torch.zeros(1, len(field.ends), dtype=torch.bool)) for field in fields])
    return facts | {"p": float(every.mean()), "p_without_edges": float(none.mean()), "methods": methods}


def judged(judge: Judge, fields: list[Field], trained: list[Scores], planted: Planted | None) -> dict[str, Any]:
    """Returns every measure of a method, of each alert; means where it was trained more than once."""
    every = list[list[dict[str, Any]]]()
    for scores in trained:
        rows = []
        for number, field in enumerate(fields):
            spent, said = seconds(partial(scores, field, number))
            order = ordered(said, SEED + number)
            row = curves(partial(judge.p_rare, field), order) | {"seconds": spent}
            if planted is not None:
                row |= found(said, order, planted.motif(int(field.nodes[0]), field.edges))
            rows.append(row)
        every.append(rows)
    return {key: np.mean([[row[key] for row in rows] for rows in every], 0).tolist() for key in every[0][0]}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Returns means over the alerts, their standard errors, and those of paired differences to ours."""
    out = dict[str, Any]()
    for method, values in found["methods"].items():
        out[method] = {"once_s": values.get("once_s", 0.0)}
        out[method] |= {key: np.mean(values[key], 0).tolist() for key in values if key.endswith(" at")}
        for key in (key for key in values if key != "once_s" and not key.endswith(" at")):
            mine, ours = np.array(values[key]), np.array(found["methods"][OURS][key])
            root = np.sqrt(len(mine))
            facts = {"mean": mine.mean(), "error": mine.std(ddof=1) / root}
            facts |= {"minus_ours": (mine - ours).mean(), "minus_ours_error": (mine - ours).std(ddof=1) / root}
            out[method][key] = {name: float(value) for name, value in facts.items()}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *PLANTED], default=[*REAL, *PLANTED])
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        print(explain_page.write_peers())
        return
    torch.set_num_threads(1)
    results = {}
    for name in options.sets:
        found = run_set(name)
        results[name] = found | {"methods": summary(found)}
        for method, said in results[name]["methods"].items():
            keys = ("deletion", "insertion", "deletion, all", "insertion, all", "accuracy", "auroc", "seconds")
            print(name, method, {key: round(said[key]["mean"], 3) for key in keys if key in said}, flush=True)
        print({key: value for key, value in results[name].items() if key != "methods"}, flush=True)
        print(record.write(NAME, results), flush=True)


if __name__ == "__main__":
    main()
