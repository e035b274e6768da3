"""Plain training: 200 epochs of `calirare.models.gcn_fit.fit` beside full-graph PyG GCNConv, from the same weights.

    python benchmarks/bench_training.py [--datasets facebook cora] [--threads 2] [--repeats 5] [--epochs 200]

Dropout is off, so both loss curves must agree to rounding; that is checked before a time is printed. Ours counts from
an unprepared graph (A_hat, A_hat X and the receptive field are made inside the timed call); PyG's normalised adjacency
and features are made beforehand, and it takes whichever of its two forms is faster: edge_index, or torch-sparse's
SparseTensor where that is installed. Writes benchmarks/results/training_speed.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import record
import torch
from torch import Tensor

from calirare.datasets import load_dataset
from calirare.graph.features import normalize_features
from calirare.graph.graph import Graph
from calirare.models import GCN, GcnTraining, class_weights, cross_entropy, fit
from calirare_ext import Csr

RATE = {"lr": 0.01, "weight_decay": 5e-4}


def adjacencies(graph: Graph) -> dict[str, Any]:
    """Returns what GCNConv may be given as a graph, normalised beforehand: arguments of its call."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    found: dict[str, Any] = {"edge_index": gcn_norm(graph.to_data().edge_index, None, graph.n_nodes)}
    try:
        from torch_sparse import SparseTensor
    except ImportError:
        return found
    (target, source), weight = found["edge_index"]
    found["SparseTensor"] = (SparseTensor(row=source, col=target, value=weight, sparse_sizes=(graph.n_nodes,) * 2),)
    return found


def full_graph(graph: Graph, nodes: Tensor, adjacency: Any, settings: GcnTraining) -> Callable[[], list[float]]:
    """Returns a training on the whole graph with PyG's layers; it returns the losses."""
    from torch_geometric.nn import GCNConv

    x = normalize_features(graph).x
    dense = x.to_dense() if isinstance(x, Csr) else x
    assert graph.y is not None
    targets = graph.y[nodes]
    weights = class_weights(targets, 2)[targets].to(dense)

    def train() -> list[float]:
        draw = torch.Generator().manual_seed(settings.seed)
        start = GCN(graph.n_features, 2, hidden=settings.hidden, dropout=0.0, generator=draw)
        layers = [GCNConv(*weight.shape, normalize=False) for weight in start.weights]
        with torch.no_grad():
            for layer, weight in zip(layers, start.weights, strict=True):
                layer.lin.weight.copy_(weight.T)
        optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], **RATE)
        losses = []
        for _ in range(settings.epochs):
            optimiser.zero_grad()
            logits = layers[1](torch.relu(layers[0](dense, *adjacency)), *adjacency)
            loss = cross_entropy(logits[nodes], targets, weights)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return train


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(name: str, repeats: int, settings: GcnTraining) -> dict[str, Any]:
    graph = load_dataset(name, split="random" if name == "facebook" else None)
    assert graph.split is not None
    nodes = graph.split.train

    def ours() -> list[float]:
        new = dataclasses.replace(graph, trusted=True)  # nothing is kept of it yet
        return list(fit(new, nodes, settings).losses)

    works: dict[str, Callable[[], list[float]]] = {"calirare": ours}
    for form, adjacency in adjacencies(graph).items():
        works[f"pyg {form}"] = full_graph(graph, nodes, adjacency, settings)
    curves = {name: torch.tensor(work(), dtype=torch.float64) for name, work in works.items()}
    apart = {name: float((curve - curves["calirare"]).abs().max()) for name, curve in curves.items()}
    if not max(apart.values()) < 1e-4:
        raise SystemExit(f"{name}: loss curves differ: {apart}")
    samples: dict[str, list[float]] = {form: [] for form in works}
    for _ in range(repeats):
        for form, work in works.items():
            samples[form].append(timed(work))
    times = {
        form: {"median_s": statistics.median(s), "min_s": min(s), "repeats": repeats} for form, s in samples.items()
    }
    rival = min((form for form in times if form != "calirare"), key=lambda form: times[form]["median_s"])
    return {
        "nodes": graph.n_nodes,
        "labels": nodes.numel(),
        "epochs": settings.epochs,
        "times": times,
        "fastest_rival": rival,
        "speedup": times[rival]["median_s"] / times["calirare"]["median_s"],
        "speedup_over_edge_index": times["pyg edge_index"]["median_s"] / times["calirare"]["median_s"],
        "largest_difference_of_losses": apart,
        "first_and_last_loss": [float(curves["calirare"][0]), float(curves["calirare"][-1])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["facebook", "cora"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = {}
    for name in arguments.datasets:
        found[name] = compare(name, arguments.repeats, GcnTraining(epochs=arguments.epochs, dropout=0.0))
        times = {form: round(t["median_s"], 3) for form, t in found[name]["times"].items()}
        print(f"{name}: {found[name]['speedup']:.1f}x {found[name]['fastest_rival']}, seconds {times}", flush=True)
    print(record.write("training_speed", found))


if __name__ == "__main__":
    main()
