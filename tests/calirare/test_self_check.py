"""The checks of `calirare doctor` would notice a wrong kernel."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import self_check
from calirare_ext.self_check import CHECKS

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", list(CHECKS))
def test_a_right_kernel_passes(name):
    assert CHECKS[name](CPU) is None


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


def test_a_wrong_order_statistic_is_noticed(monkeypatch):
    right = self_check.jackknife_interval

    def shifted(scores, residuals, low, high):
        return right(scores, residuals, low + 1 / 101, high)

    monkeypatch.setattr(self_check, "jackknife_interval", shifted)
    assert "differs from its reference" in CHECKS["jackknife_interval"](CPU)
