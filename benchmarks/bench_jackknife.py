"""Times of the jackknife beside plain torch.func, a bare GEMM and PyG training, in one process on the same threads.

    python benchmarks/bench_jackknife.py [--datasets cora citeseer facebook] [--threads 2] [--repeats 15] [--slow 2]
        [--clock cpu]

Answers are checked before anything is timed: our exact-Hessian influence must agree with the baseline's. Medians; ours
and the baselines take turns. Writes benchmarks/results/jackknife_speed.json; data sets that are not run keep their
numbers, each with the commit it was measured at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import record
import scipy.sparse
import torch
from baselines.torch_func_jackknife import Baseline, TwoLayers
from bench_accuracy import full_change

from calirare._util.torch_state import threads_for
from calirare.curvature import GgnInverse, of_tape
from calirare.datasets import load_dataset
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.leave_one_out import alo_change, change_of_logits, jackknife, left_out, pre_activation
from calirare.leave_one_out.eice import EiceRegulariser, EiceSettings, GradientSteps, joint_field
from calirare.models import GcnFit, GcnTraining, cross_entropy, fit, step_work
from calirare_ext import Csr, SolverResult, hessian_product, loo_messages, message_interval, propagate
from calirare_lab.leave_one_out import HessianRange, Influence, safe_damping, solve, spectrum_ends

TOLERANCE = 1e-4  # of conjugate gradients, ours and the baseline's
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
CLOCK = CLOCKS["wall"]
AUTHORS = {"cora": 343.7, "facebook": 71.5}  # seconds of the authors' code for one EICE, from their published script


def timed(work: Callable[[], Any]) -> float:
    started = CLOCK()
    work()
    return CLOCK() - started


def in_turns(works: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, dict[str, float]]:
    """Returns median, minimum and repeats of each; the works take turns so that a busy moment meets all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work, _ in works.values():
        work()
    for turn in range(max(repeats for _, repeats in works.values())):
        for name, (work, repeats) in works.items():
            if turn < repeats:
                times[name].append(timed(work))
    return {name: {"median_s": statistics.median(t), "min_s": min(t), "repeats": len(t)} for name, t in times.items()}


def prepare(name: str) -> tuple[Graph, GcnFit]:
    graph = load_dataset(name, split="random" if name == "facebook" else None)
    assert graph.split is not None
    return graph, fit(graph, graph.split.train, GcnTraining())


def baseline_of(trained: GcnFit, damping: float) -> Baseline:
    (w1, b1), (w2, b2) = trained.model.layers()
    model = TwoLayers(w1.shape[0], w1.shape[1], w2.shape[1])
    with torch.no_grad():
        for layer, weight, bias in ((model.first, w1, b1), (model.second, w2, b2)):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
    inputs = trained.field.inputs
    dense = inputs.to_dense() if isinstance(inputs, Csr) else inputs
    block = trained.field.blocks[0].to_dense()
    return Baseline(model, dense, block, trained.targets, trained.sample_weights, damping)


def torch_csr(a: Csr) -> torch.Tensor:
    return torch.sparse_csr_tensor(a.indptr, a.indices.long(), a.values, a.shape)


def compare_speed(name: str, repeats: int, slow: int) -> dict[str, Any]:
    graph, trained = prepare(name)
    assert graph.split is not None
    tape, mu = trained.linearisation, trained.weight_decay
    lowest, _ = spectrum_ends(lambda v: hessian_product(tape, v), tape.n_parameters, tape.logits)
    damping, reason = safe_damping(lowest, mu)
    baseline = baseline_of(trained, damping)
    there = propagation(graph).field(graph.split.test, 2)
    s = there.inputs.to_dense() if isinstance(there.inputs, Csr) else there.inputs
    aggregate = torch_csr(there.blocks[0])
    settings = Influence(solver="cg", tolerance=TOLERANCE, automatic_damping=False)

    def ours() -> torch.Tensor:
        change = change_of_logits(trained.linearise(), propagation(graph).field(graph.split.test, 2), mu).change
        with torch.no_grad():
            z = trained.model(there)
        return torch.sigmoid((z[:, 1] - z[:, 0])[:, None] + change[:, 0])

    def theirs() -> torch.Tensor:
        directions, _, _ = baseline.solve(baseline.gradients(), TOLERANCE)
        return baseline.changed_scores(directions, s, lambda h: aggregate @ h)

    def our_exact() -> torch.Tensor:  # the solver "auto" of up to two layers: direct, in the Hessian's range
        error = tape.loss_gradient_at_logits()[:, 1] / tape.n_nodes
        return HessianRange(tape).solve(error.diag(), damping)

    def our_cg() -> SolverResult:  # the solver "cg": products with all parameters, as any depth has it
        rows = tape.jacobian
        error = tape.loss_gradient_at_logits()[:, 1:] / tape.n_nodes
        limits = {"tolerance": TOLERANCE, "max_iterations": settings.max_iterations}
        return solve(tape, rows * error, damping=damping, precondition=GgnInverse(tape, damping), **limits)

    def their_cg() -> Any:
        return baseline.solve(baseline.gradients(), TOLERANCE)

    plain = alo_change(tape, there, mu, form="gram").change
    off = float((change_of_logits(tape, there, mu).change - plain).abs().max() / plain.abs().max())
    assert off < 1e-3, f"the messages' change is {off} from the Gram form's"
    with torch.no_grad():
        z = trained.model(there)
    scores, agreement = theirs(), 0.0
    for directions in (our_exact(), our_cg().x):
        moved = (z[:, 1] - z[:, 0])[:, None] + full_change(trained, there, directions)[:, 0]
        agreement = max(agreement, float((torch.sigmoid(moved) - scores).abs().max()))
    assert agreement < 1e-3, f"our exact influence is {agreement} from the baseline's"
    solved, baseline_solved = our_cg(), their_cg()
    times = in_turns(
        {
            "alo": (ours, repeats),
            "exact": (our_exact, repeats),
            "cg": (our_cg, slow),
            "torch_func": (theirs, slow),
            "torch_func_cg": (their_cg, slow),
        }
    )
    seconds = {key: value["median_s"] for key, value in times.items()}
    return {
        "times": times,
        "speedup_of_alo": seconds["torch_func"] / seconds["alo"],
        "speedup_of_exact": seconds["torch_func_cg"] / seconds["exact"],
        "speedup_of_cg": seconds["torch_func_cg"] / seconds["cg"],
        "speedup_over_authors": AUTHORS[name] / seconds["alo"] if name in AUTHORS else None,
        "damping": damping,
        "damping_reason": reason,
        "largest_difference_of_scores": agreement,
        "iterations": {"ours": int(solved.iterations.max()), "torch_func": baseline_solved[1]},
        "residual": {"ours": float(solved.residual_norm.max()), "torch_func": baseline_solved[2]},
        "labels": tape.n_nodes,
        "parameters": tape.n_parameters,
    }


def whole_jackknife(name: str, repeats: int) -> dict[str, Any]:
    """All nodes: directions, changes, intervals, uncertainty; beside the products the algebra needs."""
    graph, trained = prepare(name)
    everywhere, tape = trained.evaluation_field(graph), trained.linearisation
    check_fused(trained, graph)
    inputs, seen = everywhere.inputs, tape.field.inputs
    products: dict[str, tuple[Callable[[], Any], int]] = {}
    if isinstance(inputs, Csr):
        assert isinstance(seen, Csr)
        dense, transposed, csr = inputs.to_dense(), seen.to_dense().T.contiguous(), torch_csr(inputs)
        scipy_inputs, scipy_seen = as_scipy(inputs), as_scipy(seen).T.tocsr()
        products["S S_R^T, torch CSR x dense"] = (lambda: csr @ transposed, repeats)
        products["S S_R^T, calirare CSR x dense"] = (lambda: propagate(inputs, transposed), repeats)
        products["S S_R^T, dense GEMM"] = (lambda: dense @ transposed, repeats)
        products["S S_R^T, scipy sparse x sparse"] = (lambda: scipy_inputs @ scipy_seen, repeats)
    else:
        matrix = torch.randn(inputs.shape[1], tape.n_nodes * trained.model.hidden)
        products["gemm [n, d] x [d, m h]"] = (lambda: inputs @ matrix, repeats)
    # A new fit each time: nothing is kept of it yet.
    times = in_turns(
        {"jackknife": (lambda: jackknife(replace(trained), graph, uncertainty="midpoint"), repeats)} | products
    )
    cheapest = min(products, key=lambda key: times[key]["median_s"])
    return {
        "times": times,
        "stages": stages(trained, graph, repeats),
        "ratio_to": cheapest,
        "ratio": times["jackknife"]["median_s"] / times[cheapest]["median_s"],
        "work": work(trained, graph),
    }


def check_fused(trained: GcnFit, graph: Graph) -> None:
    """Asserts that the fused intervals are those of every leave-one-out logit."""
    every = trained.evaluation_field(graph)
    plain = jackknife(trained, graph, result=alo_change(trained.linearisation, every, trained.weight_decay))
    fused = jackknife(trained, graph)
    for ends in ("lower", "upper"):
        off = float((getattr(plain, ends) - getattr(fused, ends)).abs().max())
        assert off < 1e-3, f"the fused {ends} ends are {off} from the unfused ones"


def stages(trained: GcnFit, graph: Graph, repeats: int) -> dict[str, dict[str, float]]:
    """Times of the parts of the fused evaluation."""
    everywhere, tape = trained.evaluation_field(graph), trained.linearisation
    a, rows = everywhere.blocks[0], everywhere.rows[0].numel()
    with torch.no_grad():
        left = left_out(tape, trained.weight_decay, n_rows=rows)
        z = pre_activation(tape.layers, everywhere.inputs)
        sent = loo_messages(everywhere.inputs, z, left.directions)
        logits, residuals = torch.zeros(a.n_rows), torch.rand(tape.n_nodes)
        parts = {
            "tape": trained.linearise,
            "left-out models": lambda: left_out(of_tape(tape), trained.weight_decay, n_rows=rows),
            "hidden states": lambda: pre_activation(tape.layers, everywhere.inputs),
            "messages": lambda: loo_messages(everywhere.inputs, z, left.directions, out=sent),
            "intervals": lambda: message_interval(a, sent, logits, left.shift, residuals, 0.05, 0.95),
        }
        return in_turns({key: (part, repeats) for key, part in parts.items()})


def work(trained: GcnFit, graph: Graph) -> dict[str, float]:
    """Sizes and multiply-adds of the algebra: all hidden units one by one, and by patterns of active units."""
    everywhere, tape = trained.evaluation_field(graph), trained.linearisation
    inputs, m, h = everywhere.inputs, tape.n_nodes, trained.model.hidden
    entries = inputs.nnz if isinstance(inputs, Csr) else inputs.numel()
    active = pre_activation(tape.layers, inputs) > 0
    halves = [len(torch.unique(part.int(), dim=0)) for part in active.split((h + 1) // 2, 1)]
    return {
        "nodes": graph.n_nodes,
        "labels": m,
        "hidden": h,
        "features": trained.model.n_features,
        "patterns_of_all_units": len(torch.unique(active.int(), dim=0)),
        "patterns_of_half_the_units": max(halves),
        "multiply_adds_all_units": entries * m * h,
        "multiply_adds_one_group": entries * m,
        "multiply_adds_propagation": everywhere.blocks[0].nnz * m,
        "bytes_of_messages": active.shape[0] * m * 4,
    }


def as_scipy(a: Csr) -> Any:
    return scipy.sparse.csr_array((a.values.numpy(), a.indices.numpy(), a.indptr.numpy()), shape=a.shape)


def epochs(name: str, repeats: int) -> dict[str, Any]:
    """An epoch of Algorithm 2, leave-one-out refreshed in it, beside an epoch of full-graph PyG without it."""
    from torch_geometric.nn import GCNConv
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    graph, trained = prepare(name)
    assert graph.split is not None
    assert graph.y is not None
    both = joint_field(propagation(graph), trained.field, graph.split.val)
    regulariser = EiceRegulariser(both, trained, EiceSettings(refresh=1))
    step = GradientSteps(trained, regulariser, GcnTraining())

    def ours() -> None:
        with threads_for(step_work(both.field, trained.model.hidden)):  # as in train_calirare
            trained.model.train()
            step(counts=True, refresh=True)

    data = graph.to_data()
    edges, weights = gcn_norm(data.edge_index, None, graph.n_nodes)
    first = GCNConv(graph.n_features, 16, normalize=False)
    second = GCNConv(16, 2, normalize=False)
    theirs_optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=5e-4)
    train, targets = graph.split.train, graph.y[graph.split.train]
    x = data.x.to_dense() if data.x.is_sparse or data.x.layout != torch.strided else data.x

    def theirs() -> None:
        theirs_optimiser.zero_grad()
        hidden = torch.nn.functional.dropout(torch.relu(first(x, edges, weights)), 0.5)
        z = second(hidden, edges, weights)
        cross_entropy(z[train], targets, trained.sample_weights).backward()
        theirs_optimiser.step()

    times = in_turns({"algorithm 2": (ours, repeats), "pyg": (theirs, repeats)})
    return {"times": times, "ratio": times["algorithm 2"]["median_s"] / times["pyg"]["median_s"]}


def extra_memory(name: str) -> float:
    """Returns by how many MB the jackknife raises the peak memory of a process that has trained."""
    code = f"import bench_jackknife as b; print(b.peak_growth({name!r}))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=record.ROOT / "benchmarks"
    )
    return float(out.stdout.strip().splitlines()[-1])


def peak_growth(name: str) -> float:
    """Returns the highest resident memory during a jackknife minus that before it, in MB; loading does not count."""
    graph, trained = prepare(name)
    trained.model.logits(graph)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = resident("VmRSS")
    jackknife(trained, graph)
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Returns a field of this process's memory, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "facebook"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--slow", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads, for a busy machine")
    arguments = parser.parse_args()
    global CLOCK
    CLOCK = CLOCKS[arguments.clock]
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    path = record.RESULTS / "jackknife_speed.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"] if path.is_file() else {}
    for name in arguments.datasets:
        results[name] = {
            "commit": record.environment()["commit"],
            "clock": arguments.clock,
            "one_change": compare_speed(name, arguments.repeats, arguments.slow),
            "whole": whole_jackknife(name, arguments.repeats),
            "epoch": epochs(name, arguments.repeats),
            "extra_memory_mb": extra_memory(name),
        }
        one, whole, epoch = (results[name][part] for part in ("one_change", "whole", "epoch"))
        print(
            f"{name:<9} torch.func takes {one['speedup_of_alo']:.1f} times ALO's time, its CG "
            f"{one['speedup_of_exact']:.1f} times the exact solver's and {one['speedup_of_cg']:.1f} times our CG's; "
            f"whole {whole['ratio']:.2f}x of {whole['ratio_to']}; epoch {epoch['ratio']:.2f}x of PyG; "
            f"{results[name]['extra_memory_mb']:.0f} MB",
            flush=True,
        )
        print(record.write("jackknife_speed", results))


if __name__ == "__main__":
    main()
