"""Algorithm 1 of the paper: intervals, uncertainty and individual calibration error from leave-one-out models."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.leave_one_out.alo import alo
from calirare.leave_one_out.change import LooChange
from calirare.leave_one_out.ggn import logit_differences
from calirare.propagation import propagation
from calirare.training import Fit
from calirare_ext import jackknife_interval

BLOCK_NUMBERS = 16_000_000  # leave-one-out scores held at once


class LogitMap(Protocol):
    """A calibrator that can say its logits, such as `JackknifeCalibrator`."""

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        ...


@dataclass(frozen=True, eq=False)
class JackknifeResult:
    """Algorithm 1's outcome for some nodes.

    f(v) is the probability of class 1 (the rare class) with two classes, and of the predicted class with more.

    Attributes:
        nodes: the nodes v, int64 [n].
        lower: C-minus(v) [n] (Eq. 8). Ends may lie outside [0, 1]: they bound f -/+ residual, as in the paper.
        upper: C-plus(v) [n].
        uncertainty: uncer(v) [n], the interval's midpoint, for the predicted class (Eq. 8).
        confidence: conf(v) [n], the probability of the predicted class.
        ice: ICE(v) = |uncertainty - confidence| [n] (Eq. 9).
        eice: EICE, the mean of ice (Eq. 10).
        residuals: r_i = |y_i - f(i; theta_-i)| of the labelled nodes, [m].
        loo_logits: z_c - z_0 at v without node i, before any map, [n, k - 1, m].
        own_loo_logits: logits of labelled node i without i, class 0 at 0, before any map, [m, k].
        coverage: target coverage.
        diagnostics: damping, leverages, losses, gradient norm, seconds.
    """

    nodes: Tensor
    lower: Tensor
    upper: Tensor
    uncertainty: Tensor
    confidence: Tensor
    ice: Tensor
    eice: float
    residuals: Tensor
    loo_logits: Tensor
    own_loo_logits: Tensor
    coverage: float
    diagnostics: dict[str, float]


def leave_one_out(
    trained: Fit, graph: Graph, *, damping: float | None = None, nodes: Tensor | None = None
) -> LooChange:
    """Returns what leaving each labelled node out does to the logits.

    Args:
        trained: the network and its labels.
        graph: the graph it was trained on.
        damping: added to the curvature; None: the weight decay.
        nodes: nodes to evaluate, int64 [n]; None: all.

    Returns:
        The changes, from the default method (`leave_one_out.alo`).
    """
    where = torch.arange(graph.n_nodes, device=graph.device) if nodes is None else nodes
    everywhere = propagation(graph).to(trained.model.weights[0].dtype).field(where, trained.model.n_layers)
    return alo(trained.tape(), everywhere, trained.weight_decay if damping is None else damping)


def jackknife(
    trained: Fit,
    graph: Graph,
    *,
    coverage: float = 0.9,
    damping: float | None = None,
    calibrator: LogitMap | None = None,
    nodes: Tensor | None = None,
    change: LooChange | None = None,
) -> JackknifeResult:
    """Returns jackknife intervals, uncertainty, ICE and EICE (paper, Algorithm 1), without retraining.

    Args:
        trained: the network and the labels it was trained on (`calirare.training.fit`, or `Outcome.fit`).
        graph: the graph it was trained on.
        coverage: the paper's alpha, in (0, 1): the interval runs from quantile (1 - coverage) / 2 to its mirror image.
        damping: see `leave_one_out`.
        calibrator: a map put on every leave-one-out logit before f is taken, fitted on leave-one-out logits itself;
            None: the network's own probabilities. The confidence is the network's with the same map.
        nodes: nodes to evaluate, int64 [n]; None: all.
        change: the leave-one-out changes, where they were computed before for the same nodes.

    Returns:
        Everything Algorithm 1 computes on the way.

    Raises:
        ValueError: the coverage or the damping is out of range.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"jackknife: coverage must be in (0, 1), got {coverage}")
    started = time.perf_counter()
    where = torch.arange(graph.n_nodes, device=graph.device) if nodes is None else nodes
    change = leave_one_out(trained, graph, damping=damping, nodes=where) if change is None else change
    tape = trained.tape()
    with torch.no_grad():
        logits = trained.model(propagation(graph).to(tape.logits.dtype).field(where, trained.model.n_layers))
    own = _with_class_zero(logit_differences(tape.logits) + change.own)
    residuals = _residuals(own, tape.logits, trained.targets, calibrator)
    loo_logits = logit_differences(logits)[:, :, None] + change.change
    lower, upper = _intervals(loo_logits, logits, residuals, coverage, calibrator)
    probability = torch.softmax(_mapped(logits, calibrator), 1)
    confidence, predicted = probability.max(1)
    midpoint = (lower + upper) / 2
    uncertainty = torch.where(predicted == 0, 1 - midpoint, midpoint) if logits.shape[1] == 2 else midpoint
    ice = (uncertainty - confidence).abs()
    diagnostics = {
        "damping": change.damping,
        "mean_leverage": float(change.leverage.mean()),
        "max_leverage": float(change.leverage.max()),
        "in_sample_nll": float(F.cross_entropy(tape.logits, trained.targets)),
        "loo_nll": float(F.cross_entropy(own, trained.targets)),
        "gradient_norm": trained.gradient_norm(),
        "seconds": time.perf_counter() - started,
    }
    eice = float(ice.double().mean())
    return JackknifeResult(
        where, lower, upper, uncertainty, confidence, ice, eice, residuals, loo_logits, own, coverage, diagnostics
    )


def _with_class_zero(differences: Tensor) -> Tensor:
    return torch.cat([differences.new_zeros(differences.shape[0], 1), differences], 1)


def _mapped(logits: Tensor, calibrator: LogitMap | None) -> Tensor:
    return logits if calibrator is None else calibrator.calibrated_logits(logits)


def _residuals(own: Tensor, logits: Tensor, targets: Tensor, calibrator: LogitMap | None) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|; beyond two classes y_i says whether the predicted class is right."""
    probability = torch.softmax(_mapped(own, calibrator), 1)
    watched = torch.ones_like(targets) if own.shape[1] == 2 else _mapped(logits, calibrator).argmax(1)
    f = probability.gather(1, watched[:, None]).squeeze(1)
    return ((targets == watched).to(f.dtype) - f).abs()


def _intervals(
    loo_logits: Tensor, logits: Tensor, residuals: Tensor, coverage: float, calibrator: LogitMap | None
) -> tuple[Tensor, Tensor]:
    """Returns both interval ends, a block of nodes at a time."""
    n, k, m = loo_logits.shape
    lower, upper = logits.new_empty(n), logits.new_empty(n)
    watched = torch.ones(n, dtype=torch.int64) if k == 1 else _mapped(logits, calibrator).argmax(1)
    step = max(1, BLOCK_NUMBERS // max(m * (k + 1), 1))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        scores = _scores(loo_logits[rows], watched[rows], calibrator)
        ends = jackknife_interval(scores, residuals, (1 - coverage) / 2, 1 - (1 - coverage) / 2)
        lower[rows], upper[rows] = ends.lower, ends.upper
    return lower, upper


def _scores(loo_logits: Tensor, watched: Tensor, calibrator: LogitMap | None) -> Tensor:
    """Returns f(v; theta_-i) [n, m] from logit differences [n, k - 1, m]."""
    n, k, m = loo_logits.shape
    flat = _with_class_zero(loo_logits.transpose(1, 2).reshape(n * m, k))
    mapped = _mapped(flat, calibrator)
    if k == 1:
        return torch.sigmoid(mapped[:, 1] - mapped[:, 0]).view(n, m)
    return torch.softmax(mapped, 1).view(n, m, k + 1).gather(2, watched[:, None, None].expand(n, m, 1)).squeeze(2)
