"""How well a run finds its rare class, and whether its P(rare) is right: on test nodes, or by leave-one-out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calirare.calibration import Calibrator, PositiveOnlyCalibrator, Target
from calirare.metrics import detection_report, rare_report
from calirare.run.result import RunResult

KNOWN_OR_DRAWN = "known or drawn"  # nodes that a run with positive labels alone is judged on: P(known) is all they tell
FOLDS = 10  # in which a map is fitted without the nodes it is judged on
# Resamples and draws: as many as go through so many samples in all, and no fewer than give an interval.
WORK, RESAMPLES, DRAWS, LEAST = 20_000_000, 1000, 200, 50


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled nodes with probabilities in which no node's own label has a say.

    Attributes:
        on: "test", "leave-one-out" or `KNOWN_OR_DRAWN`.
        nodes: int64 [m].
        labels: int64 [m], on the CPU.
        probabilities: [m, k] each, on the CPU: "raw" and each target's.
    """

    on: str
    nodes: Tensor
    labels: Tensor
    probabilities: dict[str, Tensor]

    @property
    def draws(self) -> tuple[int, int]:
        """Resamples of an interval, and draws of a noise floor, that take about a second."""
        n = max(self.labels.numel(), 1)
        return max(LEAST, min(RESAMPLES, WORK // n)), max(LEAST, min(DRAWS, WORK // n))


def judged_labels(outcome: RunResult, judged_on: str, nodes: Tensor) -> Tensor:
    """Returns the classes of what a run is judged on, int64: of labelled nodes those that the detector was shown.

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        nodes: the nodes; with "leave-one-out" all that the detector was shown, in their order.
    """
    assert outcome.graph.y is not None
    return outcome.graph.y[nodes] if judged_on == "test" else outcome.fit.targets


def judging_maps(outcome: RunResult, judged_on: str, logits: Tensor) -> dict[Target, Calibrator]:
    """Returns the maps that labels can judge: where these are known rare nodes alone, of P(known) and not of P(rare).

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        logits: of the judged nodes, [n, k].
    """
    maps = dict(outcome.calibrators)
    if judged_on == "test":
        return maps
    made = torch.isfinite(logits).all(1)
    for target, each in maps.items():
        if isinstance(each, PositiveOnlyCalibrator):
            maps[target] = each.seen().fit(logits[made], outcome.fit.targets.to(made.device)[made])
    return maps


def judged(outcome: RunResult, judged_on: str, nodes: Tensor, logits: Tensor) -> Judged:
    """Returns what P(rare) is judged by.

    Without test nodes these are the nodes that represent the population, the validation nodes where there are some of
    each class, else all labelled ones. A map that was fitted on their leave-one-out logits is then fitted anew in
    folds, each without the nodes it is put on: fitted on them, its mean would be right by construction.

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        nodes: the nodes the report is about, [n].
        logits: theirs, [n, k]; no node's own label has a say in them.
    """
    split, refit = outcome.graph.split, False
    assert split is not None
    y, maps = judged_labels(outcome, judged_on, nodes), judging_maps(outcome, judged_on, logits)
    if judged_on != "test":
        known, in_val = torch.isfinite(logits).all(1), torch.isin(nodes, split.val)
        sample = known & (in_val if bool(in_val.any()) else True)
        refit = outcome.settings.method == "jackknife" and _classes_in(y[sample]) == outcome.graph.n_classes
        kept = sample if _classes_in(y[sample]) > 1 and bool((y[sample] == 1).any()) else known
        nodes, logits, y = nodes[kept], logits[kept], y[kept]
    labels, z = y.cpu(), logits.detach().cpu()
    sides = {"raw": torch.softmax(z, 1)}
    for target, calibrator in maps.items():
        sides[str(target)] = _left_out(calibrator, z, labels) if refit else calibrator.transform(z)
    return Judged(judged_on, nodes, labels, sides)


def rare_class(data: Judged) -> dict[str, Any]:
    """Returns "detection", by the scores that rank, and "p_rare", of every side, marked by what they are judged on."""
    ranks = [side for side in ("raw", "population") if side in data.probabilities]
    mark, (resamples, draws) = {"judged_on": data.on}, data.draws
    return {
        "detection": {
            side: mark | detection_report(data.labels, data.probabilities[side], n_draws=resamples) for side in ranks
        },
        "p_rare": {side: mark | rare_report(data.labels, p, n_draws=draws) for side, p in data.probabilities.items()},
    }


def wrong_in_the_large(values: dict[str, Any], rare: str) -> str | None:
    """Returns a sentence where mean P(rare) for the population is off by more than the labels' number allows, or None.

    Args:
        values: of `rare_class`.
        rare: name of the rare class.
    """
    side = "population" if "population" in values["p_rare"] else "raw"
    said = values["p_rare"][side]
    low, high = said["mean_p_over_share_lower"], said["mean_p_over_share_upper"]
    if low <= 1 <= high:
        return None
    whose = "for the target population" if side == "population" else "of the network, uncalibrated,"
    return (
        f"mean P({rare}) {whose} is {said['mean_p_over_share']:.3g} times the share observed among the "
        f"{said['n']:,} {said['judged_on']} nodes ({low:.3g} to {high:.3g} with {said['n_rare']} of the class): not to "
        "be read as a probability"
    )


def _classes_in(labels: Tensor) -> int:
    return int(torch.unique(labels).numel())


def _left_out(calibrator: Calibrator, logits: Tensor, labels: Tensor) -> Tensor:
    """Returns each node's probabilities [m, k] by the same kind of map, fitted on the other folds' nodes."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold

    n_folds = min(FOLDS, int(torch.bincount(labels).min()))
    if n_folds < 2:  # a class with one node: no fold can do without it
        return calibrator.transform(logits)
    out = torch.empty_like(logits)
    for others, held in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(logits, labels):
        rest = torch.from_numpy(others)
        out[held] = clone(calibrator).fit(logits[rest], labels[rest]).transform(logits[held])
    return out
