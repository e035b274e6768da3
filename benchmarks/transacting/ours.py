"""The product on a raw table of transactions, by its public functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from transacting.sets import Table
from transacting.windows import MODES

OURS = tuple(f"calirare, {mode}" for mode in MODES)


def scores(table: Table, mode: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Returns P(fraud) of the test part, and what the run says of its probabilities."""
    import calirare

    transactions = calirare.Transactions(
        table.frame,
        time="time",
        label="label",
        entities=list(table.parties),
        amount=table.amount,
        known_at=mode,
        batch=f"{table.batch:g}",
        label_delay=f"{table.delay:g}",
        windows=[f"{length:g}" for length in table.windows],
    )
    outcome = calirare.train(transactions, test_from=repr(table.test_from))
    assert len(outcome.graph.split.test) == len(table.frame) - table.ends[1]
    p = outcome.probabilities("population")[table.ends[1] :, 1].numpy()
    return p, {"answer": outcome.verdict.answer}
