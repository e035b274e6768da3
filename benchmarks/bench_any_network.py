"""Leave-one-out of networks of PyTorch Geometric, stopped by Adam, against training again without the label.

    python benchmarks/bench_any_network.py [--cells cora-sage-relu-140 ..] [--speed]

A cell is a graph, a network of two layers (16 hidden units, GAT 8 heads of 8), its activation and the number of labels.
It is trained for 200 epochs of Adam (rate .01, weight decay 5e-4, dropout .5), and again without each of six labels,
from the same random numbers. Changes of logit differences are compared at the label and at 100 test nodes. "Other
seeds" are the same retrainings from other random numbers: what retraining agrees to. The damping of ALO is chosen by
ten networks without a fold (`calirare.leave_one_out.choose_method`), again with other folds and random numbers.
Appends a line for each cell to results/any_network.jsonl, which is not run again, and writes results/any_network.json
and the tables of docs/own_model.md. --speed times own logits and influence.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import record
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

import calirare
from calirare.graph import normalize_features
from calirare.leave_one_out import ALO, OwnLogits, Tangent, choose_method, leave_one_out
from calirare_lab.leave_one_out import Steps, agreement_of

KINDS, GRAPHS = ("gcn", "sage", "gat", "gin"), ("cora", "citeseer", "dblp")
CELLS = (
    *("cora-sage-relu-140", "cora-gat-relu-140", "cora-gcn-relu-140", "cora-gin-relu-140"),
    *(f"{graph}-{kind}-relu-140" for graph in GRAPHS[1:] for kind in ("sage", "gat", "gcn", "gin")),
    *(f"cora-{kind}-elu-140" for kind in KINDS),
    *(f"cora-{kind}-relu-640" for kind in ("gcn", "sage", "gin")),
)
LEFT_OUT, ELSEWHERE, HIDDEN, HEADS = 6, 100, 16, 8
SEEDS, OTHER_SEEDS = {"cora-sage-relu-140": 5}, 2  # of the networks without folds; elsewhere as many as of the others
EPOCHS, RATE, DECAY, PENALTY = 200, 0.01, 5e-4, 1e-4
REPEATED = 3  # measurements of speed, of which the shortest counts
PAGE = record.ROOT / "docs" / "own_model.md"


class Network(nn.Module):
    """Two layers of PyTorch Geometric with dropout between them."""

    def __init__(self, kind: str, d: int, k: int, activation: str) -> None:
        super().__init__()
        self.activation = {"relu": nn.ReLU, "elu": nn.ELU}[activation]()
        self.first, self.second = {
            "gcn": lambda: (pyg.GCNConv(d, HIDDEN), pyg.GCNConv(HIDDEN, k)),
            "sage": lambda: (pyg.SAGEConv(d, HIDDEN), pyg.SAGEConv(HIDDEN, k)),
            "gat": lambda: (pyg.GATConv(d, 8, heads=HEADS), pyg.GATConv(8 * HEADS, k)),
            "gin": lambda: (pyg.GINConv(self._dense(d, HIDDEN)), pyg.GINConv(self._dense(HIDDEN, k))),
        }[kind]()
        self.dropout = nn.Dropout(0.5)

    def _dense(self, d: int, k: int) -> nn.Module:
        return nn.Sequential(nn.Linear(d, HIDDEN), type(self.activation)(), nn.Linear(HIDDEN, k))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.dropout(self.activation(self.first(x, edge_index))), edge_index)


class SparseDense(torch.autograd.Function):
    """X W^T of a constant sparse X."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, x_transposed: Tensor) -> Tensor:
        ctx.x_transposed = x_transposed
        return torch.sparse.mm(x, weight.T.contiguous())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return torch.sparse.mm(ctx.x_transposed, gradient.contiguous()).T, None, None


def sparse(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.to_sparse_csr(), x.T.contiguous().to_sparse_csr()


class Task:
    """A graph with labels, and how networks are trained on it: exact, on what the labels' logits read of it."""

    def __init__(self, cell: str) -> None:
        graph, self.kind, self.activation, n_labels = cell.split("-")
        self.kept = dict[Any, Network]()
        loaded = calirare.load_dataset(graph, split="random" if graph == "dblp" else None)
        y = torch.as_tensor(loaded.y if loaded.original_y is None else loaded.original_y)
        data = normalize_features(loaded).to_data()
        x = data.x / data.x.abs().sum(1, keepdim=True).clamp(min=1e-9)
        self.k, order = int(y.max()) + 1, torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        m = int(n_labels)
        each = -(-m // self.k)
        train = torch.cat([order[y[order] == c][:each] for c in range(self.k)])[:m] if m == 140 else order[:m]
        left = order[~torch.isin(order, train)]
        masks = [torch.zeros(len(y), dtype=torch.bool) for _ in range(3)]
        for mask, nodes in zip(masks, (train, left[:500], left[500:1500]), strict=True):
            mask[nodes] = True
        self.data = Data(x, data.edge_index, y=y, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])
        self.nodes, self.test = (masks[place].nonzero().flatten() for place in (0, 2))
        blank = Network(self.kind, x.shape[1], self.k, self.activation)
        hops = {"gcn": 3, "gat": 2}.get(self.kind, 1)  # what the labels' logits read; of means the first is constant
        near, self.edges, self.places, _ = k_hop_subgraph(
            self.nodes, hops, data.edge_index, relabel_nodes=True, num_nodes=len(y)
        )
        self.x, self.plain = x[near], sparse(x[near])
        if self.kind in ("sage", "gin"):
            means = blank.first.propagate(data.edge_index, x=(x, x))
            self.means = sparse((means if self.kind == "sage" else means + x)[near])
            self.x = self.x[:, :1]

    def _patched(self, network: Network) -> None:
        """Puts the constant product of adjacency and features into the first layer."""

        def dense(layer: nn.Module, x: tuple[Tensor, Tensor]) -> None:
            bias = 0 if layer.bias is None else layer.bias
            layer.forward = lambda _=None: SparseDense.apply(layer.weight, *x) + bias

        first = network.first
        if self.kind in ("gcn", "gat"):
            dense(first.lin, self.plain)
        elif self.kind == "sage":
            first.propagate = lambda *_, **__: 0
            dense(first.lin_l, self.means)
            dense(first.lin_r, self.plain)
        else:
            first.forward = lambda x, _: first.nn(x)
            dense(first.nn[0], self.means)

    def trained(self, weights: Tensor, seed: int) -> tuple[Network, torch.optim.Adam]:
        torch.manual_seed(seed)
        network = Network(self.kind, self.data.num_features, self.k, self.activation)
        self._patched(network)
        adam = torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY)
        targets, weights = self.data.y[self.nodes], weights / weights.sum()
        network.train()
        for _ in range(EPOCHS):
            adam.zero_grad()
            logits = network(self.x, self.edges)[self.places]
            (weights * F.cross_entropy(logits, targets, reduction="none")).sum().backward()
            adam.step()
        for part in network.modules():
            for name in ("forward", "propagate"):
                part.__dict__.pop(name, None)
        return network.eval(), adam

    @torch.no_grad()
    def differences(self, network: Network, at: Tensor) -> Tensor:
        z = network(self.data.x, self.data.edge_index)[at]
        return z[:, 1:] - z[:, :1]

    def retrain(self, seed: int) -> Any:
        def train(nodes: Tensor) -> Network:
            key = (seed, *nodes.tolist())
            if key not in self.kept:
                self.kept[key] = self.trained(torch.isin(self.nodes, nodes).float(), seed)[0]
            return self.kept[key]

        return train


def changes(task: Task, chosen: Tensor, at: Tensor, seed: int) -> Tensor:
    """Returns the change of logit differences at nodes without each of some labels, [s, n, k - 1]."""
    every = torch.ones(task.nodes.numel())
    whole, out = task.differences(task.trained(every, seed)[0], at), []
    for place in chosen.tolist():
        weights = every.clone()
        weights[place] = 0
        out.append(task.differences(task.trained(weights, seed)[0], at) - whole)
    return torch.stack(out)


def compared(found: Tensor, truth: Tensor) -> dict[str, float]:
    """Returns correlation and relative error at the labels and at other nodes, of changes [s, s + n, k - 1]."""
    s = len(truth)
    own = [each[torch.arange(s), torch.arange(s)] for each in (found, truth)]
    here, away = agreement_of(*own), agreement_of(found[:, s:], truth[:, s:])
    return {"own": here[0], "own_error": here[2], "other": away[0], "other_error": away[2]}


def asked(task: Task) -> tuple[Tensor, Tensor]:
    """Returns the places of the labels that are left out, and nodes: these labels and test nodes."""
    chosen = torch.randperm(task.nodes.numel(), generator=torch.Generator().manual_seed(1))[:LEFT_OUT]
    return chosen, torch.cat([task.nodes[chosen], task.test[:ELSEWHERE]])


def cell(name: str) -> dict[str, Any]:
    task, started, half = Task(name), time.process_time(), LEFT_OUT // 2
    chosen, at = asked(task)
    elsewhere = at[LEFT_OUT:]
    truth = changes(task, chosen, at, 0)
    some = [*range(half), *range(LEFT_OUT, len(at))]
    pairs = [
        compared(changes(task, chosen[:half], at[some], 1 + seed), truth[:half, some]) for seed in range(OTHER_SEEDS)
    ]
    out: dict[str, Any] = {"cell": name, "retraining_seconds": time.process_time() - started}
    out["other_seeds"] = {key: sum(each[key] for each in pairs) / OTHER_SEEDS for key in pairs[0]}
    network, adam = task.trained(torch.ones(task.nodes.numel()), 0)
    fitted = calirare.fit_of(network, task.data, weight_decay=DECAY, optimizer=adam)
    seeds = range(SEEDS.get(name, OTHER_SEEDS))
    auto = [choose_method(fitted, ALO(damping="auto"), retrain=task.retrain(10 + seed), seed=seed) for seed in seeds]
    methods = {"alo": auto[0].method, "tangent": Tangent(damping=PENALTY)}
    for title, method in methods.items():
        change = leave_one_out(fitted, method=method, nodes=at).change
        out[title] = compared(change[:, :, chosen].permute(2, 0, 1), truth)
    for key, value in (("damping", "damping"), ("loo_loss", "loo"), ("fold_loss", "held_out")):
        out[key] = [getattr(each.agreement, value) for each in auto]
    results = [calirare.jackknife(fitted, method=each.method, nodes=elsewhere, folds=0) for each in auto]
    out["eice"] = [each.eice for each in results]
    every = torch.cat([elsewhere, task.test[ELSEWHERE:]])
    right, classes = (network(*fitted.inputs).argmax(1) == task.data.y)[every].float(), task.data.y[every]
    out["accuracy"] = float(right.mean())
    loo = leave_one_out(fitted, method=auto[0].method)
    found = calirare.jackknife(fitted, method=auto[0].method, result=loo)
    inside = ((found.lower[every] <= right) & (right <= found.upper[every])).float()
    out["coverage"] = float(inside.mean())
    out["coverage_by_class"] = [float(inside[classes == c].mean()) for c in range(task.k)]
    return out


def speed() -> dict[str, float]:
    """Returns CPU seconds of own logits of 140 labels, 100 influence queries and ten labels by steps, 1,433 columns."""
    task = Task("cora-sage-relu-140")
    network, _ = task.trained(torch.ones(140), 0)
    jobs: dict[str, Callable[[Any], Any]] = {
        "own_logits": lambda fitted: OwnLogits(fitted.linearisation)(DECAY),
        "influence_100": lambda fitted: calirare.influence(
            fitted, task.data, test=task.test[:100], top=10, method=ALO(damping=DECAY)
        ),
        "steps_10": lambda fitted: leave_one_out(fitted, method=Steps(steps=10, n_models=10), nodes=task.test[:100]),
    }
    out = dict[str, float]()
    for name, job in jobs.items():
        taken = list[float]()
        for _ in range(REPEATED):
            fitted = calirare.fit_of(network, task.data, weight_decay=DECAY)
            started = time.process_time()
            job(fitted)
            taken.append(time.process_time() - started)
        out[f"{name}_seconds"] = min(taken)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", default=CELLS)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    lines = record.RESULTS / "any_network.jsonl"
    known = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    if arguments.speed:
        known = [each for each in known if each["cell"] != "speed"] + [{"cell": "speed"} | speed()]
        lines.write_text("".join(json.dumps(each) + "\n" for each in known))
    for name in [] if arguments.speed else arguments.cells:
        if name in {each["cell"] for each in known}:
            continue
        known.append(cell(name))
        print(json.dumps(known[-1]), flush=True)
        with lines.open("a") as file:
            file.write(json.dumps(known[-1]) + "\n")
    write({each.pop("cell"): each for each in known})


def write(found: dict[str, Any]) -> None:
    """Writes the results and what the page shows of them."""
    record.write("any_network", found)
    speeds = found.pop("speed", None)
    lines = [
        "| network, graph, labels | own: ALO | Tangent | other seeds "
        "| elsewhere: ALO | Tangent | other seeds | covered |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in found.items():
        graph, kind, activation, labels = name.split("-")
        numbers = [(each[who], what) for what in ("own", "other") for who in ("alo", "tangent", "other_seeds")]
        cells = [f"{of[what]:.2f}, {of[what + '_error']:.2f}" for of, what in numbers]
        cells += [f"{each['coverage']:.1%} ({min(each['coverage_by_class']):.0%})"]
        lines.append(f"| {kind.upper()} ({activation}), {graph}, {labels} | " + " | ".join(cells) + " |")
    losses = [(each["loo_loss"][0], loss) for each in found.values() for loss in each["fold_loss"][1:]]
    near = sum(abs(loo - loss) <= 0.05 * loss for loo, loss in losses)
    own = max(
        abs(loo / loss - 1)
        for each in found.values()
        for loo, loss in zip(each["loo_loss"], each["fold_loss"], strict=True)
    )
    pairs = [each["eice"][:2] for each in found.values()]
    stable = sum(max(pair) - min(pair) <= 0.15 * max(pair) for pair in pairs)
    lines += [
        "",
        f"With the damping that ten networks chose, leave-one-out loss is within {own:.1%} of theirs. It is within "
        f"5 % of the loss by ten others, with other folds and random numbers, in {near} of {len(losses)} comparisons. "
        f"EICE by two such choices differs by at most 15 % in {stable} of {len(pairs)} networks, and by at most "
        f"{max(max(pair) - min(pair) for pair in pairs):.3f} in all.",
    ]
    for name, each in found.items():
        if len(each["eice"]) > 2:
            shown = ", ".join(f"{value:.3f}" for value in each["eice"])
            lines.append(f"EICE of {name} by five such choices: {shown}.")
    if speeds is not None:
        lines.append(f"Own logits of 140 labels of the SAGE take {speeds['own_logits_seconds']:.1f} s of one core, 100 "
                     f"influence queries {speeds['influence_100_seconds']:.1f} s, `Steps(steps=10)` of "
                     f"`calirare_lab` for ten labels {speeds['steps_10_seconds']:.0f} s.")  # fmt: skip
    record.put_on_page(PAGE, "<!-- accuracy:begin -->", "<!-- accuracy:end -->", "\n".join(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
