"""Influence by TRAK, EK-FAC and dattri against training again without the label, in cells of bench_any_network.py.

    pip install --no-deps --target PEERS traker kronfluence dattri accelerate einops einconv opt-einsum pretty_midi mido
    PYTHONPATH=PEERS python benchmarks/bench_network_peers.py

None of them takes a graph. They get the same network with the same weights (logits must agree to 1e-4) as a batch of
independent inputs: logits of a node from the constant inputs of its neighbours, in two `torch.nn.Linear`. This is
possible for GCN and SAGE; attention and GIN have parameters elsewhere. Labels, nodes, random numbers and retrained
networks are those of bench_any_network.py. Each peer has the best of its dampings, chosen by the retrained networks.
Scores of TRAK have no unit: their size is fitted by least squares. Writes results/network_peers.json and the table of
docs/own_model.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import bench_any_network as cells
import record
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch_geometric.nn.conv.gcn_conv import gcn_norm

CELLS = ("cora-sage-relu-140", "cora-gcn-relu-140")
AGREED, BATCH = 1e-4, 20
DAMPINGS = (5e-4, 5e-3, 5e-2)  # added to the curvature; the first is the weight decay
RIDGES = (1e-2, 1.0, 1e2)  # of TRAK
PROJECTED = 512


class Rows(nn.Module):
    """A network of two layers: mixing weights of each input [b, s, u] -> logits [b, k]."""

    def __init__(self, task: cells.Task, network: cells.Network, nodes: Tensor) -> None:
        super().__init__()
        x, n = task.data.x, task.data.num_nodes
        first, second = network.first, network.second
        if task.kind == "gcn":
            edges, weights = gcn_norm(task.data.edge_index, None, n, add_self_loops=True)
            parts, bias = [[each.lin] for each in (first, second)], [each.bias for each in (first, second)]
        else:
            edges = task.data.edge_index
            weights = 1 / torch.bincount(edges[1], minlength=n).clamp(min=1)[edges[1]]
            parts = [[each.lin_l, each.lin_r] for each in (first, second)]
            bias = [each.lin_l.bias for each in (first, second)]
        mixing = torch.sparse_coo_tensor(edges.flip(0), weights, (n, n)).coalesce()
        rows = torch.zeros(len(nodes), n).index_put((torch.arange(len(nodes)), nodes), torch.ones(len(nodes)))
        mixed = torch.sparse.mm(mixing.T, rows.T).T
        mixed = torch.stack([mixed, rows] if task.kind == "sage" else [mixed], 1)
        read = mixed.ne(0).any(1).any(0)
        table = torch.sparse.mm(mixing, x)[read]
        table = torch.cat([table, x[read]], 1) if task.kind == "sage" else table
        self.inputs, self.activation, self.each = mixed[:, :, read].contiguous(), network.activation, False
        self.register_buffer("table", table, persistent=False)
        self.first, self.second = (
            nn.Linear(sum(part.weight.shape[1] for part in each), len(b)) for each, b in zip(parts, bias, strict=True)
        )
        with torch.no_grad():
            for layer, each, b in zip((self.first, self.second), parts, bias, strict=True):
                layer.weight.copy_(torch.cat([part.weight for part in each], 1))
                layer.bias.copy_(b)
            whole = network(x, task.data.edge_index)[nodes]
            assert float((self(self.inputs) - whole).abs().max()) < AGREED

    def forward(self, mixing: Tensor) -> Tensor:
        table = self.table
        if self.each:  # rows of each input by themselves
            rows = self.read(mixing)[0]
            table, mixing = table[rows], mixing.gather(2, rows[:, None].expand(-1, mixing.shape[1], -1))
        return self.second((mixing @ self.activation(self.first(table))).flatten(1))

    def read(self, mixing: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the rows that each input reads [b, t], and which of them are no padding."""
        read = mixing.ne(0).any(1)
        rows = read.int().topk(int(read.sum(1).max()), 1).indices
        return rows, read.gather(1, rows)


class Problem:
    """What a peer is asked: the change of logit differences at queries [q] without each of s of m labels."""

    def __init__(self, cell: str) -> None:
        self.task, self.folder = cells.Task(cell), tempfile.TemporaryDirectory()
        self.factors: Any = None  # of EK-FAC
        m = self.task.nodes.numel()
        self.chosen, self.at = cells.asked(self.task)
        self.network, _ = self.task.trained(torch.ones(m), 0)
        self.truth = cells.changes(self.task, self.chosen, self.at, 0)
        self.model = Rows(self.task, self.network, torch.cat([self.task.nodes, self.at])).eval()
        y, k = self.task.data.y[self.task.nodes], self.task.k
        self.train = TensorDataset(self.model.inputs[:m], y)
        which = torch.arange(1, k).repeat(len(self.at))  # class c of a query asks for z_c - z_0
        self.queries = TensorDataset(self.model.inputs[m:].repeat_interleave(k - 1, 0), which)
        self.left_out = TensorDataset(*(each[self.chosen] for each in self.train.tensors))

    def shaped(self, scores: Tensor) -> Tensor:
        """Returns scores [s, q] as changes [s, nodes, k - 1]."""
        return scores.reshape(len(self.chosen), len(self.at), -1)


def difference(logits: Tensor, which: Tensor) -> Tensor:
    """Returns z_c - z_0, [b]."""
    return logits.gather(1, which[:, None])[:, 0] - logits[:, 0]


def dattri(problem: Problem, damping: float) -> Tensor:
    """Returns changes by dattri's influence function: conjugate gradients on the Hessian."""
    from dattri.algorithm import influence_function
    from dattri.task import AttributionTask

    model = problem.model

    def loss(params: Any, data: Any) -> Tensor:
        mixing, y = data
        return F.cross_entropy(torch.func.functional_call(model, params, (mixing,)), y)

    def asked(params: Any, data: Any) -> Tensor:
        mixing, which = data
        return difference(torch.func.functional_call(model, params, (mixing,)), which).sum()

    task = AttributionTask(loss, model, model.state_dict(), target_func=asked)
    found = influence_function.IFAttributorCG(task, regularization=damping)
    found.cache(DataLoader(problem.train, batch_size=len(problem.train)))
    loaders = (DataLoader(each, batch_size=len(problem.at)) for each in (problem.left_out, problem.queries))
    return problem.shaped(found.attribute(*loaders)) / len(problem.train)


def ekfac(problem: Problem, damping: float) -> Tensor:
    """Returns changes by kronfluence: inverse of the Fisher matrix by eigenvalue-corrected Kronecker factors."""
    from kronfluence import analyzer as kronfluence
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task

    class Nodes(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            logits = model(batch[0])
            y = torch.multinomial(logits.detach().softmax(1), 1)[:, 0] if sample else batch[1]
            return F.cross_entropy(logits, y, reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return difference(model(batch[0]), batch[1]).sum()

        def get_attention_mask(self, batch: Any) -> Any:
            return {"first": problem.model.read(batch[0])[1].long()}

    name = f"damped {damping}"
    if problem.factors is None:
        model, task = copy.deepcopy(problem.model), Nodes()
        model.each = True
        torch.manual_seed(0)
        tracked, folder = kronfluence.prepare_model(model, task), problem.folder.name
        found = kronfluence.Analyzer("nodes", tracked, task, cpu=True, output_dir=folder, disable_tqdm=True)
        arguments = FactorArguments(strategy="ekfac")
        found.fit_all_factors("ekfac", problem.train, per_device_batch_size=BATCH, factor_args=arguments)
        problem.factors = found
    asked = problem.queries, problem.left_out, BATCH
    problem.factors.compute_pairwise_scores(name, "ekfac", *asked, score_args=ScoreArguments(damping))
    scores = problem.factors.load_pairwise_scores(name)
    return problem.shaped(scores["all_modules"].T) / len(problem.train)


def trak(problem: Problem, ridge: float) -> Tensor:
    """Returns scores by TRAK of the network alone, with the sign of leaving out."""
    from trak import TRAKer
    from trak.modelout_functions import AbstractModelOutput

    k = problem.task.k

    class Margin(AbstractModelOutput):
        """log p / (1 - p) of the label; of a query, whose class is k + c, z_c - z_0."""

        def __init__(self) -> None:
            pass

        @staticmethod
        def get_output(model: Any, weights: Any, buffers: Any, mixing: Tensor, label: Tensor) -> Tensor:
            logits = torch.func.functional_call(model, (weights, buffers), mixing[None])[0]
            own = torch.arange(k) == label % k
            margin = logits[None].gather(1, label[None, None] % k).sum()
            others = logits.masked_fill(own, -torch.inf).logsumexp(0)
            return margin - torch.where(label < k, others, logits[0])

        def get_out_to_loss_grad(self, model: Any, weights: Any, buffers: Any, batch: Any) -> Tensor:
            logits = torch.func.functional_call(model, (weights, buffers), batch[0])
            return 1 - logits.softmax(1).gather(1, batch[1][:, None])

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"device": "cpu", "proj_dim": PROJECTED, "use_half_precision": False}
        m, model = len(problem.train), problem.model
        found = TRAKer(model, Margin(), m, folder, logging_level=40, lambda_reg=ridge, **options)
        found.load_checkpoint(model.state_dict(), 0)
        for batch in DataLoader(problem.train, BATCH):
            found.featurize(batch, num_samples=len(batch[0]))
        found.finalize_features()
        found.start_scoring_checkpoint("queries", model.state_dict(), 0, len(problem.queries))
        for mixing, which in DataLoader(problem.queries, BATCH):
            found.score((mixing, which + k), num_samples=len(which))
        scores = torch.as_tensor(found.finalize_scores("queries"))[problem.chosen]
    return -problem.shaped(scores)


PEERS: dict[str, tuple[Callable[[Problem, float], Tensor], tuple[float, ...]]] = {
    "TRAK": (trak, RIDGES),
    "EK-FAC (kronfluence)": (ekfac, DAMPINGS),
    "dattri": (dattri, DAMPINGS),
}


def compared(problem: Problem, name: str) -> dict[str, float]:
    """Returns the peer's agreement with retraining at its best damping."""
    peer, dampings = PEERS[name]
    best = dict[str, float]()
    for damping in dampings:
        started = time.process_time()
        found = peer(problem, damping).double().detach()
        seconds = time.process_time() - started
        truth = problem.truth.double()
        if name == "TRAK":
            found = found * float((found * truth).sum() / found.square().sum())
        out = cells.compared(found, truth) | {"damping": damping, "seconds": seconds}
        print(name, json.dumps(out), flush=True)
        if not best or out["own"] + out["other"] > best["own"] + best["other"]:
            best = out
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", default=CELLS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS))
    arguments = parser.parse_args()
    path = record.RESULTS / "network_peers.json"
    known = json.loads(path.read_text())["results"] if path.exists() else {}
    for cell in arguments.cells:
        problem = Problem(cell)
        for name in arguments.peers:
            known.setdefault(cell, {})[name] = compared(problem, name)
            record.write("network_peers", known)
    write(known)


def write(known: dict[str, Any]) -> None:
    """Writes the table of the page."""
    ours = json.loads((record.RESULTS / "any_network.json").read_text())["results"]
    names = "ALO", "Tangent", *PEERS
    lines = ["| network, graph | | " + " | ".join(names) + " |", "| --- " * (2 + len(names)) + "|"]
    for cell, found in known.items():
        graph, kind, *_ = cell.split("-")
        every = {"ALO": ours[cell]["alo"], "Tangent": ours[cell]["tangent"]} | found
        for key, what in (("own", "own"), ("other", "elsewhere")):
            numbers = [f"{every[name][key]:.2f}, {every[name][key + '_error']:.2f}" for name in names if name in every]
            lines.append(f"| {kind.upper()}, {graph} | {what} | " + " | ".join(numbers) + " |")
    record.put_on_page(cells.PAGE, "<!-- peers:begin -->", "<!-- peers:end -->", "\n".join(lines))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
