"""How common the rare class is in a graph that is scored: told, or estimated from the scores; maps corrected to it."""

from __future__ import annotations

import math
from typing import Literal, cast

from torch import Tensor

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

Prevailing = float | tuple[float, float] | Literal["estimate"] | None


def prevailing(
    asked: Prevailing, maps: dict[Target, Calibrator], logits: Tensor
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
        raise InputError("predict: prevalence needs a run of method jackknife with map prior: leave it out")
    if asked == "estimate" and isinstance(fitted, PositiveOnlyCalibrator):
        raise InputError(
            "predict: prevalence estimate needs a run with labels of both classes, but this one's are positive-only: "
            "give the share (--prevalence P)"
        )
    if logits.shape[1] != 2 or not len(logits):
        raise InputError(f"predict: prevalence needs two classes and some nodes, got {list(logits.shape)}")
    if asked == "estimate":  # by the map that no prevalence of the training has gone into
        told = prevalence_by_map(plain, logits.double())
        # As wide in log-odds on either side, so that the mean becomes the estimate itself.
        reach = (_odds(told.high) - _odds(told.low)) / 2
        ends = _share(_odds(told.share) - reach), _share(_odds(told.share) + reach)
    else:
        ends = prevalence_ends(cast(float, asked))
        middle = _share((_odds(ends[0]) + _odds(ends[1])) / 2)
        told = Prevalence(middle, ends[0], ends[1], "as given")
    return told, maps | {"population": with_prevalence(fitted, logits.double(), ends)}


def _odds(share: float) -> float:
    return math.log(share) - math.log1p(-share)


def _share(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))
