"""Calibration on leave-one-out logits: every training label is a calibration label, and none is held out."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from calirare.calibration.affine import AffineCalibrator
from calirare.calibration.base import Calibrator, Target
from calirare.calibration.sharpness import sharpened

MIN_RARE = 25  # fewer calibration nodes of the rarest class than this make every map with a bias noise (measured)
FALLBACK_PRIOR = 0.02  # pulls the fallback's temperature to 1; worth a few labelled nodes


class JackknifeCalibrator(Calibrator):
    """Fits a Platt map, or a temperature where labels are few, on leave-one-out logits.

    The logits of node i come from a model that never saw label i (`JackknifeResult.own_loo_logits`), so the map
    corrects what the network does on new nodes. The same map fitted on in-sample logits makes calibration worse. Give
    only nodes that represent the population (a random sample such as the validation nodes); nodes drawn with equal
    numbers per class do not, and a map fitted on them alone is unstable.

    Args:
        target: "balanced" (weights inverse to class share, what cost-sensitive training and Macro-ACE judge) or
            "population" (every node alike, what ECE, NLL and "P(fraud)" mean).
        min_rare: with fewer nodes of the rarest class than this, a temperature with a prior replaces the Platt map.
        sharpen: give the Platt map its class-conditional sharpness (`sharpened`): same decisions, lower Macro-ACE, and
            probabilities that are no longer right for a population.

    Attributes:
        map_: the fitted map; None before fitting.
        note_: one sentence on a fallback, empty otherwise.
    """

    fitted: ClassVar = {"note": str, "map": AffineCalibrator.from_state}
    note_: str = ""
    map_: AffineCalibrator | None = None

    def __init__(self, *, target: Target = "balanced", min_rare: int = MIN_RARE, sharpen: bool = False) -> None:
        self.target: Target = target
        self.min_rare, self.sharpen = min_rare, sharpen

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.map_ is None else self.map_.n_classes

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fits on leave-one-out logits [m, k]."""
        counts = torch.bincount(labels, minlength=logits.shape[1])
        rarest = int(counts.min())
        enough = rarest >= self.min_rare
        self.note_ = ""
        if not enough:
            self.note_ = (
                f"only {rarest} calibration nodes of the rarest class ({self.min_rare} wanted): "
                "a temperature with a prior replaces the Platt map"
            )
        prior = {} if enough else {"prior": FALLBACK_PRIOR}
        self.map_ = AffineCalibrator(with_bias=enough, target=self.target, **prior).fit(logits, labels)
        if self.sharpen and enough:
            self.map_ = sharpened(self.map_, logits, labels)

    def _transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k] of in-sample logits [n, k]."""
        return self._fitted(logits).transform(logits)

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        return self._fitted(logits).calibrated_logits(logits)

    def _fitted(self, logits: Tensor) -> AffineCalibrator:
        self.check_classes(logits)
        assert self.map_ is not None
        return self.map_
