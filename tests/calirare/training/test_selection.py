from __future__ import annotations

import pytest
import torch

from calirare._util.errors import InputError
from calirare.models.crossfit import choose, loo_loss

LABELS = torch.tensor([0, 0, 0, 1])


def test_the_loss_is_that_of_the_target_population() -> None:
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, -1.0]]).double()
    losses = -torch.log_softmax(logits, 1)[torch.arange(4), LABELS]
    every_class_alike = (float(losses[:3].mean()) + float(losses[3])) / 2
    assert loo_loss(logits, LABELS) == pytest.approx(every_class_alike, rel=1e-12)
    assert loo_loss(logits, LABELS, "population") == pytest.approx(float(losses.mean()), rel=1e-12)


def test_the_lowest_leave_one_out_loss_wins_and_ties_go_to_the_first() -> None:
    asked = []

    def loss(decay: float) -> float:
        asked.append(decay)
        return {0.1: 0.5, 0.2: 0.25, 0.3: 0.25, 0.4: 1.0}[decay]

    assert choose(loss, (0.1, 0.2, 0.3, 0.4), "weight decay") == 0.2
    assert asked == [0.1, 0.2, 0.3, 0.4]


def test_a_loss_that_is_no_number_is_never_chosen() -> None:
    assert choose(lambda decay: float("nan") if decay == 0.1 else 7.0, (0.1, 0.2), "weight decay") == 0.2
    with pytest.raises(InputError, match=r"hops auto: no leave-one-out loss is finite.* lower the learning rate"):
        choose(lambda hops: float("inf"), (1, 2), "hops")
