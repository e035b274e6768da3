"""Labelled logits that calibrators are fitted on."""

from __future__ import annotations

import numpy as np
import torch


def problem(n: int = 600, k: int = 2, seed: int = 0, share: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns overconfident logits with a shifted bias, and labels; class 1 is rare."""
    rng = np.random.default_rng(seed)
    shares = np.array([1 - share, share]) if k == 2 else np.full(k, 1 / k)
    labels = rng.choice(k, size=n, p=shares)
    logits = rng.normal(size=(n, k)) + 1.2 * np.eye(k)[labels]
    logits[:, 0] -= 0.5
    return torch.from_numpy(2.0 * logits), torch.from_numpy(labels)


def drawn_logits(
    y: np.ndarray, rng: np.random.Generator, *, spread: float = 2.0, slope: float = 1.0, shift: float = 0.0
) -> torch.Tensor:
    """Returns logits [n, 2] of a network of a balanced world: slope times the classes' true log-ratio, plus shift.

    The ratio is normal, +/- spread^2 / 2 with standard deviation `spread`, so that it is its own log-likelihood ratio:
    the true P(class 1) of share pi is sigmoid((z - shift) / slope + logit(pi)).
    """
    ratio = rng.normal(np.where(y == 1, 0.5, -0.5) * spread**2, spread)
    return torch.from_numpy(np.stack([np.zeros(len(y)), slope * ratio + shift], 1))
