"""Tables of transactions with labels: ratings, transfers and four simulated laws, each split by time 60/20/20."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from calirare.datasets import LAWS, synthetic_transactions

DAY = 86_400.0
ROWS = 15_000  # of a simulated table
SEEDS = (1, 2, 3, 4, 5)  # one table holds 4 to 190 fraudulent test transactions: too few to compare methods


@dataclass(frozen=True, eq=False)
class Table:
    """One raw table.

    Attributes:
        frame: in order of time; `label` is 0 or 1, `time` is in seconds or steps, other columns are raw.
        parties: columns of the parties.
        amount: column of the amount; None: there is none.
        others: other columns, categories as text.
        delay: after how long a label is known, in the unit of `time`.
        batch: length of a batch, likewise.
        windows: three lengths of windows, likewise.
        posterior: probabilities that the labels were drawn with; None: not known.
    """

    frame: pd.DataFrame
    parties: tuple[str, ...]
    amount: str | None
    others: tuple[str, ...]
    delay: float
    batch: float
    windows: tuple[float, float, float]
    posterior: np.ndarray | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Numbers of rows before the validation and the test part: the first of their times is in no earlier part."""
        time = self.frame["time"].to_numpy()
        cuts = [np.searchsorted(time, time[int(part * len(time))]) for part in (0.6, 0.8)]
        return int(cuts[0]), int(cuts[1])

    @property
    def test_from(self) -> float:
        """Time of the first test transaction."""
        return float(self.frame["time"].iloc[self.ends[1]])


def otc(root: Path) -> Table:
    """Bitcoin OTC: who rates whom, and the label is a rating of -5 or lower; the rating itself is no column."""
    frame = pd.read_csv(root / "fraud/otc_ratings.csv.gz", header=None, names=["rater", "rated", "rating", "time"])
    frame = frame.sort_values("time", kind="stable", ignore_index=True)
    frame["label"] = (frame.pop("rating") <= -5).astype(np.int64)
    return Table(_named(frame, "rater", "rated"), ("rater", "rated"), None, (), DAY, DAY, (DAY, 7 * DAY, 30 * DAY))


def amlsim(root: Path) -> Table:
    """AMLSim: transfers, and the label is whether the sender is a known fraud by then."""
    accounts = pd.read_csv(root / "fraud/amlsim_accounts.csv.gz").set_index("nodeid")
    frame = pd.read_csv(root / "fraud/amlsim_transactions.csv.gz")
    frame.columns = pd.Index(["sender", "receiver", "amount", "time"])
    step = accounts.fraudStep.reindex(frame.sender).to_numpy()
    frame["label"] = ((step >= 0) & (step <= frame.time)).astype(np.int64)
    frame = frame.sort_values("time", kind="stable", ignore_index=True).astype({"time": float})
    return Table(_named(frame, "sender", "receiver"), ("sender", "receiver"), "amount", (), 10, 1, (1, 7, 30))


def simulated(law: str, seed: int, root: Path) -> Table:
    """Simulated card transactions of one law."""
    del root
    frame, posterior = synthetic_transactions(ROWS, seed, law)
    frame["time"] = frame.pop("when").astype("int64").astype(float)
    frame = frame.rename(columns={"is_fraud": "label"}).drop(columns="transaction")
    parties, others = ("card", "merchant", "device"), ("category", "channel")
    return Table(frame, parties, "amount", others, 7 * DAY, DAY, (DAY, 7 * DAY, 30 * DAY), posterior)


def _named(frame: pd.DataFrame, *parties: str) -> pd.DataFrame:
    """Returns a frame in which parties have names."""
    return frame.assign(**{party: party[0].upper() + frame[party].astype(str) for party in parties})


SETS: dict[str, Callable[[Path], Table]] = {
    "otc ratings": otc,
    "amlsim": amlsim,
    **{f"{law}, {seed}": partial(simulated, law, seed) for law in LAWS for seed in SEEDS},
}


def law_of(name: str) -> str:
    """Returns the law of a simulated table, and the name of another one."""
    return name.split(", ")[0]
