from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare_ext import PATHS, eice_term
from tests.helpers.problems import normal


def problem(k: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    targets = torch.arange(13) % k
    return (
        normal(9, k, seed=1),
        0.3 * normal(9, k - 1, 13, seed=2),
        normal(13, k, seed=3),
        0.3 * normal(13, k - 1, seed=4),
        targets,
    )


def by_numpy(logits, change, own_logits, own_change, targets, coverage: float, fault: str = "") -> float:
    """Algorithm 1, node by node and model by model; with a fault, one of FAULTS."""
    z, dz, own, down = logits.numpy(), change.numpy(), own_logits.numpy(), own_change.numpy()
    dz, down = dz * (fault != "changes dropped"), down * (fault != "own changes dropped")

    def softmax(differences: np.ndarray) -> np.ndarray:
        full = np.concatenate([[0.0], differences])
        return np.exp(full) / np.exp(full).sum()

    residuals = []
    for i, y in enumerate(targets.tolist()):
        watched = 1 if z.shape[1] == 2 else int(own[i].argmax())
        f = softmax(own[i, 1:] - own[i, 0] + down[i])[watched]
        residuals.append(abs(float((y == watched) != (fault == "labels turned round")) - f))
    residuals = np.array(residuals) * {"residual sign": -1.0, "residuals dropped": 0.0}.get(fault, 1.0)
    if fault == "residual of the next model":
        residuals = np.roll(residuals, 1)
    total = 0.0
    for v in range(len(z)):
        predicted = int(z[v].argmin() if fault == "least likely class" else z[v].argmax())
        watched = 1 if z.shape[1] == 2 else predicted
        f = np.array([softmax(z[v, 1:] - z[v, 0] + dz[v, :, i])[watched] for i in range(dz.shape[2])])
        method = "lower" if fault == "not interpolated" else "linear"
        low = np.quantile(f - residuals, (1 - coverage) / 2, method=method)
        high = np.quantile(f + residuals, 1 - (1 - coverage) / 2, method=method)
        uncertainty = high if fault == "upper end alone" else (low + high) / 2
        if z.shape[1] == 2 and predicted == 0 and fault != "class 1 for every node":
            uncertainty = 1 - uncertainty
        gap = uncertainty - softmax(z[v, 1:] - z[v, 0])[predicted]
        total += gap if fault == "sign kept" else abs(gap)
    return total if fault == "sum" else total / len(z)


FAULTS = (
    "changes dropped",
    "own changes dropped",
    "labels turned round",
    "residual sign",
    "residuals dropped",
    "residual of the next model",
    "least likely class",
    "not interpolated",
    "upper end alone",
    "class 1 for every node",
    "sign kept",
    "sum",
)


def value_matches(value: float, parts: tuple[Tensor, ...], coverage: float) -> None:
    assert value == pytest.approx(by_numpy(*parts, coverage), rel=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("coverage", [0.5, 0.95])
def test_value_is_algorithm_1_by_numpy(k: int, coverage: float) -> None:
    value_matches(float(eice_term(*problem(k), coverage=coverage)), problem(k), coverage)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_algorithm_1_is_rejected(fault: str) -> None:
    k = 3 if fault == "least likely class" else 2  # of two classes one gap is the other's
    with pytest.raises(AssertionError):
        value_matches(by_numpy(*problem(k), 0.9, fault), problem(k), 0.9)


@pytest.mark.parametrize("k", [2, 3])
def test_gradient_agrees_with_finite_differences(k: int) -> None:
    logits, change, own_logits, own_change, targets = problem(k)
    logits.requires_grad_()
    own_logits.requires_grad_()

    def value(z: Tensor, own: Tensor) -> Tensor:
        return eice_term(z, change, own, own_change, targets)

    assert torch.autograd.gradcheck(value, (logits, own_logits), eps=1e-7, atol=1e-9, rtol=1e-5)
    assert all(
        float(g.abs().max()) > 1e-4 for g in torch.autograd.grad(value(logits, own_logits), (logits, own_logits))
    )


@pytest.mark.parametrize("k", [2, 3])
def test_paths_add_up_and_each_carries_something(k: int) -> None:
    logits, change, own_logits, own_change, targets = problem(k)

    def gradients(paths: tuple) -> Tensor:
        z, own = logits.clone().requires_grad_(), own_logits.clone().requires_grad_()
        value = eice_term(z, change, own, own_change, targets, paths=paths)
        if not paths:
            assert not value.requires_grad
            return torch.zeros(z.numel() + own.numel(), dtype=torch.float64)
        parts = torch.autograd.grad(value, (z, own), allow_unused=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts])

    alone = {path: gradients((path,)) for path in PATHS}
    assert all(float(part.abs().max()) > 1e-4 for part in alone.values())
    for count in range(len(PATHS) + 1):
        for paths in itertools.combinations(PATHS, count):
            expected = sum((alone[path] for path in paths), torch.zeros_like(gradients(())))
            assert float((gradients(paths) - expected).abs().max()) < 1e-15


def test_bad_arguments() -> None:
    logits, change, own_logits, own_change, targets = problem(2)
    with pytest.raises(ValueError, match="eice_term: paths must be among confidence, scores, residuals, got 'weights'"):
        eice_term(*problem(2), paths=("weights",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"eice_term: coverage must be in \(0.0, 1.0\), got 1.0"):
        eice_term(*problem(2), coverage=1.0)
    with pytest.raises(ValueError, match=r"eice_term: change must have shape \[9, 1, 13\], got \[9, 2, 13\]"):
        eice_term(logits, change.expand(9, 2, 13), own_logits, own_change, targets)
    with pytest.raises(TypeError, match="eice_term: own_logits must be float64 as logits is, got float32"):
        eice_term(logits, change, own_logits.float(), own_change, targets)
    with pytest.raises(TypeError, match="eice_term: targets must be int64, got int32"):
        eice_term(logits, change, own_logits, own_change, targets.int())
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=rf"eice_term: targets must be in \[0, 2\), got {wrong}"):
            eice_term(logits, change, own_logits, own_change, targets.clone().fill_(wrong))
    with pytest.raises(ValueError, match="eice_term: targets must have at least one label, got none"):
        eice_term(logits, change[:, :, :0], own_logits[:0], own_change[:0], targets[:0])
    with pytest.raises(ValueError, match="eice_term: logits must have at least two columns"):
        eice_term(logits[:, :1], change, own_logits, own_change, targets)


def test_a_score_that_is_no_number_is_not_hidden() -> None:
    logits, change, own_logits, own_change, targets = problem(2)
    change[4, 0, 7] = float("nan")
    assert torch.isnan(eice_term(logits, change, own_logits, own_change, targets))
