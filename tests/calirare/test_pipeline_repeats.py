"""calirare.train: the same call, a copy, a saved outcome and other test labels give the same numbers."""

from __future__ import annotations

import copy

import numpy as np
import torch

import calirare
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


def test_the_same_call_gives_the_same_numbers_and_leaves_the_random_state():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 (the global state is what is watched)
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    a = calirare.train(rare_task(), preset="paper", epochs=8, folds=2)
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    torch.manual_seed(6)
    b = calirare.train(rare_task(), preset="paper", epochs=8, folds=2)
    assert_identical(a.logits, b.logits)
    assert_identical(a.jackknife.ice, b.jackknife.ice)
    assert a.calibrator.state() == b.calibrator.state()


def test_what_was_trained_can_be_copied_and_saved(tmp_path):
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=5, folds=0)
    torch.save(outcome, tmp_path / "trained.pt")
    for other in (torch.load(tmp_path / "trained.pt", weights_only=False), copy.deepcopy(outcome)):
        assert_identical(other.model.logits(other.graph), outcome.logits)
        assert other.fit.gradient_norm() == outcome.fit.gradient_norm()
        assert other.calibrator.state() == outcome.calibrator.state()
