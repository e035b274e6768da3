"""One transaction after those that a run knows, scored in milliseconds: what `calirare predict` would say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.run.folder import SavedRun
from calirare.run.outcome import Outcome
from calirare.run.probabilities import Probabilities


class TransactionScorer:
    """A run on transactions with its history in memory (`calirare.Scorer` of such a run).

    The history stays as it is: transactions do not see each other.

    Args:
        run: that `calirare.load` or `calirare.train` returned.
        history: earlier transactions, as `calirare.Transactions` takes them; None: those of the run, as they were.

    Raises:
        InputError: the history cannot be read, or is not there.
    """

    def __init__(self, run: SavedRun | Outcome, history: Any = None) -> None:
        data = run.settings.data
        own = run.history if isinstance(run, SavedRun) else lambda given: data.transactions if given is None else given
        source = own(history)
        if source is None:
            raise InputError(
                "Scorer: the run's transactions were given in Python: name them, Scorer.open(run, history)"
            )
        self.scorer, self.earlier = run.scorer, data.transactions_of(source).one_row()

    @plain_torch()
    def score(self, row: Mapping[str, Any]) -> Probabilities:
        """Returns what the run says of one transaction.

        Args:
            row: its cells by the names of the table's columns; it must not be earlier than the history.

        Returns:
            `rare` and `balanced` [1] are calibrated probabilities, `alert` [1] is whether the run's threshold is
            reached. There are no intervals.

        Raises:
            InputError: a cell is missing or cannot be read, or the transaction is too early.
        """
        graph, scorer = self.earlier.graph(row), self.scorer
        logits = scorer.evaluated(graph, lambda note: None)[2]
        return scorer.said(logits, scorer.settings.decision.thresholds(scorer.threshold, graph))
