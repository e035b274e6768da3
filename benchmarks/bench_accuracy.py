"""Leave-one-out methods against true retraining: converged networks, and networks stopped early with dropout.

    python benchmarks/bench_accuracy.py [--datasets cora ..] [--seeds 3] [--nodes 30] [--early] [--keep FOLDER]
    python benchmarks/bench_accuracy.py --networks gat gin sage --datasets digits --nodes 20
    python benchmarks/bench_accuracy.py --ceiling

Each of the nodes is left out by retraining in float64; the change of its own logit and of 1,000 test nodes' logits is
compared with what each method foresees. --early judges networks after 200 epochs with dropout .5 with the damping that
makes leave-one-out loss agree with cross-validated loss, which looks at no retraining; the truth there is Adam training
with the same seed without the node. --networks judges GAT, GIN and GraphSAGE of PyTorch Geometric's layers, converged.
--ceiling asks what linearised logits lose by themselves: J (theta_-i - theta) with theta_-i from retraining itself.
Writes benchmarks/results/jackknife_accuracy[_early|_networks|_ceiling].json; data sets that are not run keep their
numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import record
import torch

from calirare.datasets import load_dataset
from calirare.graph.graph import Graph
from calirare.leave_one_out import ALO, LooResult, OwnLogits, choose_damping
from calirare.leave_one_out.formula import primal_directions
from calirare.models import GcnFit, GcnTraining, ModuleFit, converge, cross_fitted_logits, fit, fit_of, minimise
from calirare_lab.leave_one_out import DEFAULT_METHODS, MAX_STEPS, TOLERANCE, agreement_of, compare

HIDDEN, HEADS = {"gat": 8, "gin": 16, "sage": 16}, 8  # of gat's first layer


class TwoLayers(torch.nn.Module):
    """Two layers of PyTorch Geometric."""

    def __init__(self, kind: str, d: int, k: int) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv, GINConv, SAGEConv

        hidden = HIDDEN[kind]
        self.first, self.second = {
            "gat": lambda: (GATConv(d, hidden, heads=HEADS), GATConv(HEADS * hidden, k)),
            "gin": lambda: (GINConv(perceptron(d, hidden, hidden)), GINConv(perceptron(hidden, hidden, k))),
            "sage": lambda: (SAGEConv(d, hidden), SAGEConv(hidden, k)),
        }[kind]()

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edges)), edges)


def perceptron(d: int, hidden: int, k: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(d, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, k))


def load(name: str, seed: int) -> Graph:
    return load_dataset(name, split="random" if name == "facebook" else None, seed=seed)


def converged(name: str, seed: int, n_nodes: int, keep: Path | None) -> dict[str, Any]:
    graph = load(name, seed)
    assert graph.split is not None
    started = time.perf_counter()
    settings = GcnTraining(seed=seed, dropout=0.0)
    trained, end = settings.fit_to_convergence(graph, graph.split.train, tolerance=1e-6, max_steps=1500)
    seconds = time.perf_counter() - started
    chosen = drawn(trained, seed, n_nodes)
    folder = None if keep is None else keep / f"{name}_{seed}"
    found = compare(trained, graph, chosen, graph.split.test, folder=folder)
    return {
        "seed": seed,
        "loss": end.loss,
        "gradient_norm": end.gradient_norm,
        "steps": end.steps,
        "fit_seconds": seconds,
        "retrain_seconds": found.retrain_seconds,
        "methods": {row.method: {k: v for k, v in vars(row).items() if k != "method"} for row in found.rows},
    }


def network(name: str, kind: str, seed: int, n_nodes: int, keep: Path | None) -> dict[str, Any]:
    graph = load(name, seed)
    assert graph.split is not None
    started = time.perf_counter()
    torch.manual_seed(seed)
    start = fit_of(TwoLayers(kind, graph.n_features, graph.n_classes), graph, class_weight="balanced")
    trained, end = converge(start, tolerance=1e-6, max_steps=600)
    seconds = time.perf_counter() - started
    chosen = drawn(trained, seed, n_nodes)
    folder = None if keep is None else keep / f"{name}_{kind}_{seed}"
    methods = {name: DEFAULT_METHODS[name] for name in ("alo", "alo, 10 steps", "influence, ggn")}
    found = compare(trained, None, chosen, graph.split.test, methods, folder=folder)
    return {
        "seed": seed,
        "parameters": trained.linearisation.n_parameters,
        "loss": end.loss,
        "gradient_norm": end.gradient_norm,
        "steps": end.steps,
        "fit_seconds": seconds,
        "retrain_seconds": found.retrain_seconds,
        "methods": {row.method: {k: v for k, v in vars(row).items() if k != "method"} for row in found.rows},
    }


def ceiling(name: str, seed: int, n_nodes: int) -> dict[str, Any]:
    graph = load(name, seed)
    assert graph.split is not None
    settings = GcnTraining(seed=seed, dropout=0.0)
    trained, end = settings.fit_to_convergence(graph, graph.split.train, tolerance=1e-6, max_steps=1500)
    chosen, tape = drawn(trained, seed, n_nodes), trained.linearisation
    there = trained.evaluation_field(graph, graph.split.test)
    retrained = torch.stack([without(trained, i) for i in chosen.tolist()]) - trained.theta
    step = primal_directions(tape, trained.weight_decay)[0][chosen]
    everywhere, own = (full_change(trained, field, retrained) for field in (there, trained.field))
    rows = {}
    for title, directions, change in (
        ("linearised, retrained parameters", retrained, tape.change_along),
        ("linearised, alo's parameters", step, tape.change_along),
        ("full forward, alo's parameters", step, partial(full_change, trained)),
    ):
        at_own = change(trained.field, directions)[chosen].diagonal(dim1=0, dim2=2)
        here = agreement_of(at_own, own[chosen].diagonal(dim1=0, dim2=2))
        away = agreement_of(change(there, directions), everywhere)
        names = ("correlation", "slope", "relative_error", "elsewhere_correlation", "elsewhere_error")
        rows[title] = dict(zip(names, (*here, away[0], away[2]), strict=True))
    same = agreement_of(step, retrained)[0]
    return {"seed": seed, "gradient_norm": end.gradient_norm, "correlation_of_parameters": same, "methods": rows}


def full_change(trained: GcnFit, field: Any, directions: torch.Tensor) -> torch.Tensor:
    """Returns z(theta + v) - z(theta) of the network evaluated at each of the directions [b, p], [n, k - 1, b]."""
    moved, start, changes = trained.copy(), trained.logits_at(field), []
    for direction in directions.to(trained.theta):
        moved.move_to(trained.theta + direction)
        changes.append(differences(moved.logits_at(field) - start))
    return torch.stack(changes, 2)


def without(trained: GcnFit, left_out: int) -> torch.Tensor:
    """Returns the parameters [p] after retraining without one label."""
    weights = trained.sample_weights.clone()
    weights[left_out] = 0.0
    retrained = trained.copy(sample_weights=weights)
    minimise(retrained, tolerance=TOLERANCE, max_steps=MAX_STEPS, warm=True)
    return retrained.theta


def drawn(trained: GcnFit | ModuleFit, seed: int, n_nodes: int) -> torch.Tensor:
    return torch.randperm(trained.nodes.numel(), generator=torch.Generator().manual_seed(seed))[:n_nodes].sort().values


def early(name: str, seed: int, n_nodes: int) -> dict[str, Any]:
    graph = load(name, seed)
    assert graph.split is not None
    settings = GcnTraining(seed=seed)
    nodes = graph.split.train
    trained = fit(graph, nodes, settings)
    tape = trained.linearisation
    held = cross_fitted_logits(graph, nodes, settings)
    judges = torch.ones(nodes.numel(), dtype=torch.bool)
    agreed = choose_damping(OwnLogits(tape), settings.weight_decay, held, judges, trained.sample_weights)
    chosen = drawn(trained, seed, n_nodes)
    truth = retrained_early(graph, trained, settings, chosen)
    mu = settings.weight_decay
    methods = {
        "alo, mu": ALO(),
        "alo, 2 mu": ALO(damping=2 * mu),
        "alo, agreed damping": ALO(damping=agreed.damping),
        "influence, ggn": DEFAULT_METHODS["influence, ggn"],
        "official": DEFAULT_METHODS["official"],
        "paper": DEFAULT_METHODS["paper"],
    }
    found = compare(trained, graph, chosen, graph.split.test, methods, truth=truth)
    rows = {row.method: {k: v for k, v in vars(row).items() if k != "method"} for row in found.rows}
    return {"seed": seed, "agreement": dataclasses.asdict(agreed), "methods": rows}


def retrained_early(graph: Graph, trained: GcnFit, settings: GcnTraining, chosen: torch.Tensor) -> LooResult:
    """The same 200 epochs with the same seed and dropout, one label's weight at 0."""
    assert graph.split is not None
    with torch.no_grad():
        before = differences(trained.model(graph, graph.split.test))
        own_before = differences(trained.model(trained.field))
    change, own = [], torch.full_like(own_before, float("nan"))
    for i in chosen.tolist():
        weights = trained.sample_weights.clone()
        weights[i] = 0.0
        without = settings.fit(graph, trained.nodes, sample_weights=weights)
        with torch.no_grad():
            change.append(differences(without.model(graph, graph.split.test)) - before)
            own[i] = differences(without.model(trained.field))[i] - own_before[i]
    return LooResult(torch.stack(change, 2), own, torch.zeros(0), settings.weight_decay)


def differences(z: torch.Tensor) -> torch.Tensor:
    return z[:, 1:] - z[:, :1]


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median over the seeds of each method's numbers."""
    keys = ("correlation", "slope", "relative_error", "elsewhere_correlation", "elsewhere_error")
    return {
        name: {key: statistics.median(run["methods"][name][key] for run in runs) for key in keys}
        for name in runs[0]["methods"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "facebook"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--networks", nargs="+", choices=HIDDEN, default=[])
    parser.add_argument("--keep", type=Path, help="folder for finished retrainings: a second run takes them up")
    arguments = parser.parse_args()
    asked = {"_networks": arguments.networks, "_early": arguments.early, "_ceiling": arguments.ceiling}
    stem = "jackknife_accuracy" + next((suffix for suffix, wanted in asked.items() if wanted), "")
    path = record.RESULTS / f"{stem}.json"
    known = json.loads(path.read_text(encoding="utf-8"))["results"]["datasets"] if path.is_file() else {}
    results: dict[str, Any] = {"nodes": arguments.nodes, "early": arguments.early, "datasets": known}
    for name, kind in product(arguments.datasets, arguments.networks or [None]):
        runs = []
        for seed in range(arguments.seeds):
            if kind is not None:
                runs.append(network(name, kind, seed, arguments.nodes, arguments.keep))
            elif arguments.early or arguments.ceiling:
                runs.append((early if arguments.early else ceiling)(name, seed, arguments.nodes))
            else:
                runs.append(converged(name, seed, arguments.nodes, arguments.keep))
            for method, row in runs[-1]["methods"].items():
                shown = ("correlation", "relative_error", "elsewhere_correlation")
                numbers = " ".join(f"{key} {row[key]:.3f}" for key in shown)
                print(f"{name} {kind or 'gcn'} seed {seed} {method:<22} {numbers}", flush=True)
        key = name if kind is None else f"{name}, {kind}"
        results["datasets"][key] = {"commit": record.environment()["commit"], "median": summary(runs), "runs": runs}
        print(record.write(stem, results))


if __name__ == "__main__":
    main()
