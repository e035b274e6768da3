"""What one training says of labels without them, and of the test nodes; kept in a file so that it is made once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import calirare
from auditing.tasks import Case, Drawn


def trained(case: Case, drawn: Drawn, kept: Path) -> dict[str, Any]:
    """Returns logits of labels and test nodes, and the seconds of the processor they took."""
    file = kept / f"{case.name}.npz"
    if not file.exists():
        kept.mkdir(parents=True, exist_ok=True)
        np.savez(file, **_train(drawn))
    with np.load(file) as values:
        found = {name: values[name] for name in values.files}
    assert np.array_equal(found["nodes"], drawn.nodes), f"{file} is of other labels"
    assert np.array_equal(found["given"], drawn.given), f"{file} is of other labels"
    return found


def _train(drawn: Drawn) -> dict[str, Any]:
    begin = time.process_time()
    outcome = calirare.train(drawn.graph)
    seconds = time.process_time() - begin
    return {
        "unseen": outcome.fit.judged_by_folds(outcome.mapped).own_logits.numpy(),
        "nodes": drawn.nodes,
        "given": drawn.given,
        "w": outcome.fit.sample_weights.numpy(),
        "p": outcome.probabilities("population")[:, 1].numpy(),
        "seconds": seconds,
    }


def log_loss(p: np.ndarray, drawn: Drawn) -> float:
    """Returns the mean log loss of the test nodes' true labels."""
    from sklearn.metrics import log_loss as loss

    return float(loss(drawn.test_true, p[drawn.test], labels=[0, 1]))


def scores(found: dict[str, Any]) -> tuple[np.ndarray, float]:
    """Returns the calibrated log odds of labels' being given as rare, [m], and their share of the population."""
    from calirare.calibration import PriorPlattCalibrator, effective_shares

    own, given = torch.from_numpy(found["unseen"]).double(), torch.from_numpy(found["given"])
    shares = effective_shares(given, torch.from_numpy(found["w"]), 2)
    fitted = PriorPlattCalibrator(target="population", trained_shares=shares).fit(own, given)
    logits = fitted.calibrated_logits(own)
    return (logits[:, 1] - logits[:, 0]).numpy(), float(fitted.shares_[1])
