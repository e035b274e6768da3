"""Probabilities that tables of a run hold of each node, for which prevalence, and which are alerts or left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from scipy.special import expit, logit
from torch import Tensor

from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.calibration import (
    Calibrator,
    PositiveOnlyCalibrator,
    Prevalence,
    PriorPlattCalibrator,
    Target,
    prevalence_by_map,
    prevalence_ends,
    with_prevalence,
)

LIKELIER = 0.5  # the threshold of equal costs
UNREPRESENTED = (
    "no label shows the base rate, so P(rare) and expected counts assume equally common classes: pass --prevalence"
)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """What tables say of the class of each node.

    Attributes:
        raw: the detector's own, [n, k], before calibration.
        rare: P(class 1) for the population, float64 [n]; without calibration the network's own.
        balanced: the same for classes equally common.
        chosen: for the run's target, [n, k]: what `prediction` and `confidence` are about. With every class taken as
            it is these count, and `rare` and `balanced` are of class 1.
        threshold: nodes with `rare` at least this are alerts; where costs of a miss differ one number per node, [n].
    """

    raw: Tensor
    rare: Tensor
    balanced: Tensor
    chosen: Tensor
    threshold: float | Tensor = LIKELIER

    __repr__ = brief

    @property
    def alert(self) -> Tensor:
        """Which nodes are alerts, bool [n]."""
        return self.rare >= (self.threshold.to(self.rare) if isinstance(self.threshold, Tensor) else self.threshold)

    @classmethod
    def of(
        cls, logits: Tensor, maps: dict[Target, Calibrator], target: Target, threshold: float | Tensor = LIKELIER
    ) -> Probabilities:
        """Returns them from logits [n, k] and the fitted map of each target; none without calibration."""
        raw = torch.softmax(logits, 1)
        chosen = maps[target].transform(logits) if target in maps else raw
        return cls(raw, p_rare(logits, maps), p_rare(logits, maps, "balanced"), chosen, threshold)

    def at(self, rows: slice | Tensor) -> Probabilities:
        """Returns those of some nodes."""
        p = (self.raw[rows], self.rare[rows], self.balanced[rows], self.chosen[rows])
        return Probabilities(*p, self.threshold[rows] if isinstance(self.threshold, Tensor) else self.threshold)


def p_rare(logits: Tensor, maps: dict[Target, Calibrator], target: Target = "population") -> Tensor:
    """Returns P(class 1) of each node under a target's map, float64 [n]; without one the network's own."""
    z = logits.double()
    p: Tensor = maps[target].transform(z) if target in maps else torch.softmax(z, 1)
    return p[:, 1]


def assumed_by(maps: dict[Target, Calibrator]) -> str:
    """Returns what maps made of known rare nodes alone rest on, a sentence; of other maps nothing."""
    fitted = maps.get("population")
    return fitted.sentence_ if isinstance(fitted, PositiveOnlyCalibrator) else ""


def unrepresented_by(maps: dict[Target, Calibrator]) -> str:
    """Returns that no label shows how common the two classes are, a sentence; of other maps nothing."""
    fitted = maps.get("population")
    alone = isinstance(fitted, PriorPlattCalibrator) and fitted.n_classes == 2 and fitted.counted_ == 0
    return UNREPRESENTED if alone else ""


PrevalenceRequest = float | tuple[float, float] | Literal["estimate"] | None


def correct_prevalence(
    asked: PrevalenceRequest, maps: dict[Target, Calibrator], logits: Tensor
) -> tuple[Prevalence | None, dict[Target, Calibrator]]:
    """Returns how common the rare class is among scored nodes, and the maps with that of the population corrected.

    Args:
        asked: a share, the ends of a 95 % interval, "estimate", or None for the maps as they are.
        maps: of the run.
        logits: of the scored nodes, [n, k].

    Raises:
        InputError: the run's maps or the graph cannot be corrected, or the share cannot be identified.
    """
    if asked is None:
        return None, maps
    fitted, plain = maps.get("population"), maps.get("balanced")
    if not isinstance(fitted, PriorPlattCalibrator) or not isinstance(plain, PriorPlattCalibrator):
        raise InputError("predict: prevalence needs a run with --method jackknife and --map prior: leave it out")
    if asked == "estimate" and isinstance(fitted, PositiveOnlyCalibrator):
        raise InputError(
            "predict: prevalence estimate needs a run with labels of both classes, but this one's are positive-only: "
            "give the base rate (--prevalence P)"
        )
    if logits.shape[1] != 2 or not len(logits):
        raise InputError(f"predict: prevalence needs two classes and some nodes, got {list(logits.shape)}")
    if asked == "estimate":  # by the map that no prevalence of the training has gone into
        told = prevalence_by_map(plain, logits.double())
        # As wide in log-odds on either side, so that the mean becomes the estimate itself.
        reach, middle = (logit(told.high) - logit(told.low)) / 2, logit(told.share)
        ends = float(expit(middle - reach)), float(expit(middle + reach))
    else:
        ends = prevalence_ends(cast(float, asked))
        told = Prevalence(float(expit(logit(ends).mean())), *ends, "as given")
    return told, maps | {"population": with_prevalence(fitted, logits.double(), ends)}


def log_loss_change(y: Tensor, before: Tensor, after: Tensor) -> dict[str, Any]:
    """Returns how the log loss of some labels changed, from their paired differences.

    Args:
        y: classes, int64 [m].
        before: their probabilities, [m, k].
        after: likewise.

    Returns:
        mean: log loss after, minus that before; standard_error: of the mean; answer: "worse", "better", or "not clear"
        within two standard errors; sentence: all of it in words.
    """
    was, now = (p.gather(1, y[:, None]).clamp(min=torch.finfo(p.dtype).eps).log() for p in (before, after))
    mean, error = float((was - now).mean()), float((was - now).std(correction=0)) / max(len(y) - 1, 1) ** 0.5
    answer = "not clear" if abs(mean) <= 2 * error else "worse" if mean > 0 else "better"
    ends = f"{mean - 2 * error:+.4f} to {mean + 2 * error:+.4f}"
    sentence = f"change of the log loss: {mean:+.4f} (95% CI {ends}): {answer}"
    return {"mean": mean, "standard_error": error, "answer": answer, "sentence": sentence}
