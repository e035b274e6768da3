"""Accounts of simulated money laundering, trained on what was known before a day and scored after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calirare import Graph
from detection.tasks import Task

DAY = 100  # of 149: transfers before it, and frauds dated before it, are known when training starts
HALF = 0  # seed of the half of the accounts without fraud whose labels are known before that day


def amlsim(root: Path) -> Task:
    """Returns the accounts: one graph of the transfers before `DAY`, one of all transfers to score on.

    A fraud's `fraudStep` is the step of its first own suspicious transfer; those dated before `DAY` are known rare
    accounts, those from it on are the ones to be found. The frauds without a date (906 of 1,804) have no label: nobody
    knows when they came to be. Of the accounts without fraud a random half is known before and the other half scored.
    Training sees no transfer of `DAY` or later: columns and edges of its graph are made of earlier ones alone. Columns
    that grow with time (counts, sums) are per step seen, so that both graphs have them on one scale. Nothing is made of
    single amounts: in this simulation an account that is no fraud always sends the same amount, so that the spread of
    amounts alone has an AUPRC of 1.
    """
    accounts = pd.read_csv(root / "fraud/amlsim_accounts.csv.gz")
    transfers = pd.read_csv(root / "fraud/amlsim_transactions.csv.gz")
    fraud, step = accounts.isFraud.to_numpy() == 1, accounts.fraudStep.to_numpy()
    y = np.where(fraud, np.where(step >= 0, 1, -1), 0)
    rest = np.flatnonzero(~fraud)
    before = np.random.default_rng(HALF).permutation(rest)[: len(rest) // 2]
    known = np.union1d(np.flatnonzero((y == 1) & (step < DAY)), before)
    asked = np.setdiff1d(np.flatnonzero(y >= 0), known)
    end = int(transfers.time.max()) + 1
    first = as_of(accounts, transfers, y, DAY)
    return Task(first, as_of(accounts, transfers, y, end), known=known, asked=asked)


def as_of(accounts: pd.DataFrame, transfers: pd.DataFrame, y: np.ndarray, end: int) -> Graph:
    """Returns the graph of the transfers before a step; each pair of accounts is joined once."""
    seen = transfers[transfers.time < end]
    x = pd.concat(
        [accounts.set_index("nodeid").init_balance, *(columns(seen, side, end, accounts.nodeid) for side in SIDES)],
        axis=1,
    )
    ids = pd.Index(accounts.nodeid)
    edges = np.stack([ids.get_indexer(seen[side]) for side in SIDES], axis=1)
    rules = {"symmetrize": True, "duplicates": "drop", "self_loops": "drop"}
    return Graph.from_edges(edges, x.to_numpy(np.float32), y, name="amlsim", **rules)


SIDES = ("sourceNodeId", "targetNodeId")


def columns(transfers: pd.DataFrame, side: str, end: int, ids: pd.Series) -> pd.DataFrame:
    """Returns what the transfers sent ("sourceNodeId") or received by each account look like, 0 without any."""
    other = SIDES[1 - SIDES.index(side)]
    groups = transfers.groupby(side)
    made = {
        "per step": groups.size() / end,
        "sum per step": groups.value.sum() / end,
        "others per step": groups[other].nunique() / end,
        "steps between": (groups.time.max() - groups.time.min()) / groups.size(),
        "steps since": end - groups.time.max(),
    }
    return pd.DataFrame(made).reindex(ids).fillna(0.0).add_prefix(f"{side} ")
