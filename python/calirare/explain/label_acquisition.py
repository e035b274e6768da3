"""What a label at a node that has none would tell about other nodes, before anybody looks at it.

The total expected error of nodes is the sum of sum_j p_vj (1 - p_vj) / 2, half the squared error that probabilities
expect of themselves; of two classes p (1 - p). Beliefs that are right are the mean of what they will become,
p_vj = q p_vj|j + (1 - q) p_vj|not j, with q = p_cj the probability that c is of class j, p_vj|j what p_vj becomes if it
is, and p_vj|not j the mean of what it becomes by the other labels. Then the error of class j at v is expected to fall
by the variance of what p_vj becomes,

    q (1 - q) (p_vj|j - p_vj|not j)^2 = (p_vj|j - p_vj) (p_vj - p_vj|not j) <= p_vj (1 - p_vj).

One step of a detector (`ExplainableModel.with_each_label`) is not right to that degree: a rare label where none was
expected moves it far, the other label hardly. The product on the right, 0 where its factors differ in sign, trusts
neither, and is cut at its bound. The error of c itself is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.steps import progress
from calirare.explain.explainer import Explainer

BLOCK = 1_000_000  # numbers of labels, nodes and pairs of classes that are worked on together


@dataclass(frozen=True, eq=False)
class LabelValues:
    """What labels at c nodes would tell about n others.

    Attributes:
        p: of the classes of the c nodes, float64 [c, k].
        moved: how far the labels can move a probability of each of the others, the most of any class, float64 [c, n].
        fall: expected fall of the error of each of the others, float64 [c, n].
    """

    p: Tensor
    moved: Tensor
    fall: Tensor


def label_values(explainer: Explainer, more: Tensor, nodes: Tensor) -> LabelValues:
    """Returns what labels would tell.

    Args:
        explainer: of the run.
        more: nodes without a label, int64 [c].
        nodes: the others, int64 [n].

    Cost: k^2 c n numbers, `BLOCK` of them at a time.
    """
    p, now = explainer.probabilities(more), explainer.probabilities(nodes)
    k, bound = p.shape[1], now * (1 - now)
    step = max(1, BLOCK // max(nodes.numel() * k * k // 4, 1))
    moved, fall = (p.new_empty(more.numel(), nodes.numel()) for _ in range(2))
    for rows in progress("labels worth getting", torch.arange(more.numel(), device=more.device).split(step)):
        with explainer.lock:
            after = explainer.context.probabilities(explainer.model.with_each_label(nodes, more[rows]))  # [k, c, n, k]
        moved[rows] = (after.amax(0) - after.amin(0)).amax(-1)
        own = after.diagonal(dim1=0, dim2=3)  # of each class by its own label, [c, n, k]
        # For each of the nodes, class j and label y: [c, j, y].
        weights = p[rows, None].clamp(min=torch.finfo(torch.float64).tiny) * ~torch.eye(k, dtype=torch.bool)
        weights = weights / weights.sum(2, keepdim=True)  # of label y where it is not class j
        others = torch.einsum("cjy,ycnj->cnj", weights, after)
        falls = torch.minimum(((own - now) * (now - others)).clamp(min=0), bound)
        fall[rows] = falls.sum(-1) / 2
    same = more[:, None] == nodes
    return LabelValues(p, moved, torch.where(same, bound.sum(-1) / 2, fall))


def taken_together(fall: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns k labels that together are worth most, and what each brings beyond those before it.

    Of each node the label that tells most about it counts (facility location): labels that tell the same about the same
    nodes do not count twice. Greedy, which reaches at least 1 - 1/e of the best (Nemhauser, Wolsey and Fisher 1978).

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
