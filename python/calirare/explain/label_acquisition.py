"""What a label at a node that has none would teach of other nodes, before anybody looks at it.

The total expected error of nodes is the sum of p_v (1 - p_v), the squared error that P(rare) expects of itself. Beliefs
that are right are the mean of what they will become, p_v = (1 - p_c) p_v|0 + p_c p_v|1 with p_v|y for P(rare) of node v
once c has label y, and then the error of v is expected to fall by the variance of what it becomes,

    p_c (1 - p_c) (p_v|1 - p_v|0)^2 = (p_v|1 - p_v) (p_v - p_v|0) <= p_v (1 - p_v).

One step of a detector (`ExplainableModel.with_each_label`) is not right to that degree: a rare label where none was
expected moves it far, the other label hardly. The product on the right, 0 where its factors differ in sign, trusts
neither alone, and is cut at its bound. The error of c itself is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.steps import progress
from calirare.explain.explainable_model import probability
from calirare.explain.explainer import Explainer

BLOCK = 1_000_000  # labels times nodes that are worked on together


@dataclass(frozen=True, eq=False)
class LabelValues:
    """What labels at c nodes would teach of n others.

    Attributes:
        p_rare: of the c nodes, float64 [c].
        moved: P(rare) of each of the others with a rare label less with one of the rest, float64 [c, n].
        fall: expected fall of the error of each of the others, float64 [c, n].
    """

    p_rare: Tensor
    moved: Tensor
    fall: Tensor


def label_values(explainer: Explainer, more: Tensor, nodes: Tensor) -> LabelValues:
    """Returns what labels would teach.

    Args:
        explainer: of the run.
        more: nodes without a label, int64 [c].
        nodes: of which they would teach, int64 [n].
    """
    p, step = explainer.p_rare(more), max(1, BLOCK // max(nodes.numel(), 1))
    mapping, now = explainer.context.mapping, explainer.p_rare(nodes)
    bound = now * (1 - now)
    moved, fall = (p.new_empty(more.numel(), nodes.numel()) for _ in range(2))
    for rows in progress("labels worth getting", torch.arange(more.numel(), device=more.device).split(step)):
        with explainer.lock:
            rest, rare = probability(explainer.model.with_each_label(nodes, more[rows]), mapping)
        moved[rows] = rare - rest
        fall[rows] = torch.minimum(((rare - now) * (now - rest)).clamp(min=0), bound)
    own = more[:, None] == nodes
    return LabelValues(p, moved, torch.where(own, bound, fall))


def taken_together(fall: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns k labels that together teach most, and what each brings beyond those before it.

    Of each node the label that teaches most of it counts (facility location): labels that say the same of the same
    nodes are not asked twice. Greedy, which reaches at least 1 - 1/e of the best (Nemhauser, Wolsey and Fisher 1978).

    Args:
        fall: of each label and node, >= 0, float64 [c, n].
        k: how many, at most c.

    Returns:
        Rows of `fall`, int64 [k], and their falls, float64 [k].
    """
    best, open_ = fall.new_zeros(fall.shape[1]), torch.ones(fall.shape[0], dtype=torch.bool, device=fall.device)
    chosen, brought = list[int](), list[float]()
    for _ in range(k):
        more = (fall - best).clamp_(min=0).sum(1)
        row = int(torch.where(open_, more, -torch.inf).argmax())
        chosen.append(row)
        brought.append(float(more[row]))
        best, open_[row] = torch.maximum(best, fall[row]), False
    return torch.tensor(chosen, dtype=torch.int64), torch.tensor(brought, dtype=torch.float64)
