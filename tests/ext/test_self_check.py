"""The checks of `calirare doctor` would notice a wrong kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calirare_ext import Csr, self_check
from calirare_ext.self_check import CHECKS

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(CHECKS))
def test_a_right_kernel_passes(name, device):
    assert CHECKS[name](device) is None


def test_every_operator_is_checked():
    """Those of csrc/ops, and eice_term of csrc/solvers; some are parts of others."""
    within = {"masked_sum": "loo_messages", "block_cg": "solve_inverse_hvp", "network_passes": "network_loss"}
    within["propagate_tiles"] = "propagate"
    operators = {path.stem for path in (ROOT / "csrc" / "ops").glob("*.h")} - {"device"}
    assert {within.get(name, name) for name in operators | {"eice_term"}} <= set(CHECKS)


def test_a_wrong_propagation_is_noticed(monkeypatch):
    right = self_check.propagate
    monkeypatch.setattr(self_check, "propagate", lambda a, x: right(a, x) * (1 + 1e-6))
    assert "differs from its reference" in CHECKS["propagate"](CPU)


def test_the_page_of_the_kernels_names_those_without_a_cuda_twin_and_describes_every_check():
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    without = text.partition("These have no CUDA twin:")[2].partition("`calirare doctor`")[0]
    operators = {path.stem for path in (ROOT / "csrc" / "ops").glob("*.h")}
    twins = {path.stem for path in (ROOT / "csrc" / "cuda").glob("*.cu")}
    assert operators - twins
    assert [name for name in sorted(operators - twins) if f"`{name}`" not in without] == []
    assert [name for name in CHECKS if name not in text] == []
    assert [name for name in ("confidence_bins", "eice_term", "masked_gram") if f"\n## {name}\n" not in text] == []


def test_wrong_tiles_are_noticed(monkeypatch):
    right = self_check.write

    def wrong(a, kind, x, out):
        right(a, kind, x, out)
        out[-1] += 1e-6 * (kind == "tiles")

    monkeypatch.setattr(self_check, "write", wrong)
    assert CHECKS["propagate"](CPU).endswith("in tiles")


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


@pytest.mark.parametrize("part", [0, 1])
def test_a_wrong_loss_or_gradient_is_noticed(monkeypatch, part):
    right = self_check.network_loss

    def wrong(*given):
        found = list(right(*given))
        found[part] = found[part] + 1e-6
        return found

    monkeypatch.setattr(self_check, "network_loss", wrong)
    assert "differs from its reference" in CHECKS["network_loss"](CPU)


def test_a_wrong_kernel_matrix_is_noticed(monkeypatch):
    right = self_check.masked_gram
    monkeypatch.setattr(self_check, "masked_gram", lambda *parts: right(*parts) + 1e-6)
    assert "differs from its reference" in CHECKS["masked_gram"](CPU)


@pytest.mark.parametrize("weighted", [False, True])
def test_wrong_sums_per_bin_are_noticed(monkeypatch, weighted):
    right = self_check.confidence_bins

    def wrong(probabilities, labels, n_bins, *, weights):
        sums, refused = right(probabilities, labels, n_bins, weights=weights)
        return (sums * (1 + 1e-6) if (weights is not None) == weighted else sums), refused

    monkeypatch.setattr(self_check, "confidence_bins", wrong)
    assert "differs from its reference" in CHECKS["confidence_bins"](CPU)
    monkeypatch.setattr(self_check, "confidence_bins", lambda *parts, weights: (right(*parts, weights=weights)[0], 0))
    assert CHECKS["confidence_bins"](CPU) == "refuses 0 rows where its reference refuses 2"


@pytest.mark.parametrize("options", [{"coverage": 0.901}, {"paths": ("confidence", "scores")}, {"paths": ("scores",)}])
@pytest.mark.parametrize("k", [2, 3])
def test_a_wrong_eice_term_or_gradient_is_noticed(monkeypatch, options, k):
    right = self_check.eice_term

    def wrong(logits, *rest):
        return right(logits, *rest, **(options if logits.shape[1] == k else {}))

    monkeypatch.setattr(self_check, "eice_term", wrong)
    assert "differs from its reference" in CHECKS["eice_term"](CPU)


def test_a_wrong_order_statistic_is_noticed(monkeypatch):
    right = self_check.jackknife_interval

    def shifted(scores, residuals, low, high):
        return right(scores, residuals, low + 1 / 101, high)

    monkeypatch.setattr(self_check, "jackknife_interval", shifted)
    assert "differs from its reference" in CHECKS["jackknife_interval"](CPU)
