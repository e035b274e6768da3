from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calirare.multilabel import experiments
from calirare.multilabel.experiments import METHODS, run_cell, run_experiments, summarise
from calirare.multilabel.graphs import save_multilabel
from calirare.multilabel.training import TrainOptions
from tests.helpers.multilabel import small_data

QUICK = TrainOptions(hidden=8, learning_rate=0.02, max_epochs=3, patience=2, batch_size=48)


def cell(seed, copula, hamming):
    """A cell with given canonical error and Hamming loss for each method."""
    return {
        "data": "one",
        "seed": seed,
        "beta": 0.3,
        "methods": {m: {"copula": copula[i], "hamming_loss": hamming[i]} for i, m in enumerate(METHODS)},
    }


def test_a_cell_measures_every_method_and_is_reproducible(tmp_path):
    save_multilabel(small_data(150), tmp_path / "small.npz")
    found = run_cell(str(tmp_path / "small.npz"), 1, options=QUICK)
    assert set(found["methods"]) == set(METHODS)
    assert {
        "copula",
        "copula_floor",
        "kde_residual",
        "marginal_ece",
        "hamming_loss",
        "macro_f1",
        "micro_f1",
        "subset_accuracy",
        "nll",
    } <= set(found["methods"]["cmlcc"])
    # dividing logits by a positive number moves no decision
    assert found["methods"]["bce"]["hamming_loss"] == found["methods"]["bce_temperature"]["hamming_loss"]
    assert found == run_cell(str(tmp_path / "small.npz"), 1, options=QUICK)
    assert json.loads(json.dumps(found)) == found


def test_cells_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    calls = []

    def fake(name, seed, **_):
        calls.append((name, seed))
        return cell(seed, [0.1] * 4, [0.2] * 4) | {"data": name}

    monkeypatch.setattr(experiments, "run_cell", fake)
    found = run_experiments(tmp_path, sets=("b", "a"), seeds=(0, 1))
    assert [(c["data"], c["seed"]) for c in found] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    assert len(calls) == 4
    (tmp_path / "a_1.json").unlink()
    assert run_experiments(tmp_path, sets=("b", "a"), seeds=(0, 1)) == found
    assert calls[4:] == [("a", 1)]
    assert not list(tmp_path.glob("*.partial"))


def test_summary_by_hand():
    cells = [cell(0, [0.10, 0.1, 0.1, 0.08], [0.20, 0.2, 0.2, 0.20]), cell(1, [0.12, 0.1, 0.1, 0.11], [0.2] * 4)]
    part = summarise(cells)["sets"]["one"]
    assert part["methods"]["cmlcc"]["copula"] == pytest.approx([0.095, np.std([0.08, 0.11], ddof=1)], rel=1e-12, abs=0)
    paired = part["cmlcc_against_bce"]["copula"]
    assert paired["mean"] == pytest.approx(-0.015, rel=1e-12, abs=0)
    half = 12.706204736432095 * np.std([-0.02, -0.01], ddof=1) / math.sqrt(2)
    assert paired["half_width"] == pytest.approx(half, rel=1e-9, abs=0)
    assert paired["below_zero"] == 2
    assert part["betas"] == {"0.3": 2}
    assert part["passes"]


@pytest.mark.parametrize(
    ("copula", "hamming", "passes"), [(0.09, 0.203, True), (0.09, 0.205, False), (0.11, 0.19, False)]
)
def test_a_set_passes_with_less_error_and_a_hamming_loss_within_two_per_cent(copula, hamming, passes):
    summary = summarise([cell(0, [0.1, 0.1, 0.1, copula], [0.2, 0.2, 0.2, hamming])])
    assert summary["sets"]["one"]["passes"] == passes
    assert summary["sets_passed"] == int(passes)
