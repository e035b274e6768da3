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
