from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calirare_lab.multilabel.experiments import METHODS, run_cell, summarise
from calirare_multilabel.data import save_multilabel
from calirare_multilabel.training import BETAS, TrainOptions
from tests.helpers.multilabel import small_data

QUICK = TrainOptions(hidden=8, learning_rate=0.02, max_epochs=3, patience=2, batch_size=48)


def cell(seed: int, copula: dict[str, float], hamming: dict[str, float], validation: dict[str, list[float]]) -> dict:
    """A cell with given measures; models that are not named have the error and the Hamming loss 0.5."""
    models = ("bce", "bce_temperature", "focal", "cmlcc_0.1", "cmlcc_1")
    test = {m: {"copula": copula.get(m, 0.5), "hamming_loss": hamming.get(m, 0.5)} for m in models}
    return {"data": "one", "seed": seed, "test": test, "validation": validation}


@pytest.mark.slow
def test_a_cell_measures_every_model_and_is_reproducible(tmp_path):
    save_multilabel(small_data(150), tmp_path / "small.npz")
    found = run_cell(str(tmp_path / "small.npz"), 1, options=QUICK)
    betas = [f"cmlcc_{beta:g}" for beta in BETAS]
    assert list(found["test"]) == ["bce", "focal", *betas, "bce_temperature"]
    assert {"copula", "copula_floor", "kde_residual", "marginal_ece", "hamming_loss", "macro_f1", "micro_f1",
            "subset_accuracy", "nll"} <= set(found["test"]["focal"])  # fmt: skip
    # dividing logits by a positive number moves no decision
    assert found["test"]["bce"]["hamming_loss"] == found["test"]["bce_temperature"]["hamming_loss"]
    assert found == run_cell(str(tmp_path / "small.npz"), 1, options=QUICK)
    assert json.loads(json.dumps(found)) == found
    assert set(summarise([found])["sets"]["small"]["methods"]) == set(METHODS)


def test_summary_by_hand():
    # Pooled, beta 1 has the smaller error and keeps the Hamming loss; the second seed alone would refuse it.
    first = cell(0, {"bce": 0.10, "cmlcc_1": 0.08, "cmlcc_0.1": 0.09}, {"bce": 0.2, "cmlcc_1": 0.2},
                 {"0": [0.3, 0.20], "0.1": [0.2, 0.2], "1": [0.1, 0.190]})  # fmt: skip
    second = cell(1, {"bce": 0.12, "cmlcc_1": 0.11, "cmlcc_0.1": 0.10}, {"bce": 0.2, "cmlcc_1": 0.2},
                  {"0": [0.3, 0.20], "0.1": [0.2, 0.2], "1": [0.1, 0.212]})  # fmt: skip
    part = summarise([first, second])["sets"]["one"]
    assert part["beta"] == 1.0
    assert part["betas_per_seed"] == {"0.1": 1, "1": 1}
    assert part["methods"]["cmlcc"]["copula"] == pytest.approx([0.095, np.std([0.08, 0.11], ddof=1)], rel=1e-12, abs=0)
    assert part["methods"]["cmlcc_per_seed"]["copula"][0] == pytest.approx(0.09, rel=1e-12, abs=0)
    against = part["against_bce"]["cmlcc"]
    paired = against["paired"]["copula"]
    assert paired["mean"] == pytest.approx(-0.015, rel=1e-12, abs=0)
    half = 12.706204736432095 * np.std([-0.02, -0.01], ddof=1) / math.sqrt(2)
    assert paired["half_width"] == pytest.approx(half, rel=1e-9, abs=0)
    assert paired["below_zero"] == 2
    assert against["passes"]
    assert not part["against_bce"]["cmlcc_per_seed"]["passes"]  # Hamming loss of one seed is 0.5
