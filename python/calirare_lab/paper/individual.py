"""EICE and interval coverage of the tables: one jackknife per place and set of labels, read by every method there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calirare.leave_one_out import jackknife
from calirare.metrics import coverage, eice
from calirare_lab.paper.context import PAPER_TRAINING, Context

NODES = {"train": "train", "train + val": "both"}  # what a method trains on: the network of `Context.fit`
EICE_MEASURES = ("eice", "eice_midpoint")
Individual = dict[str, dict[str, Any]]


def individual(context: Context) -> Individual:
    """Returns what the leave-one-out models of the uncalibrated GCN-CS say of the test nodes, by its labels.

    Args:
        context: the place.

    Returns:
        For each set of labels: `midpoint` of the interval of P(rare) [n] (paper, Eq. 8), `estimate` of P(rare) [n] by
        the map on leave-one-out logits (docs/jackknife.md), and of the intervals at coverage .9 the mean width and the
        share that holds the label: of all test nodes, of the rare ones and of the others.
    """
    test = context.split.test
    labels = context.y[test]
    found = {}
    for name, nodes in NODES.items():
        result = jackknife(context.fit(nodes, context.settings(PAPER_TRAINING)), context.graph, nodes=test)
        assert result.estimate is not None
        low, high = result.lower.double(), result.upper.double()
        shares = {
            kind: float(coverage(labels[of].double(), low[of], high[of]))
            for kind, of in (("all", labels >= 0), ("rare", labels == 1), ("majority", labels == 0))
        }
        found[name] = {
            "midpoint": _rounded((low + high) / 2),
            "estimate": _rounded(result.estimate[:, 1]),
            "coverage": shares,
            "width": float((high - low).mean()),
        }
    return found


def eice_measures(found: Individual, trains_on: str, probability: Tensor) -> dict[str, float]:
    """Returns EICE of a method: how far its confidences are from the uncertainties of the network it starts from.

    Args:
        found: see `individual`.
        trains_on: labels the method's network is trained on.
        probability: its P(rare) of the test nodes, float64 [n].

    Returns:
        `eice` with the estimate by the map as uncertainty, and `eice_midpoint` with the interval's midpoint.
    """
    rare = probability > 0.5
    confidence = torch.where(rare, probability, 1 - probability)
    out = {}
    for measure, kind in zip(EICE_MEASURES, ("estimate", "midpoint"), strict=True):
        of_rare = torch.tensor(found[trains_on][kind], dtype=torch.float64)
        out[measure] = float(eice(torch.where(rare, of_rare, 1 - of_rare), confidence))
    return out


def _rounded(values: Tensor) -> list[float]:
    return [round(v, 7) for v in values.tolist()]
