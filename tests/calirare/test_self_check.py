"""The checks of `calirare doctor` would notice a wrong kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calirare_ext import Csr, self_check
from calirare_ext.self_check import CHECKS

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", list(CHECKS))
def test_a_right_kernel_passes(name, device):
    assert CHECKS[name](device) is None


def test_every_operator_with_a_kernel_for_the_gpu_is_checked():
    """Those of csrc/cuda: masked_sum is a part of loo_messages, block_cg of solve_inverse_hvp."""
    within = {"masked_sum": "loo_messages", "block_cg": "solve_inverse_hvp"}
    kernels = {path.stem for path in (Path(__file__).resolve().parents[2] / "csrc" / "cuda").glob("*.cu")} - {"device"}
    assert {within.get(kernel, kernel) for kernel in kernels} <= set(CHECKS)


def test_a_wrong_propagation_is_noticed(monkeypatch):
    right = self_check.propagate
    monkeypatch.setattr(self_check, "propagate", lambda a, x: right(a, x) * (1 + 1e-6))
    assert "differs from its reference" in CHECKS["propagate"](CPU)


def test_wrong_gradients_are_noticed(monkeypatch):
    right = self_check.node_gradients

    class Wrong:
        def __init__(self, tape):
            self.tape = tape

        def dense(self):
            return right(self.tape).dense().flip(0)

    monkeypatch.setattr(self_check, "node_gradients", Wrong)
    assert "differs from its reference" in CHECKS["node_gradients"](CPU)


def test_a_wrong_hessian_and_a_wrong_solution_are_noticed(monkeypatch):
    product, solve = self_check.hessian_product, self_check.solve_inverse_hvp
    monkeypatch.setattr(self_check, "hessian_product", lambda tape, x: product(tape, x) + 1e-6)
    assert "differs from its reference" in CHECKS["solve_inverse_hvp"](CPU)
    monkeypatch.setattr(self_check, "hessian_product", product)

    def undamped(tape, rhs, *, damping, tolerance):
        return solve(tape, rhs, damping=damping * 1.001, tolerance=tolerance)

    monkeypatch.setattr(self_check, "solve_inverse_hvp", undamped)
    assert "differs from its reference" in CHECKS["solve_inverse_hvp"](CPU)

    def lazy(tape, rhs, *, damping, tolerance):
        return solve(tape, rhs, damping=damping, tolerance=tolerance, max_iterations=1)

    monkeypatch.setattr(self_check, "solve_inverse_hvp", lazy)
    assert "did not converge" in CHECKS["solve_inverse_hvp"](CPU)


@pytest.mark.parametrize("sparse", [False, True])
def test_wrong_messages_are_noticed(monkeypatch, sparse):
    right = self_check.loo_messages

    def wrong(inputs, z, directions):
        messages = right(inputs, z, directions)
        return messages * (1 + 1e-6) if isinstance(inputs, Csr) == sparse else messages

    monkeypatch.setattr(self_check, "loo_messages", wrong)
    assert "differs from its reference" in CHECKS["loo_messages"](CPU)


def test_wrong_messages_of_factors_are_noticed(monkeypatch):
    right = self_check.loo_messages

    def wrong(inputs, z, directions):
        messages = right(inputs, z, directions)
        return messages if isinstance(directions.first, torch.Tensor) else messages + 1e-6

    monkeypatch.setattr(self_check, "loo_messages", wrong)
    assert "differs from its reference" in CHECKS["loo_messages"](CPU)


@pytest.mark.parametrize("many", [False, True])
def test_a_wrong_interval_of_messages_is_noticed(monkeypatch, many):
    right = self_check.message_interval

    def shifted(a, messages, logits, shift, residuals, low, high, *, scale, bias):
        step = 1 / messages.shape[1] if (messages.shape[1] > 1024) == many else 0
        return right(a, messages, logits, shift, residuals, low, high - step, scale=scale, bias=bias)

    monkeypatch.setattr(self_check, "message_interval", shifted)
    assert "differs from its reference" in CHECKS["message_interval"](CPU)


def test_a_wrong_kernel_matrix_is_noticed(monkeypatch):
    right = self_check.masked_gram
    monkeypatch.setattr(self_check, "masked_gram", lambda *parts: right(*parts) + 1e-6)
    assert "differs from its reference" in CHECKS["masked_gram"](CPU)


def test_a_wrong_order_statistic_is_noticed(monkeypatch):
    right = self_check.jackknife_interval

    def shifted(scores, residuals, low, high):
        return right(scores, residuals, low + 1 / 101, high)

    monkeypatch.setattr(self_check, "jackknife_interval", shifted)
    assert "differs from its reference" in CHECKS["jackknife_interval"](CPU)
