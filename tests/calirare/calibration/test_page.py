"""The page on probabilities can be followed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from tests.helpers.logits import drawn_logits

PAGE = Path(__file__).resolve().parents[3] / "docs" / "probability.md"


def test_the_example_runs(capsys):
    rng = np.random.default_rng(0)
    classes = np.concatenate([np.repeat([0, 1], 20), rng.random(1500) < 0.05]).astype(int)
    everyone = (rng.random(2000) < 0.05).astype(int)
    y = torch.from_numpy(classes)
    names = {
        "y": y,
        "in_train": torch.arange(len(y)) < 40,
        "loo_logits": drawn_logits(classes, rng, spread=3.0),
        "logits": drawn_logits(everyone, rng, spread=3.0),
        "unlabelled": torch.arange(2000),
        "next_logits": drawn_logits((rng.random(2000) < 0.01).astype(int), rng, spread=3.0),
        "sample_weights": len(y) / 2 / torch.bincount(y).double()[y],
    }
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(example, "probability.md", "exec"), names)
    said = capsys.readouterr().out
    assert "the base rate comes from the 1500 validation labels; the 40 training labels only sharpen P" in said
    assert "times the observed rate" in said
    assert "a precision of at least 0.6 with confidence 0.9: P(rare) of at least" in said
    assert names["p_next"].transform(names["next_logits"])[:, 1].mean() < 0.02
