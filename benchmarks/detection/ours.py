"""Our own recipes: keyword settings of `calirare.train`, one line each."""

from __future__ import annotations

from typing import Any

import numpy as np

import calirare
from detection.tasks import Draw

RECIPES: dict[str, dict[str, Any]] = {
    "calirare": {},
    "calirare, paper": {"preset": "paper"},
    "calirare, paper, auto decay and hops": {"preset": "paper", "weight_decay": "auto", "hops": "auto"},
}


def score(name: str, draw: Draw) -> np.ndarray:
    """Returns P(rare) of the test nodes in the population as it is, float64."""
    outcome = calirare.train(draw.seen, seed=draw.seed, calibrate_for="population", **RECIPES[name])
    if draw.scored.x is draw.seen.x:
        return outcome.probabilities("population")[:, 1].double().numpy()[draw.test]
    table = outcome.predict(draw.scored).set_index("node")
    return table.loc[draw.test, "p_rare"].to_numpy(np.float64)
