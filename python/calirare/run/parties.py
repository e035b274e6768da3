"""What is expected of each party of transactions: how much fraud, which amount of it, and its alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calirare.graph import Graph
from calirare.run.data_settings import Data


def parties_of(table: pd.DataFrame, data: Data) -> pd.DataFrame:
    """Returns one row per card, merchant or other party, those with the most expected fraud first.

    Args:
        table: of transactions, with P(rare), alerts, the columns of time, parties and amount, and expected_amount.
        data: says which columns these are.

    Returns:
        party (its column), name, transactions, expected_fraud (sum of P(rare)), amount, expected_amount (sum of
        P(rare) times amount), alerts, highest_p, first_alert and last_alert (times, empty without an alert).
    """
    facts = pd.DataFrame({"transactions": 1, "expected_fraud": table["p_rare"].to_numpy()})
    kinds = {"transactions": "sum", "expected_fraud": "sum"}
    if data.amount in table:
        facts["amount"] = table[data.amount].to_numpy()
        facts["expected_amount"] = table["expected_amount"].to_numpy()
        kinds |= {"amount": "sum", "expected_amount": "sum"}
    facts["alerts"], facts["highest_p"] = table["alert"].to_numpy(), facts["expected_fraud"]
    times = table[data.time].reset_index(drop=True).where(facts["alerts"] == 1)
    facts["first_alert"], facts["last_alert"] = times, times
    kinds |= {"alerts": "sum", "highest_p": "max", "first_alert": "min", "last_alert": "max"}
    parts = []
    for party in data.entities:
        found = facts.groupby(np.asarray(table[party].astype(str))).agg(kinds)
        found = found.sort_values("expected_fraud", ascending=False, kind="stable").rename_axis("name").reset_index()
        parts.append(found.assign(party=party)[["party", "name", *kinds]])
    return pd.concat(parts, ignore_index=True)


def party_groups(graph: Graph, nodes: np.ndarray) -> np.ndarray | None:
    """Returns which transactions share a party, int64 [m, parties]; None: the nodes are no transactions.

    Args:
        graph: has the parties among its keys, as `calirare.Transactions` makes it.
        nodes: int64 [m]; one without a party shares it with none.
    """
    alone, parties = -1 - np.arange(len(nodes)), list[np.ndarray]()
    for values in (graph.keys or {}).values():
        if isinstance(values, pd.Categorical):
            codes = values.codes[nodes].astype(np.int64)
            parties.append(np.where(codes < 0, alone, codes))
    return np.stack(parties, 1) if parties else None


def amounts_of(keys: Mapping[str, Any]) -> Any:
    """Returns the amounts among time, parties and amount of transactions, float64 [n]; None where there are none."""
    last = list(keys.values())[-1] if keys else None
    return last if isinstance(last, np.ndarray) and last.dtype.kind == "f" else None


def at_risk_words(every: float, alerts: float) -> str:
    """Returns sums of P(rare) times the amount, of all transactions and of alerts, in words."""
    return f"{every:,.0f}, {alerts:,.0f} of it in alerts (sum of P times amount)"
