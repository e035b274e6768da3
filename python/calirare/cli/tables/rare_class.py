"""The rare class of a table: how well it is found, and whether its probability is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calirare._util.errors import InputError
from calirare.cli.tables.table import Table
from calirare.metrics import detection_report, rare_report


class TableRare(NamedTuple):
    """What `rare_of` found; each under its name in metrics.json.

    Attributes:
        detection: `metrics.detection_report`.
        p_rare: `metrics.rare_report`.
    """

    detection: dict[str, Any]
    p_rare: dict[str, float | None]


def rare_of(table: Table, p: np.ndarray, budgets: Sequence[int | float], settings: dict[str, int]) -> TableRare | None:
    """Returns how the rare class is found by probabilities `p` and whether they are right; None for several labels.

    Args:
        table: labels, rare class and weights.
        p: as `Table.probabilities`.
        budgets: as `metrics.detection_report` takes them.
        settings: n_bins, n_draws (of the noise floor) and seed.
    """
    if table.labels.ndim == 2:
        return None
    given: dict[str, Any] = {"cls": table.minority, "weights": table.weights, "seed": settings["seed"]}
    try:
        found = detection_report(table.labels, p, budgets=budgets, **given)
    except (TypeError, ValueError) as error:  # the columns are checked: what is left are the budgets
        raise InputError(f"metrics: {error} (command line: --budget)") from error
    bins: dict[str, Any] = {"n_bins": settings["n_bins"], "n_draws": settings["n_draws"]}
    return TableRare(found, rare_report(table.labels, p, **given, **bins))
