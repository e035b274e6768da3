"""New nodes of a known graph, scored in milliseconds: what a full prediction of the graph with them would say."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError, cut
from calirare._util.torch_state import plain_torch
from calirare.graph import Column, Graph
from calirare.graph.arrays import as_features
from calirare.graph.matching import features_by_name, has_column_names, is_single_node
from calirare.graph.tables import why_unknown
from calirare.models import KnownGraph, NewEdges, match_nodes
from calirare.run.folder import SavedRun
from calirare.run.outcome import Outcome
from calirare.run.probabilities import Probabilities
from calirare.run.saved_scoring import load
from calirare.run.scoring import Scorer, to_stderr
from calirare.run.transaction_scorer import TransactionScorer
from calirare_ext import Csr


class NodeScorer:
    """A trained run and a graph that new nodes join (`calirare.Scorer`).

    Only what lies within a few edges of a new node is touched. New edges change the degrees of the known nodes at their
    other ends; this is taken into account, so that the answer is that of a full prediction on the graph with the nodes
    added. The graph itself stays as it is: nodes of one call do not know those of another.

    Args:
        scorer: of the run.
        graph: that new nodes join, as the user has it.
        mapped: the same as the detector takes it, where that is known.

    Raises:
        InputError: the detector or the graph cannot take new nodes, or the features are others than the run's.

    Example:
        >>> import calirare
        >>> graph = calirare.load_dataset("digits")
        >>> outcome = calirare.train(graph, model="gcn", epochs=60, folds=0)
        >>> scorer = calirare.Scorer.open(outcome)
        >>> said = scorer.score(graph.x[0], [1, 2, 3])
        >>> said.rare.shape
        torch.Size([1])
    """

    def __new__(cls, scorer: Any, graph: Any = None, mapped: Graph | None = None) -> Any:
        """Opens a run where one is given, see `open`; of transactions a `TransactionScorer`."""
        return super().__new__(cls) if isinstance(scorer, Scorer) else cls.open(scorer, graph)

    @plain_torch()
    def __init__(self, scorer: Scorer, graph: Graph, mapped: Graph | None = None) -> None:
        if not isinstance(scorer, Scorer):  # a run, which `__new__` opened
            return
        features = scorer.features.elsewhere()  # a graph with more nodes is another one
        self.scorer, self.graph = dataclasses.replace(scorer, features=features), graph.to("cpu")
        if mapped is None or features is not scorer.features or scorer.features.how == "stored":
            mapped = self.scorer.prepared(self.graph, to_stderr)
        mapped = mapped.to("cpu")
        self.known = KnownGraph(match_nodes(scorer.fit, mapped, to_stderr), mapped)

    @classmethod
    def open(cls, run: str | Path | SavedRun | Outcome, graph: Any = None) -> Self | TransactionScorer:
        """Returns a run ready for new nodes, or for new transactions.

        Args:
            run: its folder, or what `calirare.load` or `calirare.train` returned.
            graph: that new nodes join; a path: where the own graph of a run in a folder is now; None: the run's own.
                For a run on transactions the earlier ones, see `TransactionScorer`.

        Raises:
            InputError: the run or the graph cannot be used.
        """
        run = run if isinstance(run, SavedRun | Outcome) else load(run)
        if run.settings.data.entities:
            return TransactionScorer(run, graph)
        if isinstance(run, Outcome):
            if isinstance(graph, Graph) and graph is not run.graph:
                return cls(run.scorer, graph)
            return cls(run.scorer, run.graph, run.mapped)
        return cls(run.scorer, graph if isinstance(graph, Graph) else run.graph(graph))

    def score(
        self, x: Any, neighbours: Sequence[Any], *, weights: Sequence[Any] | None = None, among: Any = None
    ) -> Probabilities:
        """Returns what the run says of one new node, or of several.

        Args:
            x: raw features by the names of the graph's columns: a record (`{"amount": 12.5, "country": "ES"}`) or
                several, a row or table of pandas, None for a missing value. Or in the order of the columns, [d] of one
                node or [b, d]: an array, a tensor, or sparse; categories are their numbers then, dates days since the
                start of 2000, as `Column` has them, and NaN is a missing value where the run's table has columns.
            neighbours: the known nodes that a new one has an edge to, by their names, or numbers where nodes have no
                names; of several new nodes a sequence of such sequences.
            weights: of these edges, in the same form; None: 1.
            among: edges between the new nodes, integer [m, 2], each once; None: none.

        Returns:
            `rare` and `balanced` [b] are calibrated probabilities, `alert` [b] is which are at least the run's
            threshold; of every class `chosen` [b, k]. There are no intervals.

        Raises:
            InputError: a neighbour is unknown or given twice, or features, weights or edges do not fit.
        """
        logits = self.logits(x, neighbours, weights=weights, among=among)
        return self.scorer.said(logits, self.scorer.threshold)

    @plain_torch()
    def logits(
        self, x: Any, neighbours: Sequence[Any], *, weights: Sequence[Any] | None = None, among: Any = None
    ) -> Tensor:
        """Returns the logits of new nodes before any map, [b, k]; see `score`."""
        columns = self.graph.columns
        if has_column_names(x, self.graph):
            features: Tensor | Csr
            features, columns = features_by_name(x, self.graph)
            single = is_single_node(x)
        else:
            features = as_features(x, "new nodes")
            single = isinstance(features, Tensor) and features.dim() == 1
            features = features[None] if isinstance(features, Tensor) and single else features
        if single:
            neighbours, weights = [neighbours], None if weights is None else [weights]
        nodes = self._nodes(features, columns)
        edges = self._edges(nodes.n_nodes, neighbours, weights, among)
        mapped = self.scorer.features.transform(nodes).x
        return self.known.logits(mapped.to_dense() if isinstance(mapped, Csr) else mapped, edges)

    def _nodes(self, x: Tensor | Csr, columns: tuple[Column, ...]) -> Graph:
        """Returns new nodes without their edges, their features as the user has them."""
        graph, b = self.graph, x.shape[0]
        if x.shape[1] != graph.n_features or not b:
            raise InputError(
                f"new nodes: x must have {graph.n_features} features of one node or of several, as graph "
                f"{graph.name!r} has, got shape {tuple(x.shape)}"
            )
        nothing = torch.zeros(b + 1, dtype=torch.int64)
        alone = Csr(nothing, nothing[:0].to(torch.int32), torch.zeros(0), b)
        if not graph.columns and not bool(torch.isfinite(x.values if isinstance(x, Csr) else x).all()):
            raise InputError("new nodes: x must be finite: leave no feature out")
        return Graph(
            alone,
            x,
            feature_normalisation=graph.feature_normalisation,
            feature_names=graph.feature_names,
            columns=columns,
            where="new nodes",
            trusted=not columns,
        )

    def _edges(self, b: int, neighbours: Sequence[Any], weights: Sequence[Any] | None, among: Any) -> NewEdges:
        """Returns the edges of b new nodes, checked."""
        odd = [each for each in neighbours if isinstance(each, str) or not hasattr(each, "__iter__")]
        if odd:
            raise InputError(f"new nodes: neighbours must be one sequence per node, got {cut(repr(odd[0]), 60)}")
        if len(neighbours) != b or (weights is not None and len(weights) != b):
            got = len(neighbours) if len(neighbours) != b else len(weights or ())
            raise InputError(f"new nodes: neighbours and weights must be one sequence per node, {b}, got {got}")
        known = [self._numbers(each) for each in neighbours]
        counts = [len(each) for each in known]
        given = np.ones(sum(counts)) if weights is None else _weights(weights, counts)
        pairs = _pairs(among, b)
        new = np.concatenate([np.repeat(np.arange(b), counts), pairs[:, 0]])
        ends = np.concatenate([*known, pairs[:, 1] + self.graph.n_nodes])
        values = np.concatenate([given, np.ones(len(pairs))]).astype(np.float32)
        return NewEdges(new.astype(np.int64), ends.astype(np.int64), values)

    def _numbers(self, nodes: Any) -> NumpyArray:
        """Returns the numbers of the known neighbours of one new node."""
        given = list(nodes)
        if self.graph.node_names is not None:
            unknown = [each for each in given if str(each) not in self._places]
            if unknown:
                mend = why_unknown(str(unknown[0]), self._places) or "name known ones"
                raise InputError(f"new nodes: graph {self.graph.name!r} has no node {str(unknown[0])!r}: {mend}")
            given = [self._places[str(each)] for each in given]
        numbers = np.asarray(given if given else np.zeros(0, dtype=np.int64))
        n = self.graph.n_nodes
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= n)).any():
            raise InputError(f"new nodes: neighbours must be numbers from 0 to {n - 1:,}, got {given!r}")
        if len(np.unique(numbers)) < len(numbers):
            raise InputError(f"new nodes: each neighbour must be named once, got {nodes!r}: add up the weights instead")
        return numbers.astype(np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        assert self.graph.node_names is not None
        return {str(name): i for i, name in enumerate(self.graph.node_names)}


def _weights(weights: Sequence[Any], counts: list[int]) -> NumpyArray:
    """Returns the weights of edges to known nodes, float64."""
    if [len(each) for each in weights] != counts:
        raise InputError("new nodes: weights must have one number per neighbour: give one for each edge")
    given = np.concatenate([np.asarray(each, dtype=np.float64) for each in weights] or [np.zeros(0)])
    if not (np.isfinite(given) & (given > 0)).all():
        raise InputError("new nodes: weights must be finite and above 0: leave an edge out that has none")
    return given


def _pairs(among: Any, b: int) -> NumpyArray:
    """Returns edges between b new nodes, int64 [m, 2]."""
    pairs = np.zeros((0, 2), dtype=np.int64) if among is None else np.asarray(among)
    fits = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
    if fits:
        ordered = np.sort(pairs, 1)
        apart = (ordered[:, 0] >= 0) & (ordered[:, 0] < ordered[:, 1]) & (ordered[:, 1] < b)
        fits = bool(apart.all()) and len(np.unique(ordered, axis=0)) == len(pairs)
    if not fits:
        raise InputError(
            f"new nodes: among must name pairs of two new nodes, numbers from 0 to {b - 1}, each pair once, got "
            f"{pairs.tolist()}"
        )
    return pairs.astype(np.int64)
