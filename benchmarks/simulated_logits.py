"""Simulated logits of a network whose classes' true posterior is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

KINDS = ("normal", "hidden", "heavy")  # of the rare class's scores


@dataclass(frozen=True)
class Network:
    """Maps a node's true score x to the logit z = slope x + shift + trained: monotone, so P(rare | z) = P(rare | x).

    Attributes:
        kind: "normal": x is the log-likelihood ratio of two normal classes; "hidden": 30 % of the rare class look like
            the rest; "heavy": half of the rare class lie twice as far out.
        distance: of the classes, in standard deviations.
        slope: 1 is right for "normal"; above 1 the network is overconfident.
        shift: what it has wrong about the classes' ratio.
        trained: log-odds of the rare class in its loss; 0 with class-balanced weights.
    """

    kind: str
    distance: float
    slope: float
    shift: float
    trained: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, prevalence: float, farthest: float = 3.5) -> Network:
        """Returns a network as they may be: slope 1/2.5 to 2.5, half of them trained without class weights.

        Args:
            rng: draws it.
            prevalence: of the rare class.
            farthest: largest distance of the classes.
        """
        trained = 0.0 if rng.random() < 0.5 else float(logit(prevalence))
        slope = float(np.exp(rng.normal(0, 0.4)))
        kind = KINDS[rng.integers(len(KINDS))]
        return cls(kind, float(rng.uniform(1.2, farthest)), slope, float(rng.normal(0, 0.4)), trained)

    def logits(self, rare: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns z of nodes whose classes are given, [n]."""
        d, n = self.distance, len(rare)
        mean = np.where(rare, d, 0.0)
        if self.kind == "hidden":
            mean = np.where(rng.random(n) < 0.3, 0.0, mean)
        elif self.kind == "heavy":
            mean = np.where(rng.random(n) < 0.5, 2 * mean, mean)
        score = d * (rng.normal(mean, 1.0) - d / 2)
        return self.slope * score + self.shift + self.trained

    def posterior(self, logits: np.ndarray, prevalence: float) -> np.ndarray:
        """Returns P(rare | z) in a population of that prevalence, [n]."""
        d = self.distance
        at = (logits - self.shift - self.trained) / self.slope / d + d / 2
        rare = norm.logpdf(at, d)
        if self.kind == "hidden":
            rare = np.logaddexp(np.log(0.7) + rare, np.log(0.3) + norm.logpdf(at, 0))
        elif self.kind == "heavy":
            rare = np.logaddexp(np.log(0.5) + rare, np.log(0.5) + norm.logpdf(at, 2 * d))
        return expit(rare - norm.logpdf(at, 0) + logit(prevalence))
