"""The audit of a run's labels, of a run in memory and of a saved one alike."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import CalibrateOn
from calirare.explain.audit import Audit, audit_labels, unseen_logits
from calirare.graph import Graph
from calirare.leave_one_out import OwnLogits
from calirare.run.settings import Settings
from calirare.training import Fitted, FittedNetwork, FoldFitted

FOLDS = "each label is judged by models trained without its fold"
CLOSED_FORM = (
    "leave-one-out in closed form, as the run made no cross-validation: a network that learnt wrong labels by heart "
    "hides them; train with --folds 5"
)
SOME_FOLDS = (
    "{:,} of {:,} labels are judged by networks trained without their fold, the others by leave-one-out in closed "
    "form; the run's report says whether the two agree"
)


def audit_run(
    fitted: Fitted,
    graph: Graph,
    mapped: Graph,
    settings: Settings,
    damping: float,
    held_out: Tensor | None,
    at_least: float,
) -> Audit:
    """Returns the audit of a run's labels.

    Args:
        fitted: the detector with its labels.
        graph: the run's own, with labels and split.
        mapped: the same as the detector takes it.
        settings: of the run.
        damping: of its leave-one-out step.
        held_out: each label's logits by the network without its fold, [m, k], NaN where there is none; None where the
            run made none.
        at_least: P(wrong) from which a label is flagged, in (0, 1].

    Raises:
        InputError: there are not two classes, or too few labels of one.
    """
    if settings.positive_only:
        raise InputError(
            "audit: the run's labels are positive-only, so there are no labels of the rest to be wrong: its alerts are "
            "the nodes without a label that are probably rare; --next K says what to label"
        )
    evidence = FOLDS
    if isinstance(fitted, FoldFitted):
        logits = unseen_logits(fitted, mapped)
    elif held_out is not None and bool(torch.isfinite(held_out).all()):
        logits = held_out
    else:
        assert isinstance(fitted, FittedNetwork)
        logits, evidence = OwnLogits(fitted.linearisation)(damping), CLOSED_FORM
        if held_out is not None:
            seen = torch.isfinite(held_out).all(1)
            logits = torch.where(seen[:, None], held_out.double(), logits)
            evidence = SOME_FOLDS.format(int(seen.sum()), seen.numel())
    on = representing(settings.calibration.calibrate_on, graph)
    return audit_labels(fitted, mapped, logits, evidence, on, at_least)


def representing(asked: CalibrateOn, graph: Graph) -> CalibrateOn:
    """Returns which labels represent the population, where "auto" is asked for.

    Labels drawn per class before classes were merged leave "the rest" in other shares than the population's: they are
    left out where others represent it.
    """
    merged = graph.original_y is not None and len(graph.original_class_names) > 2
    return "random" if asked == "auto" and merged and graph.split is not None and graph.split.val.numel() else asked
