"""What labels did to gat, gin and sage, beside training anew without them: their tangent, and what seeds agree on.

    python benchmarks/bench_explain_networks.py [--sets cora otc dblp] [--models gat gin sage] [--seeds 3]
    python benchmarks/bench_explain_networks.py --page  # the table of docs/explain.md, nothing is run

Each graph has 100 labels, 20 of them rare ("scarce" of bench_detection.py), and is explained at its 50 likeliest nodes.
A network is trained anew without each of 20 labels (half the strongest, half at random): for as many epochs, the same
way with other draws for each seed, the first of which is the run's own. Compared are changes of the log-odds, with the
mean over seeds; how two seeds correlate is what there is to be told. Results are kept in results/explain_networks.json
case by case; a case that is there is not run again (--again: it is).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from typing import Any

import explain_page
import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import draw
from torch import Tensor

import calirare
from calirare.explain import difference, voice_of
from calirare.explain.pyg_voice import PygVoice
from calirare.graph import Graph
from calirare.models.pyg_folds import PygFit, Together

NAME, N_NODES, N_LABELS = "explain_networks", 50, 20


def correlation(a: Tensor, b: Tensor) -> float | None:
    """Returns Pearson's, None where one of them does not move."""
    a, b = a.flatten().double(), b.flatten().double()
    return float(np.corrcoef(a, b)[0, 1]) if bool(a.std() > 0) and bool(b.std() > 0) else None


def log_odds_of(fitted: PygFit, graph: Graph, nodes: Tensor, seed: int, weights: Tensor) -> Tensor:
    """Returns the log-odds of nodes by a network trained with a seed and some weights of the labels, [n]."""
    training = dataclasses.replace(fitted.training, seed=seed)
    anew = Together(training, graph, fitted.nodes, weights, fitted.fold).fitted(training.epochs)
    return difference(anew.logits_of(graph, nodes))


def case(name: str, model: str, seeds: int) -> dict[str, Any]:
    """Returns what is found of a graph and a network."""
    drawn = draw(SETS[name](), "scarce", 0)
    outcome = calirare.train(drawn.seen, model=model, seed=drawn.seed % 1000)
    graph, fitted = outcome.mapped or drawn.seen, outcome.fit
    assert isinstance(fitted, PygFit)
    started = time.perf_counter()
    voice = voice_of(fitted, graph)
    assert isinstance(voice, PygVoice)
    prepared = time.perf_counter() - started
    every = voice.log_odds(torch.arange(graph.n_nodes)).clone()
    every[fitted.nodes] = -torch.inf
    nodes = every.argsort(descending=True)[:N_NODES]
    told = voice.without_each_label(nodes) - voice.log_odds(nodes)
    order = told.abs().mean(1).argsort(descending=True)
    rest = order[N_LABELS // 2 :][
        torch.randperm(len(order) - N_LABELS // 2, generator=torch.Generator().manual_seed(0))
    ]
    places = torch.cat([order[: N_LABELS // 2], rest[: N_LABELS // 2]])
    truth, trained = list[Tensor](), list[float]()
    for number in range(seeds):
        seed = fitted.training.seed + number
        base = log_odds_of(fitted, graph, nodes, seed, fitted.sample_weights)
        rows = []
        for place in places.tolist():
            weights = fitted.sample_weights.clone()
            weights[place] = 0
            started = time.perf_counter()
            rows.append(log_odds_of(fitted, graph, nodes, seed, weights) - base)
            trained.append(time.perf_counter() - started)
        truth.append(torch.stack(rows))
    mean, told = torch.stack(truth).mean(0), told[places]
    pairs = [correlation(a, b) for a, b in itertools.combinations(truth, 2)]
    return {
        "labels": int(fitted.nodes.numel()),
        "epochs": fitted.training.epochs,
        "correlation": correlation(told, mean),
        "correlation_with_own_seed": correlation(told, truth[0]),
        "correlation_between_seeds": float(np.mean([each for each in pairs if each is not None])),
        "slope": float((told * mean).sum() / told.square().sum()) if bool(told.any()) else None,
        "cosine_with_folds": voice.cosine,
        "relied_on": not any("do not rely" in note for note in voice.notes),
        "prepare_s": prepared,
        "retrain_s_per_label": float(np.median(trained)),
    }


def main() -> None:
    """Runs what is missing and writes it, case by case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["cora", "otc", "dblp"])
    parser.add_argument("--models", nargs="+", default=["gat", "gin", "sage"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if not asked.page:
        path = record.RESULTS / f"{NAME}.json"
        found = json.loads(path.read_text())["results"] if path.exists() else {}
        for name, model in itertools.product(asked.sets, asked.models):
            if asked.again or model not in found.get(name, {}):
                found.setdefault(name, {})[model] = case(name, model, asked.seeds)
                print(name, model, found[name][model], flush=True)
                record.write(NAME, found)
    print(explain_page.write_networks())


if __name__ == "__main__":
    main()
