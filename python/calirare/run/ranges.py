"""What labels leave open of each node of a rare class: an interval of its true P(rare), and the labels it may have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.calibration import Calibrator, PriorPlattCalibrator, Target, label_sets, node_probabilities
from calirare.graph import Graph
from calirare.models import Fitted

COVERAGE = 0.9  # of the intervals and of the sets


@dataclass(frozen=True, eq=False)
class Ranges:
    """What labels leave open of some nodes of a rare class.

    Attributes:
        low: lower ends of the intervals of the true P(rare), float64 [n]; NaN where none was made.
        high: upper ends, likewise.
        sets: which of the classes, the other one first, each node may have, bool [n, 2].
    """

    low: Tensor
    high: Tensor
    sets: Tensor


def ranges_of(
    fitted: Fitted, graph: Graph, logits: Tensor, maps: dict[Target, Calibrator], nodes: Tensor | None
) -> Ranges | None:
    """Returns intervals of the true P(rare), and label sets; None where there are no models without a fold.

    Args:
        fitted: the detector.
        graph: the graph as the detector takes it.
        logits: of its nodes, [n, 2].
        maps: the fitted calibrator of each target.
        nodes: that get an interval, int64; None: all.
    """
    folded, calibrator = fitted.folded, maps.get("population")
    if folded is None or not isinstance(calibrator, PriorPlattCalibrator) or not graph.n_nodes or logits.shape[1] != 2:
        return None
    own, every = folded.all_logits_of(graph, nodes)
    if len(every) < 2:  # as of given logits
        return None
    found = node_probabilities(calibrator, own, every, len(fitted.targets), COVERAGE)
    low, high = (torch.full((graph.n_nodes,), torch.nan, dtype=torch.float64, device=logits.device) for _ in range(2))
    at = slice(None) if nodes is None else nodes
    low[at], high[at] = found.low, found.high
    sets, likelier = label_sets(logits, folded.own_logits, fitted.targets, COVERAGE), maps["balanced"].transform(logits)
    empty = ~sets.any(1)  # neither class has such labels: the likelier of the two if they were equally common
    sets[empty] = torch.nn.functional.one_hot(likelier.argmax(1), 2).bool()[empty]
    return Ranges(low.cpu(), high.cpu(), sets.cpu())
