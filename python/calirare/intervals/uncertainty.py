"""uncer(v): how likely the predicted class of a node is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from calirare.calibration import Calibrator, JackknifeCalibrator
from calirare.intervals.ends import IntervalEnds, IntervalRequest

UncertaintyName = Literal["auto", "map", "midpoint"]
UNCERTAINTIES = get_args(UncertaintyName)


@dataclass(frozen=True, eq=False)
class Assessment:
    """What a definition says of some nodes.

    Attributes:
        uncertainty: uncer(v), [n].
        confidence: conf(v), the probability of the predicted class that it is compared with, [n].
        estimate: P(y | v) [n, k], of which the uncertainty is one column, or None.
        note: where it rests on a fallback; else empty.
    """

    uncertainty: Tensor
    confidence: Tensor
    estimate: Tensor | None = None
    note: str = ""


def assess(
    name: UncertaintyName,
    ends: IntervalEnds,
    targets: Tensor,
    calibration_nodes: Tensor | None,
    request: IntervalRequest,
    population_map: Calibrator | None,
) -> Assessment:
    """Returns uncertainty and confidence of nodes.

    Args:
        name: "map": P(predicted class | v) under a map for the population, next to the network's own confidence;
            "midpoint": the interval's midpoint (paper, Eq. 8), next to the confidence under the interval's map; "auto":
            "map", and where the paper's formulas are taken as printed "midpoint".
        ends: of the intervals, with the labels' own leave-one-out logits.
        targets: of the labelled nodes, int64 [m].
        calibration_nodes: those that represent the population, bool [m]; None: all.
        request: what the ends were asked for.
        population_map: the fitted map of "map"; None: Platt scaling of leave-one-out logits.
    """
    if name == "auto":
        name = "map" if request.method.prints == "corrected" else "midpoint"
    if name == "midpoint":
        confidence, predicted = torch.softmax(request.mapped(ends.logits), 1).max(1)
        midpoint = (ends.lower + ends.upper) / 2
        right = torch.where(predicted == 0, 1 - midpoint, midpoint) if request.rare else midpoint
        return Assessment(right, confidence)
    known = torch.isfinite(ends.own).all(1)
    chosen = known if calibration_nodes is None else known & calibration_nodes.to(known.device)
    note, fitted = "", population_map
    if fitted is None:
        fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
        note = fitted.note_
    estimate = fitted.transform(ends.logits)
    confidence, predicted = torch.softmax(ends.logits, 1).max(1)
    right = estimate.gather(1, predicted[:, None]).squeeze(1)
    return Assessment(right, confidence, estimate, note)


def check_uncertainty(name: str) -> None:
    """Raises a ValueError where a definition is unknown."""
    if name not in UNCERTAINTIES:
        raise ValueError(
            f"jackknife: uncertainty must be {', '.join(UNCERTAINTIES[:-1])} or {UNCERTAINTIES[-1]}, got {name!r}"
        )
