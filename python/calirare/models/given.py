"""Logits of a network that was trained elsewhere, as a detector: what stands behind one is the same for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.arrays import Array, brief, to_tensor
from calirare._util.errors import InputError
from calirare.graph import Graph
from calirare.models.fitted import FoldFitted

WHERE = "Given"


@dataclass(frozen=True, eq=False)
class Given:
    """Logits of every node, for `calirare.train(graph, given=...)`, which trains nothing and does all that comes after.

    The network may learn the training labels and not the validation labels, which then calibrate. Or, with `without`
    and `fold`, K more networks are trained without a fold of the labels each, and every label calibrates.

    Attributes:
        logits: of every node [n, k], by the network; with `fold`, by the one that learnt every label. Arrays are taken
            for tensors, here and below; all but `fold` become float64.
        without: by each fold's network, [K, n, k].
        fold: of each node that trains or validates, 0 to K - 1, whole numbers [n]; of others it is not read.
        class_weights: of the classes in the training loss, [k]; None: all alike.

    Raises:
        InputError: shapes differ, a number is not finite, or one of `without` and `fold` is missing.
    """

    logits: Tensor
    without: Tensor | None = None
    fold: Tensor | None = None
    class_weights: Tensor | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        """Checks shapes and numbers."""
        if (self.without is None) != (self.fold is None):
            raise InputError(f"{WHERE}: without and fold must be given together, or neither")
        n, k = self._take("logits", self.logits, "[n, k] of k >= 2 classes", lambda x: x.ndim == 2 and x.shape[1] >= 2)
        if self.without is not None:
            wanted = f"[K, {n}, {k}] of K >= 2 folds"
            self._take("without", self.without, wanted, lambda x: x.shape[1:] == (n, k) and len(x) >= 2)
        if self.fold is not None:
            self._take("fold", self.fold, f"whole numbers [{n}]", lambda x: x.shape == (n,), whole=True)
        if self.class_weights is not None:
            self._take("class_weights", self.class_weights, f"{k} positive numbers", lambda x: x.shape == (k,))
            if not bool((self.class_weights > 0).all()):
                got = self.class_weights.tolist()
                raise InputError(f"{WHERE}: class_weights must be {k} positive numbers, got {got}")

    def _take(
        self, name: str, values: Array, wanted: str, fits: Callable[[Tensor], bool], *, whole: bool = False
    ) -> torch.Size:
        """Puts numbers in their place as a tensor, once they fit; returns their shape."""
        numbers = to_tensor(WHERE, name, values).detach()
        if not fits(numbers) or (whole and numbers.is_floating_point()):
            kind = f"{str(numbers.dtype).removeprefix('torch.')} " if whole else ""
            raise InputError(f"{WHERE}: {name} must be {wanted}, got {kind}{list(numbers.shape)}")
        if not bool(torch.isfinite(numbers).all()):
            raise InputError(f"{WHERE}: {name} must be finite")
        object.__setattr__(self, name, numbers.long() if whole else numbers.double())
        return numbers.shape

    def fit(self, graph: Graph, nodes: Tensor) -> GivenFit:
        """Returns them as a detector of a graph with labels and split.

        Args:
            graph: the graph.
            nodes: its training and validation nodes, int64 [m].

        Raises:
            InputError: the logits are of other nodes or classes, or no label is left that its network has not learnt.
        """
        assert graph.y is not None
        assert graph.split is not None
        logits, targets, wanted = self.logits.to(graph.device), graph.y[nodes], (graph.n_nodes, graph.n_classes)
        if logits.shape != wanted:
            raise InputError(
                f"{WHERE}: logits must be {list(wanted)} as graph {graph.name!r} is, got {list(logits.shape)}"
            )
        weights = (torch.ones(wanted[1]) if self.class_weights is None else self.class_weights).to(logits)[targets]
        if self.fold is None or self.without is None:
            learnt = torch.isin(nodes, graph.split.train)
            if bool(learnt.all()):
                raise InputError(
                    f"{WHERE}: labels that the network has not learnt must be there to calibrate on, but graph "
                    f"{graph.name!r} has no validation nodes: put some aside, or give fold and without"
                )
            return GivenFit(logits, logits[None], nodes, targets, weights * learnt, 0 * nodes)
        fold, last = self.fold.to(graph.device)[nodes], len(self.without) - 1
        low, high = int(fold.min()), int(fold.max())
        if low < 0 or high > last:
            raise InputError(
                f"{WHERE}: fold of nodes that train or validate must be from 0 to {last}, got {low} to {high}"
            )
        return GivenFit(logits, self.without.to(graph.device), nodes, targets, weights, fold)


@dataclass(frozen=True, eq=False)
class GivenFit(FoldFitted):
    """Given logits with the labels they are calibrated on.

    Attributes:
        logits: of every node, float64 [n, k].
        without: by each fold's network, float64 [K, n, k]; K = 1: by the network, which knows no validation label.
        nodes: training and validation nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, float64 [m]; 0: not learnt.
        fold: of each label, int64 [m].
    """

    logits: Tensor
    without: Tensor
    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    fold: Tensor

    def __post_init__(self) -> None:
        """Checks that the parts fit, as those of a file may not.

        Raises:
            LookupError: a label is at no node or fold.
            ValueError: the logits are of other classes than the folds'.
        """
        if self.own_logits.shape != self.label_logits.shape:  # places out of range end here
            raise ValueError("logits and without must be of the same classes")

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]  # of the others
        """The logits of each label by the network without it, float64 [m, k]; NaN where every network learnt it."""
        learnt = (self.sample_weights > 0) & (len(self.without) == 1)
        return self.without[self.fold, self.nodes].masked_fill(learnt[:, None], torch.nan)

    @property
    def scores_graphs(self) -> bool:
        """See `Fitted.scores_graphs`."""
        return False

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`; of the graph that the logits are of."""
        if graph is None or graph.n_nodes != len(self.logits):
            raise ValueError(f"graph must be that of the {len(self.logits)} given logits")
        every = (self.logits, self.without)[: 1 + folds]
        return every if nodes is None else tuple(z[..., nodes, :] for z in every)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.logits[self.nodes]
