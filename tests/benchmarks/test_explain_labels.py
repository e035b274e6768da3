"""The comparison of labels' effects: peers read the same network, and the score is 1 where effects add up."""

from __future__ import annotations

import pytest
import torch


def test_the_score_is_one_where_effects_add_up_and_none_where_they_say_nothing(bench):
    draw = torch.Generator().manual_seed(0)
    change = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    gone = torch.rand(30, 20, generator=draw) < 0.5
    said = 3 + gone.double() @ change
    score = bench("bench_explain_labels").datamodelling_score
    assert score(change, gone, said) == pytest.approx(1)
    assert score(-change, gone, said) == pytest.approx(-1)
    assert abs(score(torch.randn(20, 4, generator=draw, dtype=torch.float64), gone, said)) < 0.5
