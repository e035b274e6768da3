"""Effects of labels beside dattri and pyDVL, judged by networks that were trained without the labels.

    python benchmarks/bench_explain_labels.py [--sets otc cora sichuan] [--models hops gcn] [--again]
    python benchmarks/bench_explain_labels.py --page

Each graph has 100 labels, 20 of them rare ("scarce" of bench_detection.py); the network is trained on to its minimum in
float64, and every method is asked what each label does to the log-odds of its 50 likeliest nodes. Truth is the network
trained on from there without each of some labels (correlation over labels and nodes), and without a random half of all
labels, 30 times (linear datamodelling score: mean over nodes of Spearman's correlation, over these halves, of the sum
of the effects with the log-odds). Seconds are of one thread's processor time, of everything that a method makes of the
network, the best of three where they are less than one. dattri and pyDVL must be installed; in which form they read
the network explaining/label_peers.py says.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import explain_page
import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import draw
from explaining.label_peers import LabelPeers, timed
from scipy.stats import spearmanr
from torch import Tensor

import calirare
from calirare.explain import difference, explainable
from calirare.graph import Graph
from calirare.leave_one_out import leave_one_out
from calirare.models import GcnFit, converge, minimise
from calirare_lab.leave_one_out import Retrain

NAME, DEFAULT, MODELS = "explain_labels", ("otc", "cora", "sichuan"), ("hops", "gcn")
N_NODES, N_LEFT_OUT, N_HALVES = 50, 24, 30
OURS, AS_SETS = "CaliRare", "CaliRare, each half as one set"


def at_minimum(graph: Graph, model: str, seed: int) -> tuple[GcnFit, Graph, Tensor]:
    """Returns a network trained on to its minimum, its graph, and its likeliest nodes without a label."""
    outcome = calirare.train(graph, model=model, seed=seed)
    mapped = graph if outcome.mapped is None else outcome.mapped
    assert isinstance(outcome.fit, GcnFit)
    fitted, _ = converge(outcome.fit.as_dtype(mapped, torch.float64), mapped, tolerance=1e-8, max_steps=2000)
    asked = (graph.y < 0).nonzero().flatten()
    z = difference(explainable(fitted, mapped).logits(asked))
    return fitted, mapped, asked[z.argsort(descending=True)[:N_NODES]]


def without_halves(fitted: GcnFit, graph: Graph, nodes: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Returns halves of the labels that are left out, bool [s, m], and the log-odds of networks without them [s, n]."""
    draw_of, m = torch.Generator().manual_seed(seed), fitted.nodes.numel()
    field, gone, said = fitted.evaluation_field(graph, nodes), [], []
    for _ in range(N_HALVES):
        out = torch.zeros(m, dtype=torch.bool)
        out[torch.randperm(m, generator=draw_of)[: m // 2]] = True
        half = fitted.copy(sample_weights=fitted.sample_weights.masked_fill(out, 0.0))
        minimise(half, tolerance=1e-6, max_steps=400)
        z = half.logits_at(field)
        gone.append(out)
        said.append(z[:, 1] - z[:, 0])
    return torch.stack(gone), torch.stack(said)


def datamodelling_score(change: Tensor, gone: Tensor, said: Tensor) -> float:
    """Returns the mean over nodes of Spearman's correlation of summed changes [m, n] with what was said [s, n]."""
    return _agreement(gone.double() @ change, said)


def _agreement(foreseen: Tensor, said: Tensor) -> float:
    """Returns the mean over nodes of Spearman's correlation of log-odds [s, n]."""
    pairs = zip(foreseen.T.numpy(), said.T.numpy(), strict=True)
    return float(np.mean([spearmanr(a, b).statistic for a, b in pairs]))


def compare(name: str, model: str) -> dict[str, Any]:
    """Returns what each method reaches on one network."""
    drawn = draw(SETS[name](), "scarce", 0)
    seed = drawn.seed % 1000
    fitted, graph, nodes = at_minimum(drawn.seen, model, seed)
    m = fitted.nodes.numel()
    chosen = torch.randperm(m, generator=torch.Generator().manual_seed(seed))[:N_LEFT_OUT]
    truth = leave_one_out(fitted, graph, Retrain(max_steps=400, chosen=chosen), nodes=nodes).change[:, 0].T
    gone, said = without_halves(fitted, graph, nodes, seed)
    peers = LabelPeers(fitted, fitted.evaluation_field(graph, torch.cat([fitted.nodes, nodes])), nodes.numel())

    def ours() -> Tensor:
        model = explainable(fitted, graph)
        return difference(model.without_each_label(nodes)) - difference(model.logits(nodes))

    out: dict[str, Any] = {}
    for method, peer in {OURS: ours, **peers.all()}.items():
        seconds, change = timed(peer, lambda: fitted.__dict__.pop("_linearised", None))
        correlation = float(torch.corrcoef(torch.stack([change[chosen].flatten(), truth.flatten().double()]))[0, 1])
        score = datamodelling_score(change, gone, said.double())
        told = {"correlation": correlation, "datamodelling_score": score, "seconds": seconds}
        out[method] = {key: value if np.isfinite(value) else None for key, value in told.items()}
        print(name, model, method, out[method], flush=True)
    seconds, foreseen = timed(
        lambda: difference(
            explainable(fitted, graph).without_labels(nodes, [half.nonzero().flatten() for half in gone])
        ),
        lambda: fitted.__dict__.pop("_linearised", None),
    )
    out[AS_SETS] = {"datamodelling_score": _agreement(foreseen, said), "correlation": None, "seconds": seconds}
    print(name, model, AS_SETS, out[AS_SETS], flush=True)
    size = {"nodes": graph.n_nodes, "labels": m, "parameters": int(fitted.theta.numel()), "explained": nodes.numel()}
    return size | {"methods": out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(DEFAULT))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true", help="the table of docs/research/explain.md from the results")
    options = parser.parse_args()
    if options.page:
        print(explain_page.write_label_peers())
        return
    path = record.RESULTS / f"{NAME}.json"
    kept = json.loads(path.read_text())["results"] if path.exists() else {}
    torch.set_num_threads(1)
    for name in options.sets:
        for model in options.models:
            if f"{name} {model}" not in kept or options.again:
                kept[f"{name} {model}"] = compare(name, model)
                print(record.write(NAME, kept))


if __name__ == "__main__":
    main()
