"""Noise among many classes: rates and directions of simulated labels are found; confident learning's count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from calirare.explain.audit import confident_joint
from calirare.explain.audit.class_noise import _at, _Sample, class_noise

K, M = 5, 900


def drawn(transition: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns logits of the true classes as a perfect model has them [m, k], given and true classes, of a T [k, k]."""
    rng = np.random.default_rng(seed)
    true = rng.integers(K, size=M)
    x = rng.normal(size=(M, K)) + 3 * np.eye(K)[true]
    given = np.array([rng.choice(K, p=transition[c]) for c in true])
    return 3 * x, given, true  # equal shares, unit variance: exact


def uniform(rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(K) + rate * (1 - np.eye(K)) / (K - 1)


def pairs(rate: float) -> np.ndarray:
    return (1 - rate) * np.eye(K) + rate * np.roll(np.eye(K), 1, axis=1)


def one(rate: float) -> np.ndarray:
    out = np.eye(K)
    out[0] = uniform(rate)[0]
    return out


def judged(transition: np.ndarray, offsets: np.ndarray | None = None):
    import torch

    logits, given, true = drawn(transition)
    counted = confident_joint(torch.from_numpy(np.exp(log_softmax(logits, axis=1))), torch.from_numpy(given)).numpy()
    return class_noise(logits, given, np.zeros((M, K)) if offsets is None else offsets, counted), given != true, given


@pytest.mark.slow
@pytest.mark.parametrize("transition", [uniform(0.1), pairs(0.1), one(0.4)], ids=["alike", "pairs", "one class"])
def test_wrong_labels_are_found_and_counted(transition: np.ndarray) -> None:
    noise, wrong, given = judged(transition)
    p = noise.p_wrong
    assert p.shape == (M,)
    assert p.min() >= 0
    assert p.max() <= 1
    expected, low, high = noise.count(np.ones(M, dtype=bool))
    assert expected == pytest.approx(p.sum())
    assert low <= wrong.sum() <= high + 1
    assert expected == pytest.approx(wrong.sum(), rel=0.3)
    assert roc_auc_score(wrong, p) > 0.97
    assert noise.clean < 0.05
    if not transition[1, 0] and transition[0, 1] != transition[1, 2]:  # of the class that is often wrong hardly a label
        assert noise.count(given == 0)[0] < expected / 5


@pytest.mark.slow
def test_clean_labels_are_left_alone() -> None:
    noise, _, _ = judged(np.eye(K))
    assert noise.count(np.ones(M, dtype=bool))[0] < 3
    assert noise.p_wrong.max() < 0.5
    assert noise.clean > 0.6


@pytest.mark.slow
def test_a_multiple_of_the_offsets_per_label_says_nothing() -> None:
    alike = np.repeat(np.random.default_rng(1).normal(size=(M, 1)), K, axis=1)
    assert np.allclose(judged(uniform(0.1), alike)[0].p_wrong, judged(uniform(0.1))[0].p_wrong, rtol=0, atol=1e-9)


def test_labels_drawn_in_other_numbers_are_told_by_the_offsets() -> None:
    """A class that was drawn ten times as often: with the offsets it is not taken for a class that others slip into."""
    import torch

    rng = np.random.default_rng(3)
    logits, given, _ = drawn(np.eye(K), seed=2)
    kept = (given == 0) | (rng.random(M) < 0.1)
    logits, given = logits[kept], given[kept]
    offsets = np.where(np.arange(K) == 0, np.log(10), 0.0) + np.zeros((len(given), 1))
    counted = confident_joint(torch.from_numpy(np.exp(log_softmax(logits, axis=1))), torch.from_numpy(given)).numpy()
    assert class_noise(logits, given, offsets, counted).clean > 0.5


def test_the_gradient_is_that_of_the_value() -> None:
    logits, given, _ = drawn(uniform(0.1))
    rng = np.random.default_rng(0)
    asked = _Sample(np.maximum(log_softmax(logits[:80], axis=1), -30), given[:80], rng.normal(size=(80, K)))
    theta, t = 0.3 * rng.normal(size=K), uniform(0.07)
    _, gradient, information = _at(asked, t, theta)
    for i, step in enumerate(1e-5 * np.eye(K)):
        slope = (_at(asked, t, theta + step)[0] - _at(asked, t, theta - step)[0]) / 2e-5
        assert slope == pytest.approx(gradient[i], rel=1e-5, abs=1e-6)
    assert np.linalg.eigvalsh(information).min() > 0


def test_the_joint_of_six_labels():
    # Thresholds: class 0: mean(.9, .8, .1, .65) = .6125; class 1: mean(.7, .3) = .5.
    first = torch.tensor([0.9, 0.8, 0.1, 0.65, 0.3, 0.7], dtype=torch.float64)
    given = torch.tensor([0, 0, 0, 0, 1, 1])
    # Counted: three of class 0 as 0, one (.1) as 1; of class 1 one as 1, one (.7) as 0.
    joint = confident_joint(torch.stack([first, 1 - first], 1), given)
    assert joint.tolist() == [[3, 1], [1, 1]]


def test_rows_sum_to_the_labels_of_a_class_where_some_reach_no_threshold():
    first = torch.tensor([0.9, 0.5, 0.2, 0.55], dtype=torch.float64)
    given = torch.tensor([0, 0, 1, 1])
    # Thresholds .7 and .625: the second and fourth label reach none and count with the others of their class.
    joint = confident_joint(torch.stack([first, 1 - first], 1), given)
    assert joint.tolist() == [[2, 0], [0, 2]]


def test_a_class_without_a_label_is_nobodys_true_class():
    p = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], dtype=torch.float64)
    joint = confident_joint(p, torch.tensor([0, 0, 1]))
    assert joint[:, 2].tolist() == [0, 0, 0]
    assert joint.sum(1).tolist() == [2, 1, 0]
