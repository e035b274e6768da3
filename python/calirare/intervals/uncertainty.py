"""uncer(v): how likely the predicted class of a node is right, by one class per definition.

A new definition is a class here and a line in `UNCERTAINTIES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from calirare.calibration import Calibrator, JackknifeCalibrator
from calirare.intervals.ends import IntervalEnds, IntervalRequest

UncertaintyName = Literal["auto", "map", "midpoint"]


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


class Uncertainty(Protocol):
    """A definition of uncer(v)."""

    def assess(
        self, ends: IntervalEnds, targets: Tensor, calibration_nodes: Tensor | None, request: IntervalRequest
    ) -> Assessment:
        """Returns uncertainty and confidence of the nodes.

        Args:
            ends: of the intervals, with the labels' own leave-one-out logits.
            targets: of the labelled nodes, int64 [m].
            calibration_nodes: those that represent the population, bool [m]; None: all.
            request: what the ends were asked for.
        """
        ...


@dataclass(frozen=True)
class MapUncertainty:
    """P(predicted class | v) under a map for the population.

    Attributes:
        population_map: the fitted map; None: Platt scaling of leave-one-out logits.
    """

    population_map: Calibrator | None = None

    def assess(
        self, ends: IntervalEnds, targets: Tensor, calibration_nodes: Tensor | None, request: IntervalRequest
    ) -> Assessment:
        """See `Uncertainty.assess`; the confidence is the network's own."""
        known = torch.isfinite(ends.own).all(1)
        chosen = known if calibration_nodes is None else known & calibration_nodes.to(known.device)
        note, fitted = "", self.population_map
        if fitted is None:
            fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
            note = fitted.note_
        estimate = fitted.transform(ends.logits)
        confidence, predicted = torch.softmax(ends.logits, 1).max(1)
        right = estimate.gather(1, predicted[:, None]).squeeze(1)
        return Assessment(right, confidence, estimate, note)


@dataclass(frozen=True)
class Midpoint:
    """The interval's midpoint (paper, Eq. 8)."""

    def assess(
        self, ends: IntervalEnds, targets: Tensor, calibration_nodes: Tensor | None, request: IntervalRequest
    ) -> Assessment:
        """See `Uncertainty.assess`; the confidence is under the same map as the interval."""
        confidence, predicted = torch.softmax(request.mapped(ends.logits), 1).max(1)
        midpoint = (ends.lower + ends.upper) / 2
        right = torch.where(predicted == 0, 1 - midpoint, midpoint) if request.rare else midpoint
        return Assessment(right, confidence)


UNCERTAINTIES: dict[str, Uncertainty] = {"map": MapUncertainty(), "midpoint": Midpoint()}


def uncertainty_named(name: str, *, printed: bool, population_map: Calibrator | None = None) -> Uncertainty:
    """Returns a definition by its name; "auto": "map", and where the paper's formulas are taken as printed "midpoint".

    Args:
        name: the name.
        printed: whether the paper's formulas are taken as printed.
        population_map: see `MapUncertainty`.

    Raises:
        ValueError: it is unknown.
    """
    if name == "auto":
        name = "midpoint" if printed else "map"
    if name not in UNCERTAINTIES:
        raise ValueError(f"jackknife: uncertainty must be auto, {' or '.join(UNCERTAINTIES)}, got {name!r}")
    return MapUncertainty(population_map) if name == "map" else UNCERTAINTIES[name]
