"""The checks of `calirare doctor` would notice a wrong kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

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


def test_the_page_of_the_kernels_names_those_without_a_cuda_twin_and_describes_every_check():
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    without = text.partition("These have no CUDA twin:")[2].partition("`calirare doctor`")[0]
    operators = {path.stem for path in (ROOT / "csrc" / "ops").glob("*.h")}
    twins = {path.stem for path in (ROOT / "csrc" / "cuda").glob("*.cu")}
    assert operators - twins
    assert [name for name in sorted(operators - twins) if f"`{name}`" not in without] == []
    assert [name for name in CHECKS if name not in text] == []
    assert [name for name in ("confidence_bins", "eice_term", "masked_gram") if f"\n## {name}\n" not in text] == []


def _tiles(write):
    def wrong(a, kind, x, out):
        write(a, kind, x, out)
        out[-1] += 1e-6 * (kind == "tiles")

    return wrong


def _gradients(right):
    return lambda tape: SimpleNamespace(dense=lambda: right(tape).dense().flip(0))


def _messages(right, wanted):
    """Wrong where `wanted` of inputs and directions."""
    return lambda inputs, z, directions: right(inputs, z, directions) * (1 + 1e-6 if wanted(inputs, directions) else 1)


def _interval(right, many):
    def shifted(a, messages, logits, shift, residuals, low, high, *, scale, bias):
        step = 1 / messages.shape[1] if (messages.shape[1] > 1024) == many else 0
        return right(a, messages, logits, shift, residuals, low, high - step, scale=scale, bias=bias)

    return shifted


def _bins(right, weighted):
    def wrong(probabilities, labels, n_bins, *, weights):
        sums, refused = right(probabilities, labels, n_bins, weights=weights)
        return (sums * (1 + 1e-6) if (weights is not None) == weighted else sums), refused

    return wrong


def _term(right, k, **options):
    return lambda logits, *rest: right(logits, *rest, **(options if logits.shape[1] == k else {}))


def _plus(right):
    return lambda *given: right(*given) + 1e-6


def _part(right, part):
    return lambda *given: [found + 1e-6 * (i == part) for i, found in enumerate(right(*given))]


def _solved(right, factor=1.0, **options):
    return lambda tape, rhs, *, damping, tolerance: right(
        tape, rhs, damping=damping * factor, tolerance=tolerance, **options
    )


DIFFERS = "differs from its reference"
# Check, the operator that is wrong in it, how, and what is said.
WRONG = [
    ("propagate", "propagate", lambda right: lambda a, x: right(a, x) * (1 + 1e-6), DIFFERS),
    ("propagate", "write", _tiles, "in tiles"),
    ("node_gradients", "node_gradients", _gradients, DIFFERS),
    ("solve_inverse_hvp", "hessian_product", _plus, DIFFERS),
    ("solve_inverse_hvp", "solve_inverse_hvp", partial(_solved, factor=1.001), DIFFERS),
    ("solve_inverse_hvp", "solve_inverse_hvp", partial(_solved, max_iterations=1), "did not converge"),
    ("loo_messages", "loo_messages", partial(_messages, wanted=lambda x, _: isinstance(x, Csr)), DIFFERS),
    ("loo_messages", "loo_messages", partial(_messages, wanted=lambda x, _: not isinstance(x, Csr)), DIFFERS),
    (
        "loo_messages",
        "loo_messages",
        partial(_messages, wanted=lambda _, directions: not isinstance(directions.first, torch.Tensor)),
        DIFFERS,
    ),
    *(("message_interval", "message_interval", partial(_interval, many=many), DIFFERS) for many in (False, True)),
    *(("network_loss", "network_loss", partial(_part, part=part), DIFFERS) for part in (0, 1)),
    ("masked_gram", "masked_gram", _plus, DIFFERS),
    *(("confidence_bins", "confidence_bins", partial(_bins, weighted=each), DIFFERS) for each in (False, True)),
    (
        "confidence_bins",
        "confidence_bins",
        lambda right: lambda *parts, weights: (right(*parts, weights=weights)[0], 0),
        "refuses 0 rows where its reference refuses 2",
    ),
    *(
        ("eice_term", "eice_term", partial(_term, k=k, **options), DIFFERS)
        for options in ({"coverage": 0.901}, {"paths": ("confidence", "scores")}, {"paths": ("scores",)})
        for k in (2, 3)
    ),
    (
        "jackknife_interval",
        "jackknife_interval",
        lambda right: lambda scores, residuals, low, high: right(scores, residuals, low + 1 / 101, high),
        DIFFERS,
    ),
]


@pytest.mark.parametrize(("check", "operator", "wrong", "said"), WRONG)
def test_a_wrong_kernel_is_noticed(check, operator, wrong, said, monkeypatch):
    monkeypatch.setattr(self_check, operator, wrong(getattr(self_check, operator)))
    assert said in CHECKS[check](CPU)
