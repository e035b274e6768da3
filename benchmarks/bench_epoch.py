"""One epoch of a GCN beside its floor and a PyG loop with torch.sparse, on sparse words and dense columns.

    python benchmarks/bench_epoch.py [--graphs cora ...] [--threads 2] [--repeats 5] [--epochs 40] [--clock cpu]

An epoch is one step of `GcnTraining.fit` (forward, loss, backward, Adam; dropout off) on all labels of the split's
training and validation parts, each timed by its progress call; samples of all contenders take turns. Orders of
products: "auto" as shipped, "propagated" (A_hat X) W. `floor` is the products alone, in each order by its fastest
kernel into buffers made before, and the least of the orders: X W or (A_hat X) W, both propagations, forward and
backward, nothing element by element, no Adam. `bare` is the floor's order with the element-wise work written by hand:
ReLU, softmax, gradients, one fused Adam call. The PyG loop is two GCNConv on the whole graph with a normalised torch
CSR adjacency and dense features. The first losses of all must agree before a time is taken.

"folds" are five-fold cross-validation beside one training of as many epochs, "jobs" what a run takes for its check
(networks of folds with the epochs that were chosen, own logits, choice of damping) beside its training, which looks for
these epochs and goes on beyond them. "words" are times of a
multiply-add of a dense and of a sparse product (`calirare.graph.convolution.DENSE_COST`), and of X W for sparse X
beside MKL (torch CSR) and SciPy, both in the same run. Writes results/epoch.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import record
import torch
from bench_propagate import mkl, scipy
from torch import Tensor

import calirare
from calirare.datasets import load_dataset
from calirare.graph import Graph, Order, normalize_features, propagation
from calirare.models import GcnTraining, class_weights, cross_entropy, cross_fitted_logits
from calirare.run.stages import Clock
from calirare_ext import (
    Csr,
    Factored,
    Inputs,
    as_dense,
    as_matrix,
    cut,
    prepare,
    propagate,
    times,
    turned_times,
)
from calirare_lab.published import data_roots

GRAPHS = ("cora", "citeseer", "dblp", "facebook", "facebook_bag", "amazon_computers", "sichuan")
FILES = {"amazon_computers": ("amazon_computers.npz", 9), "sichuan": ("fraud/sichuan.npz", 1)}
PARTS = ("epochs", "folds", "jobs", "words")
HIDDEN, CLASSES, CHECKED = 16, 2, 5
AGREE = 1e-3  # of the first losses, relative: float32 in different orders, over a few steps
MOST_DENSE = 2**29  # bytes of a dense matrix that is made for comparison only

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
CLOCK = time.perf_counter

Work = Callable[[], Any]


def graph_of(name: str) -> Graph:
    if name not in FILES:
        return load_dataset(name, split="random" if name.startswith("facebook") else None)
    file, minority = FILES[name]
    root = next(root for root in data_roots() if (root / file).exists())
    return load_dataset(root / file, rare_class=minority)


def labels_of(graph: Graph) -> Tensor:
    assert graph.split is not None
    return torch.cat([graph.split.train, graph.split.val])


def alternately(works: dict[str, Work], repeats: int) -> dict[str, dict[str, float]]:
    """Returns median, least and largest seconds of each, taking turns; a sample lasts at least a few milliseconds."""
    calls = {}
    for name, work in works.items():
        work()
        begin = CLOCK()
        work()
        calls[name] = max(1, int(0.005 / max(CLOCK() - begin, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begin = CLOCK()
            for _ in range(calls[name]):
                work()
            samples[name].append((CLOCK() - begin) / calls[name])
    return {
        name: {"median_s": statistics.median(s), "least_s": min(s), "most_s": max(s)} for name, s in samples.items()
    }


def training_of(order: Order, epochs: int) -> GcnTraining:
    return GcnTraining(order=order, epochs=epochs, dropout=0.0, hidden=HIDDEN)


def epoch_seconds(graph: Graph, nodes: Tensor, order: Order, epochs: int) -> float:
    """Returns the median time of an epoch of one training, after the first half of them."""
    stamps: list[float] = []
    training_of(order, 2 * epochs).fit(graph, nodes, progress=lambda _: stamps.append(CLOCK()))
    half = stamps[epochs:]
    return statistics.median(b - a for a, b in itertools.pairwise(half))


def orders(graph: Graph, nodes: Tensor) -> tuple[dict[str, Inputs], Csr]:
    """Returns what the first layer may read, by the name of the order, and the second layer's block."""
    kept = propagation(graph, 1, "propagated")
    field = kept.field(nodes, 2)
    found: dict[str, Inputs] = {"propagated": field.features}
    x = normalize_features(graph).x
    if isinstance(x, Csr):
        block, columns = cut(kept.a_hat, field.rows[0])
        found["factors"] = Factored(block, x.select_rows(columns))
        r, d = field.features.shape
        if isinstance(field.features, Csr) and 4 * r * d <= MOST_DENSE:
            found["dense"] = as_dense(field.features)
    return found, field.blocks[0]


def turned(inputs: Inputs, delta: Tensor) -> Tensor:
    """Returns inputs^T D, of dense inputs as (D^T inputs)^T, which takes a third of the time where they are tall."""
    return (delta.T @ inputs).T if isinstance(inputs, Tensor) else turned_times(inputs, delta)


def floor_of(inputs: Inputs, block: Csr) -> Work:
    """Returns the products of an epoch alone, in one order."""
    (r, d), m = inputs.shape, block.n_rows
    w1, hidden, top = torch.randn(d, HIDDEN), torch.randn(r, HIDDEN), torch.randn(m, HIDDEN)

    def work() -> None:
        times(inputs, w1)
        propagate(block, hidden)
        propagate(block.transpose(), top)
        turned(inputs, hidden)

    for _ in range(40):  # layouts are chosen by then
        work()
    return work


def bare_epoch(inputs: Inputs, block: Csr, targets: Tensor, weights: Tensor) -> Work:
    """Returns an epoch written by hand: products, element-wise work and one fused Adam call, no bookkeeping."""
    d = inputs.shape[1]
    parameters = [
        torch.randn(d, HIDDEN) / d**0.5,
        torch.zeros(HIDDEN),
        torch.randn(HIDDEN, CLASSES),
        torch.zeros(CLASSES),
    ]
    first, second = [torch.zeros_like(p) for p in parameters], [torch.zeros_like(p) for p in parameters]
    steps = [torch.zeros(()) for _ in parameters]
    share = (weights / targets.numel())[:, None]
    right = torch.nn.functional.one_hot(targets, CLASSES).float()
    rate = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "weight_decay": 5e-4, "eps": 1e-8}

    def work() -> None:
        w1, b1, w2, b2 = parameters
        hidden = times(inputs, w1).add_(b1).relu_()
        seen = propagate(block, hidden)
        z = torch.addmm(b2, seen, w2)
        delta = torch.softmax(z, 1).sub_(right).mul_(share)
        back = propagate(block.transpose(), delta @ w2.T).mul_(hidden > 0)
        gradients = [turned(inputs, back), back.sum(0), seen.T @ delta, delta.sum(0)]
        for step in steps:
            step.add_(1)
        torch._fused_adam_(parameters, gradients, first, second, [], steps, amsgrad=False, maximize=False, **rate)

    for _ in range(40):
        work()
    return work


def pyg_loop(graph: Graph, nodes: Tensor) -> tuple[Work, Callable[[int], list[float]]]:
    """Returns one epoch of two GCNConv on the whole graph, and what gives the first losses from our weights."""
    from torch_geometric.nn import GCNConv

    a = propagation(graph).a_hat
    adjacency = torch.sparse_csr_tensor(a.indptr, a.indices.long(), a.values, a.shape)
    dense = as_dense(normalize_features(graph).x)
    assert graph.y is not None
    targets = graph.y[nodes]
    weights = class_weights(targets, CLASSES)[targets].float()
    layers = [GCNConv(dense.shape[1], HIDDEN, normalize=False), GCNConv(HIDDEN, CLASSES, normalize=False)]
    start = training_of("auto", 1).network(graph.n_features, CLASSES)
    with torch.no_grad():
        for layer, weight in zip(layers, start.weights, strict=True):
            layer.lin.weight.copy_(weight.T)
    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.01, weight_decay=5e-4)

    def epoch() -> Tensor:
        optimiser.zero_grad()
        logits = layers[1](torch.relu(layers[0](dense, adjacency)), adjacency)
        loss = cross_entropy(logits[nodes], targets, weights)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return epoch, lambda epochs: [float(epoch()) for _ in range(epochs)]


def check(graph: Graph, nodes: Tensor, first_losses: list[float]) -> float:
    """Returns the largest relative difference of the first losses; ends the run where it is too large."""
    apart = 0.0
    for order in ("auto", "propagated"):
        ours = training_of(order, CHECKED).fit(graph, nodes).losses
        apart = max(apart, *(abs(a - b) / abs(b) for a, b in zip(ours, first_losses, strict=True)))
    if not apart < AGREE:
        raise SystemExit(f"{graph.name}: first losses differ by {apart:.2g} of themselves")
    return apart


def epochs_of(name: str, repeats: int, epochs: int) -> dict[str, Any]:
    graph = graph_of(name)
    nodes = labels_of(graph)
    assert graph.y is not None
    loop, first_losses = pyg_loop(graph, nodes)
    apart = check(graph, nodes, first_losses(CHECKED))
    forms, block = orders(graph, nodes)
    floors = alternately({form: floor_of(inputs, block) for form, inputs in forms.items()}, repeats)
    best = min(floors, key=lambda form: floors[form]["median_s"])
    targets = graph.y[nodes]
    bare = bare_epoch(forms[best], block, targets, class_weights(targets, CLASSES)[targets].float())
    samples: dict[str, list[float]] = {"auto": [], "propagated": [], "bare": [], "pyg": [], "floor": []}
    floor, rounds = floor_of(forms[best], block), max(3, repeats)
    for _ in range(rounds):
        samples["auto"].append(epoch_seconds(graph, nodes, "auto", epochs))
        samples["bare"].append(alternately({"bare": bare}, epochs)["bare"]["median_s"])
        samples["floor"].append(alternately({"floor": floor}, epochs)["floor"]["median_s"])
        samples["propagated"].append(epoch_seconds(graph, nodes, "propagated", max(3, epochs // 4)))
        samples["pyg"].append(alternately({"pyg": loop}, 3)["pyg"]["median_s"])
    taken = propagation(graph).field(nodes, 2).features
    median = {form: statistics.median(s) for form, s in samples.items()}
    return {
        "nodes": graph.n_nodes,
        "labels": nodes.numel(),
        "rows": block.n_cols,
        "features": graph.n_features,
        "taken": "factors" if isinstance(taken, Factored) else "sparse" if isinstance(taken, Csr) else "dense",
        "cheapest": best,
        "products_of_each_order": floors,
        "epoch_s": {form: {"median": median[form], "least": min(s), "most": max(s)} for form, s in samples.items()},
        "over_bare": median["auto"] / median["bare"],
        "over_floor": median["auto"] / median["floor"],
        "times_faster_than_propagated": median["propagated"] / median["auto"],
        "times_faster_than_pyg": median["pyg"] / median["auto"],
        "largest_difference_of_losses": apart,
    }


def folds_of(name: str, repeats: int, epochs: int) -> dict[str, Any]:
    """Returns times of five-fold cross-validation beside one training, with the dropout that is the default."""
    graph = graph_of(name)
    nodes = labels_of(graph)
    settings = GcnTraining(epochs=epochs, hidden=HIDDEN)
    one_by_one = GcnTraining(epochs=epochs, hidden=HIDDEN, order="propagated")
    taken = alternately(
        {
            "training": lambda: settings.fit(graph, nodes),
            "five folds": lambda: cross_fitted_logits(graph, nodes, settings),
            "five folds, one by one": lambda: cross_fitted_logits(graph, nodes, one_by_one),
        },
        repeats,
    )
    return taken | {"over_training": taken["five folds"]["median_s"] / taken["training"]["median_s"]}


def job_of(name: str) -> dict[str, float]:
    """Returns what `calirare train --model gcn` takes of its training, which looks for its epochs, and of its check."""
    taken, timed = dict[str, float](), Clock.time

    def of_stage(self: Clock, stage: str, work: Callable[[], Any]) -> Any:
        begin = CLOCK()
        out = timed(self, stage, work)
        taken[stage] = CLOCK() - begin
        return out

    with mock.patch.object(Clock, "time", of_stage):
        outcome = calirare.train(graph_of(name), model="gcn")
    parts = {"train_s": taken["train"], "check_s": taken["check"], "epochs": outcome.fit.epochs}
    return parts | {"check_over_training": taken["check"] / taken["train"]}


def words_of(name: str, repeats: int) -> dict[str, Any]:
    """Returns times of X W for sparse X: ours, MKL and SciPy, at three widths; and the cost of a dense multiply-add."""
    x = normalize_features(graph_of(name)).x
    assert isinstance(x, Csr)
    found: dict[str, Any] = {"shape": list(x.shape), "entries": x.nnz}
    for width in (16, 32, 64):
        w = torch.randn(x.n_cols, width)
        prepare(x, width)
        works: dict[str, Work] = {"ours": lambda w=w: propagate(x, w)}
        want = propagate(x, w).double()
        for rival in (mkl, scipy):
            for what, work, out in rival(x, w):
                work()
                if not float((out - want).abs().max()) <= 1e-4 * float(want.abs().max()):
                    raise SystemExit(f"{name}: {what} differs from ours")
                works[what] = work
        if 4 * x.n_rows * x.n_cols <= MOST_DENSE:
            dense = as_dense(as_matrix(x))
            works["dense"] = lambda dense=dense, w=w: dense @ w
        taken = alternately(works, repeats)
        ours = taken["ours"]["median_s"]
        found[str(width)] = taken | {"ratio": {k: t["median_s"] / ours for k, t in taken.items() if k != "ours"}}
        if "dense" in taken:
            share = x.nnz / (x.n_rows * x.n_cols)
            found[str(width)]["dense_cost"] = taken["dense"]["median_s"] / ours * share
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads, for a busy machine")
    parser.add_argument("--only", choices=PARTS, default=None)
    arguments = parser.parse_args()
    global CLOCK  # one for all that is timed
    CLOCK = CLOCKS[arguments.clock]
    torch.set_num_threads(arguments.threads)
    path = record.RESULTS / "epoch.json"
    kept = json.loads(path.read_text()) if arguments.only and path.exists() else {"results": {}}
    results, found = kept.pop("results"), {"clock": arguments.clock} | {part: {} for part in PARTS}
    if arguments.only:  # the rest stays as it was measured
        here = record.environment()
        found = results | {
            arguments.only: {},
            f"{arguments.only} by": {key: here[key] for key in ("commit", "command")},
        }
    for name in arguments.graphs:
        if arguments.only in (None, "epochs"):
            one = epochs_of(name, arguments.repeats, arguments.epochs)
            found["epochs"][name] = one
            took = {form: round(1000 * t["median"], 2) for form, t in one["epoch_s"].items()}
            print(
                f"{name}: {one['taken']}, {one['over_bare']:.2f} x bare, {one['over_floor']:.2f} x products, "
                f"{one['times_faster_than_propagated']:.1f} x propagated, {one['times_faster_than_pyg']:.1f} x PyG; "
                f"milliseconds {took}",
                flush=True,
            )
        if arguments.only in (None, "folds"):
            folds = found["folds"][name] = folds_of(name, max(3, arguments.repeats // 2), 5 * arguments.epochs)
            print(f"  five folds take {folds['over_training']:.2f} trainings", flush=True)
        if arguments.only in (None, "jobs"):
            job = found["jobs"][name] = job_of(name)
            print(f"  the check of a run takes {job['check_over_training']:.2f} of its training", flush=True)
        if arguments.only in (None, "words") and name not in ("facebook", "sichuan"):
            found["words"][name] = words_of(name, arguments.repeats)
            for width in ("16", "32", "64"):
                cell = found["words"][name][width]
                ratios = {k: round(v, 2) for k, v in cell["ratio"].items()}
                print(
                    f"  X W, {width} columns: ours 1, {ratios}, dense cost {cell.get('dense_cost', float('nan')):.3f}"
                )
    print(record.write("epoch", found, kept or None))


if __name__ == "__main__":
    main()
