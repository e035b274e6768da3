"""Does EICE measure individual miscalibration? Definitions of the uncertainty judged where P(y | v) is known.

On simulated graphs with labels drawn from a known posterior, a node's true individual calibration error is
|P(predicted class is right | v) - conf(v)|. Each definition of uncer(v) gives an ICE(v) = |uncer(v) - conf(v)| to hold
against it, overall and for the nodes of the rare class.

    calirare study uncertainty --out folder
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator
from calirare.datasets import synthetic_rare
from calirare.graph import Graph
from calirare.leave_one_out import ALO, OwnLogits, choose_damping, jackknife, leave_one_out
from calirare.models import GcnFit, GcnTraining, cross_fitted_logits, fit

MODEL: dict[str, Any] = {"share": 0.15, "mean_degree": 8.0, "labels": "posterior"}
# Few features, which a network cannot overfit, and more features than labels, as in citation graphs.
REGIMES: dict[str, dict[str, Any]] = {
    "16 features": {"n_features": 16, "separation": 2.0},
    "600 features": {"n_features": 600, "separation": 4.0},
}
N_NODES, N_LABELS, SEEDS = 2000, 400, 10
TRAINING = GcnTraining(epochs=200, hidden=16, weight_decay=2e-3, order="propagated")
PLAIN = ("midpoint, rare class (paper)", "midpoint, predicted class", "mean of leave-one-out scores")
MAPS = ("map on leave-one-out logits", "map on cross-fitted logits", "map on in-sample logits")


def uncertainties(trained: GcnFit, graph: Graph, settings: GcnTraining) -> dict[str, Tensor]:
    """Returns uncer(v), an estimate of P(predicted class is right), of every node by every definition.

    The maps are Platt's, fitted for the population as it is, the one P(y | v) is about. Leave-one-out is that of the
    main job: its damping makes leave-one-out loss agree with cross-validated loss.

    Args:
        trained: the network and its labels.
        graph: the graph.
        settings: of cross-fitting.

    Returns:
        Uncertainties [n] by definition.
    """
    crossed = cross_fitted_logits(graph, trained.nodes, settings, n_folds=5)
    tape = trained.linearisation
    every = torch.ones(tape.n_nodes, dtype=torch.bool)
    agreed = choose_damping(OwnLogits(tape), trained.weight_decay, crossed, every, trained.sample_weights)
    left_out = leave_one_out(trained, graph, ALO(damping=agreed.damping))
    paper = jackknife(trained, graph, ALO(damping=agreed.damping), result=left_out)
    logits = trained.model.logits(graph)
    predicted = logits.argmax(1)
    mean = torch.sigmoid((logits[:, 1] - logits[:, 0])[:, None] + left_out.change[:, 0]).mean(1)
    out = {
        PLAIN[0]: paper.uncertainty,
        PLAIN[1]: jackknife(trained, graph, ALO(damping=agreed.damping), score="predicted").uncertainty,
        PLAIN[2]: torch.where(predicted == 1, mean, 1 - mean),
    }
    sources = (
        paper.own_loo_logits,
        crossed,
        tape.logits,
    )
    for name, source in zip(MAPS, sources, strict=True):
        fitted = AffineCalibrator(with_bias=True, target="population").fit(source, trained.targets)
        out[name] = fitted.transform(logits).gather(1, predicted[:, None]).squeeze(1)
    return out


def judge(uncertainty: Tensor, confidence: Tensor, right: Tensor, chosen: Tensor) -> dict[str, float]:
    """Returns how ICE measures the true individual error on the chosen nodes.

    Args:
        uncertainty: [n].
        confidence: [n].
        right: P(predicted class is right | v), [n].
        chosen: bool [n].

    Returns:
        Correlation of ICE with the true error, its bias (mean difference), and the mean absolute error of the
        uncertainty as an estimate of P(right).
    """
    ice = (uncertainty - confidence).abs()[chosen].double()
    true = (right - confidence).abs()[chosen].double()
    correlation = float(torch.corrcoef(torch.stack([ice, true]))[0, 1]) if float(ice.std()) > 0 else 0.0
    miss = float((uncertainty[chosen].double() - right[chosen]).abs().mean())
    return {"correlation": correlation, "bias": float((ice - true).mean()), "uncertainty_error": miss}


def one_seed(seed: int, regime: str, n_nodes: int = N_NODES, n_labels: int = N_LABELS) -> dict[str, Any]:
    """Returns every definition's judgement on one simulated graph, and the picture's points.

    Args:
        seed: of graph, labels and network.
        regime: a key of `REGIMES`.
        n_nodes: nodes of the graph.
        n_labels: labels, drawn at random.

    Returns:
        By definition and group of nodes ("all", "rare"): see `judge`; and "points".
    """
    graph = synthetic_rare(n_nodes, seed=seed, **(MODEL | REGIMES[regime]))
    assert graph.posterior is not None
    assert graph.y is not None
    nodes = torch.randperm(n_nodes, generator=torch.Generator().manual_seed(seed))[:n_labels].sort().values
    settings = GcnTraining(**{**vars(TRAINING), "seed": seed})
    trained = fit(graph, nodes, settings)
    confidence, predicted = torch.softmax(trained.model.logits(graph), 1).max(1)
    right = torch.where(predicted == 1, graph.posterior, 1 - graph.posterior)
    held = torch.ones(n_nodes, dtype=torch.bool)
    held[nodes] = False
    groups = {"all": held, "rare": held & (graph.y == 1)}
    found: dict[str, Any] = {}
    points: dict[str, Any] = {"true": (right - confidence).abs()[held].tolist()}
    for name, uncertainty in uncertainties(trained, graph, settings).items():
        found[name] = {group: judge(uncertainty, confidence, right, chosen) for group, chosen in groups.items()}
        points[name] = (uncertainty - confidence).abs()[held].tolist()
    return {"judged": found, "points": points}


def run(seeds: Sequence[int]) -> dict[str, Any]:
    """Returns each regime's table and the winner: the definition whose worst regime is best."""
    regimes = {regime: run_regime(regime, seeds) for regime in REGIMES}

    def worst(name: str) -> float:
        return min(found["definitions"][name]["correlation, all"]["mean"] for found in regimes.values())

    return {"seeds": list(seeds), "regimes": regimes, "winner": max((*PLAIN, *MAPS), key=worst)}


def run_regime(regime: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Returns mean and standard deviation over the seeds, the winner, and the first seed's points."""
    runs = [one_seed(seed, regime) for seed in seeds]
    table: dict[str, Any] = {}
    for name in (*PLAIN, *MAPS):
        table[name] = {}
        for group in ("all", "rare"):
            for key in ("correlation", "bias", "uncertainty_error"):
                values = [run["judged"][name][group][key] for run in runs]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                table[name][f"{key}, {group}"] = {"mean": statistics.fmean(values), "std": spread}
    winner = max(table, key=lambda name: table[name]["correlation, all"]["mean"])
    return {"definitions": table, "winner": winner, "points": runs[0]["points"]}


def draw(results: dict[str, Any], path: Path) -> None:
    """Writes ICE against the true individual error, one panel per regime and definition."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = (*PLAIN, *MAPS)
    figure = Figure(figsize=(2.5 * len(names), 2.9 * len(REGIMES)), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (regime, name) in enumerate(itertools.product(REGIMES, names), 1):
        found = results["regimes"][regime]
        points = found["points"]
        axes = figure.add_subplot(len(REGIMES), len(names), place)
        axes.plot([0, 0.5], [0, 0.5], color="#5F5F5F", linewidth=1)
        axes.scatter(points["true"], points[name], s=2, color="#0072B2", alpha=0.4)
        mean = found["definitions"][name]["correlation, all"]["mean"]
        axes.set_title(f"{name}\n{regime}, r = {mean:.2f}", fontsize=8)
        axes.set_xlim(0, 0.5)
        axes.set_ylim(0, 0.5)
    figure.supxlabel("true |P(right | v) - confidence|", fontsize=9)
    figure.supylabel("ICE(v)", fontsize=9)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def write(seeds: int, numbers: Path, picture: Path) -> None:
    """Runs the study on seeds 0 .. seeds-1, writes its numbers and its picture, and prints the means."""
    results = run(range(seeds))
    draw(results, picture)
    for found in results["regimes"].values():
        del found["points"]
    results |= {"nodes": N_NODES, "labels": N_LABELS, "model": MODEL, "options": REGIMES, "training": vars(TRAINING)}
    numbers.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for regime, found in results["regimes"].items():
        for name, row in found["definitions"].items():
            shown = "  ".join(f"{key} {value['mean']:+.3f}" for key, value in row.items())
            print(f"{regime:<14}{name:<30}  {shown}")
    print(f"winner: {results['winner']}")
