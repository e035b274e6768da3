"""Columns of transactions: against naive loops, and what is later, or not known yet, changes none of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from calirare import Transactions
from tests.helpers.past import Past
from tests.helpers.tolerance import unit_roundoff

WINDOWS, DELAY, BATCH, RAW = (2, 5, 20), 3, 4, 3  # raw: amount, age and kind
MODES = ("transaction", "batch")


def table(seed, n=70, *, third=False, accounts=False):
    """A small table with ties in time, unknown labels, empty cells and times before 0."""
    draw = np.random.default_rng(seed)
    names = [f"a{k}" for k in range(6)]
    frame = pd.DataFrame({"t": draw.integers(-8, 24, n), "card": draw.choice(names, n)})
    frame["shop"] = draw.choice(names if accounts else ["x", "y", "z"], n)
    if third:
        frame["device"] = draw.choice(["p", "q", None], n)
    frame["amount"] = draw.integers(0, 400, n) / 4
    frame["age"] = np.where(draw.random(n) < 0.2, np.nan, draw.integers(20, 60, n))
    frame["city"] = draw.choice(["u", "v", "w", None], n)
    frame["kind"] = draw.choice(["web", "pos"], n)
    frame["y"] = draw.choice(["1", "0", None], n, p=[0.3, 0.5, 0.2])
    return frame


def read(frame, mode, **options):
    entities = [name for name in ("card", "shop", "device") if name in frame]
    how = {
        "windows": WINDOWS,
        "label_delay": DELAY,
        "batch": BATCH,
        "amount": "amount",
        "id": "none",
        "categories": "city",
    } | options
    return Transactions(frame, "t", "y", entities, known_at=mode, **how).graph()


def reference(frame, mode, shared=()):
    rows = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")]
    for row in rows:
        row["y"] = None if row["y"] is None else int(row["y"])
    parties = [name for name in ("card", "shop", "device") if name in frame]
    return Past(rows, parties, shared, WINDOWS, ["age"], ["city"], DELAY, BATCH if mode == "batch" else 0).columns()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("seed", "kind"), [(0, {}), (1, {"third": True}), (2, {"accounts": True})])
def test_columns_are_those_of_naive_loops(seed, kind, mode):
    frame = table(seed, 45, **kind)
    shared = ("card", "shop") if kind.get("accounts") else ()
    graph, wanted = read(frame, mode, shared=shared or "none"), reference(frame, mode, shared)
    assert set(graph.feature_names[RAW:]) == set(wanted)
    for name, got in zip(graph.feature_names[RAW:], graph.x.double().T[RAW:].numpy(), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted[name]), name)
        # Squares, means and facts are held in float32; a difference of squares loses as much of the larger one.
        bound = 64 * unit_roundoff(torch.float32) * (1 + np.abs(wanted[name]) + (1e4 if "spread" in name else 0))
        assert not (np.abs(got - wanted[name]) > bound).any(), name


def same_rows(one, other, rows):
    return torch.equal(one.x[rows].nan_to_num(-7), other.x[rows].nan_to_num(-7))


def spoiled(frame, later, seed):
    """The table with rows changed in everything but their place, and the table without them."""
    draw = np.random.default_rng(seed)
    changed = frame.copy()
    for name in ("card", "shop", "amount", "age", "y"):
        changed.loc[later, name] = draw.permutation(frame[name].to_numpy())[: later.sum()]
    changed.loc[later, "amount"] *= 1000
    return changed, frame[~later]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_is_later_changes_no_column(mode):
    for seed in range(2):
        frame = table(seed, 50, accounts=seed == 1)
        start = 4 * (seed + 2)  # of a batch, too
        later = (frame.t >= start).to_numpy()
        graph, earlier = read(frame, mode, shared="none"), np.flatnonzero(~later)
        changed, without = spoiled(frame, later, seed)
        assert same_rows(read(changed, mode, shared="none"), graph, earlier)
        left = read(without, mode, shared="none")
        assert torch.equal(left.x.nan_to_num(-7), graph.x[earlier].nan_to_num(-7))
        assert not same_rows(read(changed, mode, shared="none"), graph, np.flatnonzero(later))


@pytest.mark.slow
def test_rows_of_a_batch_see_each_other_in_batch_mode_only():
    frame = table(5)
    later = (frame.t >= 10).to_numpy()  # in the middle of the batch from 8 to 12
    changed, _ = spoiled(frame, later, 5)
    earlier = np.flatnonzero(~later)
    assert same_rows(read(changed, "transaction"), read(frame, "transaction"), earlier)
    assert not same_rows(read(changed, "batch"), read(frame, "batch"), earlier)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_label_changes_nothing_before_its_delay_has_passed(mode):
    for seed in range(2):
        frame = table(seed, 50)
        at = int(np.argsort(frame.t.to_numpy(), kind="stable")[20 + seed])
        when = int(frame.t[at])
        changed = frame.copy()
        changed.loc[at, "y"] = "0" if frame.y[at] == "1" else "1"
        one, other = read(frame, mode), read(changed, mode)
        known_from = when + DELAY
        if mode == "batch":  # scored at the end of the batch; never of the label's own
            seen = (frame.t // BATCH * BATCH + BATCH >= known_from) & (frame.t // BATCH > when // BATCH)
        else:
            seen = frame.t >= known_from
        assert same_rows(one, other, np.flatnonzero(~seen))
        assert not same_rows(one, other, np.flatnonzero(seen))


@pytest.mark.slow
def test_history_gives_the_columns_of_the_whole_table():
    frame = table(7).sort_values("t", kind="stable").reset_index(drop=True)
    cut = int((frame.t < 12).sum())
    whole = read(frame, "batch")
    later = read(frame[cut:], "batch", history=frame[:cut])
    assert later.n_nodes == len(frame) - cut
    assert later.feature_names == whole.feature_names
    assert torch.equal(later.x.nan_to_num(-7), whole.x[cut:].nan_to_num(-7))
