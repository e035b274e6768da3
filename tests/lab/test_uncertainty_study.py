from __future__ import annotations

import pytest
import torch

from calirare_lab.studies.uncertainty import MAPS, PLAIN, judge
from tests.helpers.pages import committed


def test_judgement_by_hand() -> None:
    right = torch.tensor([0.9, 0.6, 0.8, 0.1], dtype=torch.float64)
    confidence = torch.tensor([0.8, 0.8, 0.8, 0.5], dtype=torch.float64)
    chosen = torch.tensor([True, True, True, False])
    exact = judge(right, confidence, right, chosen)
    assert exact["correlation"] == pytest.approx(1.0)
    assert exact["bias"] == pytest.approx(0.0)
    assert exact["uncertainty_error"] == 0.0
    flat = judge(confidence, confidence, right, chosen)
    assert flat["correlation"] == 0.0
    assert flat["bias"] == pytest.approx(-0.1)  # mean of .1, .2 and 0


def test_the_committed_study_names_its_winner() -> None:
    found = committed("jackknife_uncertainty")
    worst = {
        name: min(regime["definitions"][name]["correlation, all"]["mean"] for regime in found["regimes"].values())
        for name in (*PLAIN, *MAPS)
    }
    assert found["winner"] == max(worst, key=worst.__getitem__)
    assert len(found["seeds"]) >= 10
