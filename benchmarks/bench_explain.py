"""Explanations beside the truth: labels by retraining without them, alerts after their labels are gone, seconds.

    python benchmarks/bench_explain.py [--sets otc sichuan cora] [--again]
    python benchmarks/bench_explain.py --speed --sets otc cora sichuan million  # seconds alone: explain_speed.json
    python benchmarks/bench_explain.py --page       # the table of docs/research/explain.md, nothing is run
    python benchmarks/bench_explain.py --example    # its example and picture

Each graph has 100 labels, 20 of them rare ("scarce" of bench_detection.py). Results are
kept graph by graph in benchmarks/results/explain.json; a graph that is there is not run again (--again: it is).
Correlations are of the change of P(rare) at the likeliest alerts; seconds are by the clock, of a run that is read from
its folder, with the load of the machine (processes that want to run) at that moment; of one alert the best of three
medians of ten, each of other alerts, in processor time too, and the first of the three.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import explain_page
import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import draw
from torch import Tensor

import calirare
from calirare.datasets import synthetic_rare
from calirare.explain import difference, explainable
from calirare.explain.label_propagation import ExplainablePropagation
from calirare.graph import Graph, Split, scipy_of_csr
from calirare.leave_one_out import leave_one_out
from calirare.models import (
    STEPS,
    FoldedNetwork,
    GcnFit,
    LabelPropagationFit,
    TreesFit,
    TreesTraining,
    converge,
    propagation_step,
)
from calirare.run import Outcome
from calirare_lab.leave_one_out import Retrain

NAME, DEFAULT = "explain", ("otc", "sichuan", "cora")
MILLION = "million"  # nodes that are simulated: for seconds alone
N_ALERTS, N_SINGLE, N_PASSES = 100, 10, 3  # alerts, those explained one by one, and how often: the best median counts
N_RETRAINED = 8  # labels that networks and trees are trained without: half the strongest, half at random
SEEDS = 6  # of trees that are grown anew
N_DELETED, N_CHECKED, SURE = 5, 4, 0.7  # labels taken from an alert, and alerts of each model in CHECKED, from SURE on
CHECKED = ("trees", "gcn")
COLUMNS = ("count", "mean", "least", "most", "spread", "below 0", "days")  # of a user's ratings, see detection/sets.py


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    out = work()
    return time.process_time() - started, out


def by_clock(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    out = work()
    return time.perf_counter() - started, out


def speed(outcome: Outcome, folder: Path) -> tuple[dict[str, float], Tensor]:
    """Returns seconds of a run that is loaded from its folder, and its likeliest alerts.

    By the clock: to load it with its graph, the first alert, the likeliest alerts together. One alert alone of a run
    that is loaded anew, also in processor time: the first ten that are asked for, and later.
    """
    outcome.save(folder)
    graph = dataclasses.replace(outcome.graph, trusted=True)  # another object: nothing of the training is kept with it
    saved, asked = calirare.load(folder), outcome.review()[:1]
    prepare, explainer = by_clock(lambda: calirare.load(folder).explainer(graph))
    first, _ = by_clock(lambda: saved.explain(asked, explainer=explainer))
    together, found = by_clock(lambda: saved.explain(top=N_ALERTS, explainer=explainer))
    nodes = torch.tensor([each.node for each in found])
    explainer = calirare.load(folder).explainer(graph)
    explainer.explain(nodes[-1:])
    alone, on_wall = np.zeros((N_PASSES, N_SINGLE)), np.zeros((N_PASSES, N_SINGLE))
    for place in np.ndindex(alone.shape):
        node = nodes[place[1] * len(nodes) // N_SINGLE + place[0]]
        started = time.perf_counter()
        alone[place] = seconds(lambda node=node: explainer.explain(node[None]))[0]
        on_wall[place] = time.perf_counter() - started
    facts = {"prepare_s": prepare, "first_s": first, "alerts": len(found), "alerts_s": together}
    medians = [np.median(each, 1) for each in (alone, on_wall)]
    one = {f"{name}_s": float(each.min()) for name, each in zip(("one", "one_wall"), medians, strict=True)}
    early = {"early_wall_s": float(medians[1][0]), "load": os.getloadavg()[0]}
    return facts | one | early | {"edges": sum(len(each.edges) for each in found)}, nodes


def chosen_labels(effects: Tensor, seed: int) -> Tensor:
    """Returns places of labels: the strongest over all nodes, and others at random."""
    order = effects.abs().mean(0).argsort(descending=True)
    half = N_RETRAINED // 2
    rest = order[half:][torch.randperm(order.numel() - half, generator=torch.Generator().manual_seed(seed))]
    return torch.cat([order[:half], rest[: N_RETRAINED - half]])


def correlation(estimate: Tensor, truth: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([estimate.flatten(), truth.flatten()]))[0, 1])


def of_network(fitted: GcnFit, graph: Graph, nodes: Tensor, seed: int) -> dict[str, float]:
    """Returns how label effects agree with retraining: of the network trained on to a minimum, as retraining starts."""
    minimum, _ = converge(fitted, graph, tolerance=1e-6, max_steps=600)
    model = explainable(minimum, graph)
    base = difference(model.logits(nodes))
    change = difference(model.without_each_label(nodes)) - base
    places = chosen_labels((torch.sigmoid(base) - torch.sigmoid(base + change)).T, seed)
    spent, truth = seconds(lambda: leave_one_out(minimum, graph, Retrain(max_steps=200, chosen=places), nodes=nodes))
    return compared(base, change[places], truth.change[:, 0].T) | {"retrain_s_per_label": spent / len(places)}


def compared(base: Tensor, estimate: Tensor, truth: Tensor) -> dict[str, float]:
    """Returns correlations of changes of the log-odds [s, n], and of P(rare)."""
    p = torch.sigmoid(base)
    points = [p - torch.sigmoid(base + change) for change in (estimate, truth)]
    return {"correlation_log_odds": correlation(estimate, truth), "correlation": correlation(*points)}


def of_trees(fitted: TreesFit, graph: Graph, nodes: Tensor, seed: int) -> dict[str, float]:
    """Returns the same of trees that are grown anew without each label, bags and splits too, over some seeds."""
    kind = fitted.trees.all_labels.kind

    def grown(labels: Tensor, weights: Tensor, number: int) -> TreesFit:
        given = {"rounds": fitted.trees.rounds, "patience": 0, "folds": 2, "columns": fitted.columns}
        return TreesTraining(kind=kind, seed=seed + number, **given).fit(graph, labels, sample_weights=weights)

    every = torch.arange(fitted.nodes.numel())
    whole = [grown(fitted.nodes, fitted.sample_weights, number) for number in range(SEEDS)]
    models = [explainable(each, graph) for each in whole]
    base = torch.stack([difference(model.logits(nodes)) for model in models])
    change = torch.stack([difference(model.without_each_label(nodes)) for model in models]).mean(0) - base.mean(0)
    p = torch.sigmoid(base.mean(0))
    places = chosen_labels((p - torch.sigmoid(base.mean(0) + change)).T, seed)
    truth = []
    for place in places:
        kept = every[every != place]
        without = [grown(fitted.nodes[kept], fitted.sample_weights[kept], number) for number in range(SEEDS)]
        truth.append(torch.stack([difference(each.logits_of(graph, nodes)) for each in without]) - base)
    every_seed = torch.stack(truth)  # [labels, seeds, nodes]
    halves = [(p - torch.sigmoid(base.mean(0) + every_seed[:, half::2].mean(1))) for half in (0, 1)]
    return compared(base.mean(0), change[places], every_seed.mean(1)) | {"halves_of_truth": correlation(*halves)}


def of_spreading(fitted: LabelPropagationFit, graph: Graph, nodes: Tensor, seed: int) -> dict[str, Any]:
    """Returns the same of labels that are spread anew without each, reach and prior as they were; of nodes reached."""
    model, step = ExplainablePropagation(fitted, graph), scipy_of_csr(propagation_step(graph)).astype(np.float64)
    base = difference(model.logits(nodes))
    change = difference(model.without_each_label(nodes)) - base
    lost = torch.sigmoid(base) - torch.sigmoid(base + change)
    places, truth = chosen_labels(lost.nan_to_num(nan=0.0).T, seed), []
    for place in places:
        walks, reached = np.zeros((graph.n_nodes, 2)), np.zeros((len(nodes), 2))
        weights = torch.where(torch.arange(fitted.nodes.numel()) == place, 0.0, fitted.sample_weights.double())
        walks[fitted.nodes.numpy(), fitted.targets.numpy()] = weights.numpy()
        for taken in range(1, STEPS + 1):
            walks = step @ walks
            reached += fitted.reach**taken * walks[nodes.numpy()]
        truth.append(difference(fitted.logits(torch.from_numpy(reached))) - base)
    found, wanted = change[places], torch.stack(truth)
    finite = found.isfinite() & wanted.isfinite()
    if not found[finite].numel():
        return {"correlation_log_odds": None, "correlation": None}  # no label reaches any of these nodes
    return compared(base.expand_as(found)[finite], found[finite], wanted[finite])


def without(graph: Graph, nodes: Tensor) -> Graph:
    """Returns the graph with some labels gone."""
    assert graph.y is not None
    assert graph.split is not None
    y = graph.y.clone()
    y[nodes] = -1
    train, val = (part[~torch.isin(part, nodes)] for part in (graph.split.train, graph.split.val))
    return dataclasses.replace(graph, y=y, split=Split(train, val, graph.split.test, "without"), trusted=True)


def deletion(graph: Graph, model: str, seed: int) -> dict[str, Any]:
    """Returns what P(rare) of the weakest alerts becomes in a new run without their labels, and without others."""
    outcome, rows = calirare.train(graph, model=model, seed=seed), []
    explainer = outcome.explainer
    assert graph.y is not None
    asked = (graph.y < 0).nonzero().flatten()
    p = explainer.p_rare(asked)
    weakest = asked[p >= SURE][p[p >= SURE].argsort()][:N_CHECKED]
    for node in weakest:
        effects = explainer.label_effects(node[None])[0]
        strongest = effects.argsort(descending=True)[:N_DELETED]
        others = torch.randperm(effects.numel(), generator=torch.Generator().manual_seed(seed + int(node)))[:N_DELETED]
        p = float(explainer.p_rare(node[None]))
        foreseen = explainer.model.without_labels(node[None], [strongest])
        said = float(explainer.context.probabilities(foreseen)[0, 0, 1])
        after = {}
        for name, places in (("strongest", strongest), ("random", others)):
            other = calirare.train(
                without(graph, explainer.context.labelled[places]), model=outcome.settings.model, seed=seed
            )
            after[name] = float(other.probabilities("population")[node, 1])
        rows.append({"p": p, "foreseen": said, **after})
        print(rows[-1], flush=True)
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    return {"alerts": rows, "mean": mean}


def run_set(name: str) -> Iterator[dict[str, Any]]:
    """Yields what is found of a graph, after each part again with more."""
    task = SETS[name]()
    drawn = draw(task, "scarce", 0)
    graph, seed = drawn.seen, drawn.seed % 1000
    outcome = calirare.train(graph, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        facts, nodes = speed(outcome, Path(folder) / "run")
    print(name, graph, facts, flush=True)
    mapped = graph if outcome.mapped is None else outcome.mapped
    members = {}
    for member in outcome.fit.members:
        fitted = member.fitted
        if isinstance(fitted, FoldedNetwork):
            own = of_network(fitted.network, mapped, nodes, seed)
        elif isinstance(fitted, LabelPropagationFit):
            own = of_spreading(fitted, mapped, nodes, seed)
        else:
            own = of_trees(fitted, mapped, nodes, seed)
        members[member.name] = {"weight": member.weight} | own
        print(name, member.name, members[member.name], flush=True)
    size = {"nodes": graph.n_nodes, "edges": graph.n_edges // 2, "labels": int(outcome.fit.nodes.numel())}
    found = size | {"speed": facts, "labels_against_retraining": members, "deletion": {}}
    yield found
    for model in CHECKED:
        found["deletion"][model] = deletion(graph, model, seed)
        yield found


def graph_of(name: str) -> tuple[Graph, int]:
    """Returns a graph with its few labels, and a seed."""
    if name == MILLION:
        whole = synthetic_rare(1_000_000, n_features=16)
        assert whole.y is not None
        return whole.with_split(Split.random(whole.y, label_rate=20, n_val=160)), 0
    drawn = draw(SETS[name](), "scarce", 0)
    return drawn.seen, drawn.seed % 1000


def measure_speed(names: list[str]) -> None:
    """Writes seconds of each graph into explain_speed.json, those of the others as they were."""
    path = record.RESULTS / f"{NAME}_speed.json"
    kept = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in names:
        graph, seed = graph_of(name)
        with tempfile.TemporaryDirectory() as folder:
            facts, _ = speed(calirare.train(graph, seed=seed), Path(folder) / "run")
        kept[name] = {"nodes": graph.n_nodes, "edges": graph.n_edges // 2, "speed": facts}
        print(name, facts, flush=True)
        print(record.write(f"{NAME}_speed", kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, MILLION], default=list(DEFAULT))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--example", action="store_true")
    options = parser.parse_args()
    if options.page:
        print(explain_page.write())
        return
    if options.example:
        drawn = draw(SETS["otc"](), "scarce", 0)
        names = [f"{side} {what}" for side in ("given", "received") for what in COLUMNS]
        named = dataclasses.replace(drawn.seen, feature_names=tuple(names), trusted=True)
        print(explain_page.write_example(named, drawn.seed % 1000))
        return
    path = record.RESULTS / f"{NAME}.json"
    kept = json.loads(path.read_text())["results"] if path.exists() else {}
    if options.speed:
        measure_speed(options.sets)
        return
    torch.set_num_threads(1)
    for name in options.sets:
        if name not in kept or options.again:
            for found in run_set(name):
                print(record.write(NAME, kept | {name: found}))
            kept[name] = found


if __name__ == "__main__":
    main()
