"""Whatever a program has set in torch, our numbers are those of a fresh process, and its settings are as before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier

import numpy as np
import pytest
import torch

import calirare
from calirare._util.torch_state import plain_torch
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task


@contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


GRAPH = rare_task(120)
STATES = {
    "float64": double,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "another device": lambda: torch.device("meta"),
}


def numbers(model, folder):
    """What a job says from training to a new node."""
    graph = GRAPH
    with rough_runs():
        outcome = calirare.train(graph, model=model, epochs=2, folds=0)
        outcome.save(folder)
        run = calirare.load(folder)
        said = [outcome.to_frame()["p_rare"], run.predict(graph)["p_rare"]]
        said += [
            calirare.Scorer.open(run, graph).score(graph.x[0], [1]).rare,
            np.array([outcome.explain([0])[0].log_odds]),
        ]
    return [np.asarray(values) for values in said]


@pytest.fixture(scope="module")
def plain_numbers(tmp_path_factory):
    """Returns a function that says what a model says in a process as it starts."""
    return cache(lambda model: numbers(model, tmp_path_factory.mktemp(model) / "plain"))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "state"), [*(("gcn", name) for name in STATES), ("trees", "another device")])
def test_numbers_do_not_depend_on_the_state(model, state, plain_numbers, tmp_path):
    want = plain_numbers(model)
    with STATES[state]():
        got = numbers(model, tmp_path / "other")
    for one, other in zip(got, want, strict=True):
        assert (one == other).all()


def test_a_run_read_in_inference_mode_works_outside_of_it(tmp_path):
    graph = rare_task()
    with rough_runs():
        outcome = calirare.train(graph, model="gcn", epochs=2, folds=0)
        outcome.save(tmp_path / "r")
        with torch.inference_mode():
            run, same = calirare.load(tmp_path / "r"), calirare.Graph.from_data(graph.to_data())
        want = outcome.predict(graph).p_rare
        assert (run.predict(graph).p_rare == want).all()
        assert (run.predict(same).p_rare == want).all()


def test_the_default_dtype_comes_back_when_the_last_thread_leaves():
    met = Barrier(2)

    def early() -> torch.dtype:
        with plain_torch():
            met.wait()
        seen = torch.get_default_dtype()  # the other thread is inside still, and waits
        met.wait()
        return seen

    @plain_torch()
    def late() -> torch.dtype:
        met.wait()
        met.wait()
        return torch.get_default_dtype()

    with double():
        with ThreadPoolExecutor(2) as pool:
            inside = pool.submit(late)
            assert pool.submit(early).result() is torch.float32
            assert inside.result() is torch.float32
        assert torch.get_default_dtype() is torch.float64


def test_it_comes_back_after_an_error():
    with double():
        with pytest.raises(TypeError):
            calirare.train("no graph")
        assert torch.get_default_dtype() is torch.float64
