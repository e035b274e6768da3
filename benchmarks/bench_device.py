"""Whole jobs on the CPU and on a GPU of one machine: training, and the jackknife of every node.

    python benchmarks/bench_device.py [--sets cora dblp facebook million labels] [--epochs 200] [--repeats 5]

A network of the paper (two layers, 16 hidden units) is trained on each device without dropout, whose draws differ, and
one network's jackknife is made on both: intervals, uncertainty and leave-one-out logits, whose largest difference is
told. Medians of wall-clock time, a first run of each not counted. Simulated nodes have 16 directed edges and 128
features each: `million` of them with 200 labels, `labels` 4,000 on 200,000. Writes results/device_<gpu>.json.
"""

from __future__ import annotations

import argparse
import copy
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import record
import torch

from calirare.datasets import load_dataset, synthetic_rare
from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare.leave_one_out import JackknifeResult, jackknife
from calirare.models import GcnFit, GcnTraining, fit, fit_of

COMPARED = ("lower", "upper", "uncertainty", "own_loo_logits")
DEVICES = (torch.device("cpu"), torch.device("cuda"))
SIMULATED = {"million": (1_000_000, 100), "labels": (200_000, 2_000)}  # nodes, labels of each class
LONG = 4.0  # seconds: what takes longer is timed once
FEW = 5  # epochs of the run that is not counted


def graph_named(name: str) -> Graph:
    if name in SIMULATED:
        n_nodes, label_rate = SIMULATED[name]
        graph = synthetic_rare(n_nodes, mean_degree=16, n_features=128)
        assert graph.y is not None
        return replace(graph, split=Split.random(graph.y, label_rate=label_rate))
    return load_dataset(name, split="random" if name == "facebook" else None)


def timed(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Returns median and minimum of the seconds that a call takes until the device has ended it."""

    def once() -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    seconds = [once()]
    while seconds[0] < LONG and len(seconds) < repeats:
        seconds.append(once())
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "repeats": len(seconds)}


def on(device: torch.device, graph: Graph, trained: GcnFit) -> GcnFit:
    """Returns the network on another device, with a copy of the graph there."""
    model = copy.deepcopy(trained.model).to(device)
    return fit_of(model, graph, trained.nodes.to(device), class_weight="balanced", weight_decay=trained.weight_decay)


def compare(name: str, epochs: int, repeats: int) -> dict[str, Any]:
    """Returns times of both devices, and how far apart their numbers are."""
    here = graph_named(name)
    assert here.split is not None
    settings = GcnTraining(epochs=epochs, dropout=0.0)
    trained = fit(here, here.split.train, settings)
    found: dict[str, Any] = {"nodes": here.n_nodes, "entries": here.adjacency.nnz, "labels": trained.nodes.numel()}
    results: list[JackknifeResult] = []
    for device in DEVICES:
        graph = here.to(device)
        moved = on(device, graph, trained)
        assert graph.split is not None
        train = graph.split.train
        fit(graph, train, replace(settings, epochs=FEW))
        results.append(jackknife(replace(moved), graph, uncertainty="midpoint"))  # a new fit: nothing is kept of it
        found[device.type] = {
            "training": timed(lambda graph=graph, train=train: fit(graph, train, settings), repeats),
            "jackknife": timed(
                lambda graph=graph, moved=moved: jackknife(replace(moved), graph, uncertainty="midpoint"), repeats
            ),
        }
    found["apart"] = {
        part: float((getattr(results[1], part).cpu() - getattr(results[0], part)).abs().max()) for part in COMPARED
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["cora", "dblp", "facebook", "million", "labels"])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench_device.py compares a GPU with the CPU, and torch finds no GPU here")
    results: dict[str, Any] = {}
    stem = re.sub(r"\W+", "_", torch.cuda.get_device_name()).strip("_").lower()
    for name in arguments.sets:
        results[name] = compare(name, arguments.epochs, arguments.repeats)
        for job in ("training", "jackknife"):
            cpu, gpu = (results[name][kind][job]["median_s"] for kind in ("cpu", "cuda"))
            print(f"{name:<10} {job:<9} CPU {cpu:.4f} s, GPU {gpu:.4f} s: {cpu / gpu:.1f}x", flush=True)
        print(f"{name:<10} apart: {results[name]['apart']}", flush=True)
        print(record.write(f"device_{stem}", results))


if __name__ == "__main__":
    main()
