"""Which nodes are worth a label next: those whose labels would tell most about all nodes without one."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from calirare._util.amounts import amount, shortened
from calirare._util.arrays import brief
from calirare._util.errors import InputError, without_middle
from calirare._util.torch_state import plain_torch
from calirare.explain import Explainer, Nodes, label_values, nodes_named, taken_together
from calirare.run.deciding import nodes_to_decide

CANDIDATES = 500  # nodes that are valued
NODES = 500  # of the other nodes without a label that they are valued by, beside each other
DOUBTFUL = 0.6  # of the candidates are the least certain nodes, the others are drawn at random
LABELLED = "every label is known already: these nodes are of the test part, taken as nodes without a label"
MOVED = 0.01  # of a probability, from which a node is said to follow a label
CHOSEN = (
    "labels chosen this way are not a random sample: `calirare update` trains on them and keeps the base rate of the "
    "old labels"
)
CHOSEN_RARE = (
    "a positive-only run ignores answers that a node is not rare: add the rare ones to the data and train again, or "
    "train without positive-only once there are labels of both classes"
)
SHOWN, WIDTH, ROOM = 10, 80, 20  # rows, characters, and characters of a name


@dataclass(frozen=True, eq=False)
class NextLabels:
    """Nodes that are worth a label, the first one first.

    Attributes:
        nodes: int64 [k].
        names: what the graph calls them, k of them.
        value: expected fall of the total expected error by each label alone, >= 0, [k].
        more: by each label beyond those before it, [k].
        p: P(rare) of each; with many classes that of the likeliest one, [k].
        prediction: with many classes the likeliest one of each, [k]; None of a rare class.
        followers: about how many other nodes have a probability that is at least `MOVED` apart by its labels, [k].
        around: labelled neighbours and all neighbours of each, int64 [k, 2].
        total: total expected error of the nodes without a label: the sum of p (1 - p), of many classes half of it.
        n_open: how many these are.
        notes: sentences on what is approximate.
    """

    nodes: NDArray[np.int64]
    names: NDArray[np.generic]
    value: NDArray[np.float64]
    more: NDArray[np.float64]
    p: NDArray[np.float64]
    prediction: NDArray[Any] | None
    followers: NDArray[np.int64]
    around: NDArray[np.int64]
    total: float
    n_open: int
    notes: tuple[str, ...]

    __repr__ = brief

    def reason(self, row: int) -> str:
        """Returns why one of them is worth a label, in words."""
        p, (labelled, neighbours) = self.p[row], self.around[row]
        either = "could be either" if self.prediction is None else "unclear"
        own = either if 0.2 <= p <= 0.8 else "not sure" if 0.02 <= p <= 0.98 else "nearly sure"
        follow = f"about {self.followers[row]:,} others follow" if self.followers[row] > 1 else "about 1 other follows"
        follow = follow if self.followers[row] else "no other follows"
        near = f", {labelled} of {amount(int(neighbours), 'neighbour')} labelled" if neighbours else ", no neighbour"
        return f"{own}, {follow}{near if self.around[:, 1].any() else ''}"

    def to_frame(self) -> pd.DataFrame:
        """Returns one row per node.

        Columns: node; value, the expected fall of the total expected error by its label alone; more, beyond the labels
        before it; p_rare, or with many classes prediction and confidence; reason, in words.
        """
        reasons = [self.reason(row) for row in range(len(self.nodes))]
        own = {"p_rare": self.p} if self.prediction is None else {"prediction": self.prediction, "confidence": self.p}
        numbers = {"value": self.value, "more": self.more}
        return pd.DataFrame({"node": self.names} | numbers | own | {"reason": reasons})

    def summary(self, width: int = WIDTH) -> str:
        """Returns the first of them as text of some width."""
        number = amount(len(self.nodes), "label")
        lines = textwrap.wrap(
            f"to label: {self.n_open:,}, with a total expected error of {self.total:.4g}, "
            f"{'' if self.prediction is None else 'half '}the sum of p (1 - p); {number} would take "
            f"{float(self.more.sum()):.3g} of it away",
            width,
        )
        shown = [without_middle(str(name), ROOM) for name in self.names[:SHOWN]]
        room = max(4, *map(len, shown))
        what = "P(rare)" if self.prediction is None else "P(class)"
        lines += ["", f"{'name':<{room}} {what:>8} {'value':>8} {'more':>8}  why"]
        for row, name in enumerate(shown):
            numbers = f"{self.p[row]:>8.3f} {self.value[row]:>8.3g} {self.more[row]:>8.3g}"
            of = "" if self.prediction is None else f"{shortened(self.prediction[row])}, "
            why = textwrap.wrap(of + self.reason(row), max(width - room - 29, 20))
            lines.append(f"{name:<{room}} {numbers}  {why[0]}")
            lines += [" " * (room + 29) + each for each in why[1:]]
        for note in self.notes:
            lines += ["", *textwrap.wrap(f"note: {note}", width)]
        return "\n".join(lines) + "\n"


@plain_torch()
def next_labels(explainer: Explainer, k: int, among: Nodes | None = None) -> NextLabels:
    """Returns the nodes that are worth a label next.

    Args:
        explainer: of the run.
        k: how many labels.
        among: nodes that can be labelled, see `calirare.explain.nodes_named`; None: every node without a label (of a
            graph that has all labels, those that neither trained nor validated).

    Raises:
        InputError: there are fewer such nodes than labels, or one is unknown.
    """
    graph = explainer.context.graph
    unlabelled = nodes_to_decide(graph)[0].cpu()
    wanted = unlabelled if among is None else nodes_named(graph, among, "suggest").cpu()
    pool = unlabelled[torch.isin(unlabelled, wanted)]
    if not 1 <= k <= pool.numel():
        raise InputError(f"suggest: --top must be from 1 to {pool.numel():,}, the number of nodes to label, got {k}")
    every = _doubt(explainer.probabilities(unlabelled))
    total, doubt = float(every.sum()), every[torch.isin(unlabelled, pool)]
    draw = torch.Generator().manual_seed(0)
    chosen = pool[_candidates(doubt, max(CANDIDATES, k), draw)]
    rest = unlabelled[~torch.isin(unlabelled, chosen)]
    some = rest[torch.randperm(rest.numel(), generator=draw)[:NODES].sort().values]
    stands_for = torch.ones(chosen.numel() + some.numel(), dtype=torch.float64)  # nodes, each of those judged by
    stands_for[chosen.numel() :] = rest.numel() / max(some.numel(), 1)
    values = label_values(explainer, chosen, torch.cat([chosen, some]))
    fall = values.fall * stands_for
    rows, more = taken_together(fall, k)
    moved = (values.moved[rows] >= MOVED) * stands_for
    moved[torch.arange(len(rows)), rows] = 0  # of itself
    nodes, context, p = chosen[rows], explainer.context, values.p[rows]
    about = CHOSEN_RARE if context.positive_only else CHOSEN if graph.unlabelled.numel() else LABELLED
    return NextLabels(
        nodes=nodes.numpy(),
        names=nodes.numpy() if graph.node_names is None else np.asarray(graph.node_names)[nodes.numpy()],
        value=fall[rows].sum(1).numpy(),
        more=more.numpy(),
        p=(p.amax(1) if context.many else p[:, 1]).numpy(),
        prediction=np.array(context.class_names, dtype=object)[p.argmax(1).numpy()] if context.many else None,
        followers=moved.sum(1).round().long().numpy(),
        around=_around(explainer, nodes),
        total=total,
        n_open=unlabelled.numel(),
        notes=(about, *explainer.model.label_notes),
    )


def _doubt(p: Tensor) -> Tensor:
    """Returns the expected error of nodes by P of their classes [n, k], [n]."""
    return (p * (1 - p)).sum(1) / 2


def _candidates(doubt: Tensor, most: int, draw: torch.Generator) -> Tensor:
    """Returns the places of the nodes that are valued, int64: of too many the least certain, and some at random."""
    if doubt.numel() <= most:
        return torch.arange(doubt.numel())
    order = torch.argsort(doubt, descending=True, stable=True)
    first = int(DOUBTFUL * most)
    others = order[first:][torch.randperm(order.numel() - first, generator=draw)[: most - first]]
    return torch.cat([order[:first], others]).sort().values


def _around(explainer: Explainer, nodes: Tensor) -> NDArray[np.int64]:
    """Returns labelled neighbours and all neighbours of each node, [k, 2]."""
    graph, labelled = explainer.context.graph, explainer.context.labelled.cpu()
    adjacency = graph.adjacency
    labelled = labelled if graph.y is None else labelled[graph.y.cpu()[labelled] >= 0]  # drawn ones have no label
    out = np.zeros((nodes.numel(), 2), dtype=np.int64)
    for row, node in enumerate(nodes.tolist()):
        near = adjacency.indices[int(adjacency.indptr[node]) : int(adjacency.indptr[node + 1])]
        near = near[near != node].unique().cpu()
        out[row] = int(torch.isin(near, labelled).sum()), near.numel()
    return out
