"""Label sets: membership by hand, and coverage of every class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare.calibration import label_sets


def drawn(n: int, seed: int, shares: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that overlap a good deal, and classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n, p=shares)
    return torch.from_numpy(rng.standard_normal((n, len(shares))) + 1.5 * np.eye(len(shares))[y]), torch.from_numpy(y)


@pytest.mark.parametrize("shares", [(0.95, 0.05), (0.7, 0.2, 0.1)])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_every_class_is_covered(shares: tuple[float, ...], coverage: float) -> None:
    inside = []
    for seed in range(40):
        (own, labels), (z, y) = drawn(500, seed, shares), drawn(4000, 1000 + seed, shares)
        sets = label_sets(z, own, labels, coverage)
        inside.append([float(sets[y == c, c].double().mean()) for c in range(len(shares))])
    means = np.mean(inside, 0)
    assert (means >= coverage - 0.015).all()
    assert (means <= coverage + 0.05).all()


def test_membership_by_hand() -> None:
    own = torch.tensor([[0.0, v] for v in (1.0, 2.0, 3.0, 4.0, -5.0)] + [[0.0, float("nan")]])
    labels = torch.tensor([1, 1, 1, 1, 0, 1])
    z = torch.tensor([[0.0, 0.5], [0.0, 1.0], [0.0, 2.5]])
    # of the 4 known scores of class 1, 0, 1 and 2 are lower or equal: 1, 2 and 3 > .3 * 5?
    assert label_sets(z, own, labels, 0.7)[:, 1].tolist() == [False, True, True]
    assert label_sets(z, own, labels, 0.7)[:, 0].tolist() == [True, True, True]  # one label excludes nothing at 70 %


def test_classes_with_few_labels_are_in_every_set() -> None:
    own, labels = drawn(60, 0, (0.9, 0.1))
    few = torch.cat([(labels == 0).nonzero()[:, 0], (labels == 1).nonzero()[:3, 0]])
    assert bool(label_sets(torch.tensor([[50.0, -50.0]]), own[few], labels[few])[0, 1])


def test_bad_input_is_refused() -> None:
    z, y = drawn(30, 0, (0.5, 0.5))
    with pytest.raises(ValueError, match="coverage"):
        label_sets(z, z, y, 0.0)
    with pytest.raises(ValueError, match="own_logits"):
        label_sets(z, z[:4], y)
