"""What the features of a run's graph became, for its own training and for any graph it scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import scratch
from calirare._util.errors import InputError, check_one_of
from calirare.features.categorical import OneHot, TargetEncoded
from calirare.features.fitting import Impute, Missing, Options, fit_columns, with_categories
from calirare.features.labelled_nodes import LabelledNodes
from calirare.features.matrix_maps import MatrixMap, fit_svd, fit_tfidf, least
from calirare.features.numeric import Cyclic, Kept, Logged, Ranked, Standardized
from calirare.features.raw_table import ColumnMap, RawTable, Say, columns_of, places_of, read_table
from calirare.graph import Column, Graph, check_nodes, default_names, number_columns
from calirare.graph.columns import columns_of_text, columns_to_text
from calirare_ext import Csr

How = Literal["auto", "rank", "standardize", "row", "tfidf", "svd", "none", "stored"]
COLUMN_MAPS: tuple[type[ColumnMap], ...] = (Kept, Standardized, Logged, Ranked, OneHot, TargetEncoded, Cyclic, Missing)
NUMBERS = 1 << 20  # raw numbers mapped together: they stay in the processor's caches


def _silent(note: str) -> None:
    """Takes a note nobody asked for."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A map from a graph's raw features to numbers to learn from, fitted on one graph.

    It sees all nodes of the graph and no label, but for the labels of the nodes that it is given for categories of many
    kinds. Either every column has its map, or the features are mapped as one matrix.

    Attributes:
        how: what was asked for; "stored" is what the graph said.
        columns: the raw columns, or none where features are numbers without names.
        n_inputs: number of raw columns.
        maps: of the columns.
        whole: of the matrix, or None.
        newest: of each date column: the newest day, in days since the start of the year 2000.
        feature_names: of what is made, or none where features are numbers.
        log: what became of each column, a line per kind of map.
        labelled: the labelled nodes of the graph where they have values of their own, else None.

    Example:
        >>> import torch
        >>> from calirare_ext import Csr
        >>> a = Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), None, (2, 2))
        >>> graph = Graph(a, torch.tensor([[0.0, 5.0], [4.0, 5.0]]), feature_names=("amount", "unit"))
        >>> fitted = FeatureMap.fit(graph)
        >>> fitted.log
        ('amount: standardised', 'unit: dropped, constant')
        >>> fitted.transform(graph).x
        tensor([[-1.],
                [ 1.]])
    """

    how: str
    columns: tuple[Column, ...]
    n_inputs: int
    maps: tuple[ColumnMap, ...]
    whole: MatrixMap | None
    newest: dict[int, float]
    feature_names: tuple[str, ...]
    log: tuple[str, ...]
    labelled: LabelledNodes | None = None

    @classmethod
    def fit(
        cls,
        graph: Graph,
        how: How = "auto",
        *,
        impute: Impute = "median",
        one_hot: Sequence[str] = (),
        nodes: Tensor | None = None,
        seed: int = 0,
    ) -> Self:
        """Returns the map fitted on a graph.

        Args:
            graph: the run's own.
            how: "auto": each column by what it holds. Of skewed or heavy-tailed numbers normal scores of the ranks, or
                the signed logarithm where more than half are one number; 0 and 1 as they are; others standardised; rows
                of sparse features >= 0 divided by their sum. "rank" and "standardize": every column so. "row": rows
                divided by their sum. "tfidf": words, weighted. "svd": words, weighted, reduced to 128 directions, and
                log(1 + number of words). "none": numbers as they are. "stored": what the graph says in
                `feature_normalisation`, and constant columns stay. Categories, dates and missing values become numbers
                under each.
            impute: what missing numbers become, next to a column that says where: "median", "zero" or "error".
            one_hot: names of columns that get a column per category, though they hold numbers or many categories.
            nodes: labelled nodes, int64 [m], by whose labels columns of more than 20 common categories are encoded, out
                of fold; None: the 20 commonest get a column each.
            seed: of the sample quantiles are taken of, of folds and of "svd".

        Raises:
            InputError: a word is unknown or does not suit the features.
        """
        for name, value, words in (("how", how, How), ("impute", impute, Impute)):
            check_one_of("features", name, value, get_args(words))
        wanted = graph.feature_normalisation if how == "stored" else how
        if isinstance(graph.x, Csr) or wanted in ("row", "tfidf", "svd") or (wanted == "none" and not graph.columns):
            return cls._of_matrix(graph, how, wanted, one_hot, seed)
        exact = how in ("stored", "none") and wanted in ("none", "standardize")
        labels = _labels_of(graph, nodes)
        options = Options(wanted, exact, impute, tuple(one_hot), *labels, seed)
        columns = with_categories(graph, columns_of(graph), one_hot)
        table = read_table(graph, columns, {}, _silent)
        dates = [i for i, column in enumerate(columns) if column.kind == "date"]
        newest = {i: float(np.nan_to_num(np.fmax.reduce(table.column(i)))) for i in dates}
        table = dataclasses.replace(table, newest=newest)
        maps, log = fit_columns(graph, table, options)
        encoded = any(isinstance(each, TargetEncoded) for each in maps)
        labelled = LabelledNodes.of(graph, labels[0]) if encoded else None
        names = tuple(name for each in maps for name in each.names)
        if not graph.feature_names and names == default_names(graph.n_features):
            names = ()
        return cls(how, columns, len(columns), maps, None, newest, names, log, labelled)

    @classmethod
    def _of_matrix(cls, graph: Graph, how: str, wanted: str, one_hot: Sequence[str], seed: int) -> Self:
        """Returns the map of features as one matrix."""
        if graph.columns or one_hot:
            raise InputError(
                f"features: {wanted} needs features of one kind, but those of graph {graph.name!r} are columns of a "
                "table, or lack values: take auto, rank, standardize or none"
            )
        whole, said = _whole(graph, wanted, seed)
        log = (f"{graph.n_features:,} {'sparse ' if isinstance(graph.x, Csr) else ''}features: {said}",)
        columns = tuple(Column(name) for name in graph.feature_names)
        return cls(how, columns, graph.n_features, (), whole, {}, whole.names(graph.feature_names), log)

    @property
    def n_features(self) -> int:
        """Number of columns it makes."""
        if self.whole is not None and self.whole.directions is not None:
            return len(self.whole.directions) + 1
        return self.n_inputs if self.whole is not None else sum(len(each.names) for each in self.maps)

    def transform(self, graph: Graph, say: Say = _silent) -> Graph:
        """Returns a graph with its features mapped.

        Args:
            graph: any graph with the raw columns of the map's own, in any order where they have names.
            say: takes notes on columns left out.

        Returns:
            The graph with features float32 [n, n_features], dense or sparse, finite; `feature_normalisation` "none".

        Raises:
            InputError: columns are missing or hold something else.
        """
        if self.whole is not None:
            placed = self._placed(graph, say)
            placed.check_mapped("features")
            x = self.whole.of(placed)
        else:
            table = read_table(graph, self.inputs, self.newest, say)
            if self.labelled is not None:
                table = dataclasses.replace(table, labelled=self.labelled.places_in(graph))
            x = self._written(table).to(graph.device)
        return dataclasses.replace(
            graph, x=x, feature_names=self.feature_names, columns=(), feature_normalisation="none", trusted=True
        )

    def elsewhere(self) -> Self:
        """Returns the map as it is of other graphs: labelled nodes without names are not found again there."""
        found = self.labelled is None or len(self.labelled.keys)
        return self if found else dataclasses.replace(self, labelled=None)

    @property
    def values_read(self) -> frozenset[int]:
        """Which raw columns it reads for more than where they are missing and for the phases of a date."""
        if self.whole is not None:
            return frozenset(range(self.n_inputs))
        return frozenset(i for each in self.maps if not isinstance(each, Cyclic | Missing) for i in each.inputs)

    def raw(self, graph: Graph) -> RawTable | Csr:
        """Returns the raw columns of a graph as the map knows them; of sparse features the matrix, in the map's order.

        Raises:
            InputError: columns are missing or hold something else.
        """
        if isinstance(graph.x, Tensor):
            return read_table(graph, self.inputs, self.newest, _silent)
        x = self._placed(graph, _silent).x
        assert not isinstance(x, Tensor)
        return x

    def own(self, graph: Graph) -> Graph:
        """Returns the map's own graph as a detector takes it.

        Only numbers under "stored" stay as they are: every detector scales them by itself, as the graph says.
        """
        return graph if self.how == "stored" and not graph.columns else self.transform(graph)

    def _placed(self, graph: Graph, say: Say) -> Graph:
        """Returns a graph with its features in the order of the map's own, and no others."""
        places = places_of(graph, self.inputs, say)
        if places == tuple(range(graph.n_features)):
            return graph
        columns = tuple(graph.columns[place] for place in places) if graph.columns else ()
        names = tuple(column.name for column in columns)
        return dataclasses.replace(
            graph, x=_picked(graph.x, places), feature_names=names, columns=columns, trusted=True
        )

    def _written(self, table: RawTable) -> Tensor:
        """Returns what the maps make of a table, float32 [n, n_features]."""
        out = scratch(table.n_nodes, self.n_features, torch.device("cpu")).numpy()
        step = max(1, NUMBERS // max(self.n_inputs, 1))
        for first in range(0, len(out), step):
            rows = slice(first, first + step)
            part, start = table.at(rows), 0
            for each in self.maps:
                each.write(part, out[rows, start : start + len(each.names)])
                start += len(each.names)
        return torch.from_numpy(out)

    def of_numbers(self, x: Tensor) -> Tensor:
        """Returns rows of raw numbers, [n, n_inputs] in the map's own order, mapped column by column, float32 [n, d].

        For nodes of which there is no graph; the map must have been fitted on numbers only.
        """
        assert self.whole is None
        assert all(column.kind == "numeric" for column in self.columns)
        return self._written(RawTable(x, self.inputs, tuple(range(self.n_inputs)), {}, {})).to(x.device)

    @property
    def inputs(self) -> tuple[Column, ...]:
        """The raw columns; numbers without names are called "feature 0" and on."""
        return self.columns or number_columns(default_names(self.n_inputs))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns everything as tensors by name and as what JSON holds; `from_state` reads it."""
        tensors: dict[str, Tensor] = {}
        states = {str(i): each.state() for i, each in enumerate(self.maps)}
        for i, each in enumerate(self.maps):
            states[str(i)][1]["kind"] = each.kind
        if self.whole is not None:
            states["whole"] = self.whole.state()
        if self.labelled is not None:
            states["labelled"] = self.labelled.state()
        for name, (arrays, _) in states.items():
            tensors |= {f"{name}.{key}": value for key, value in arrays.items()}
        facts = {
            "how": self.how,
            "columns": columns_to_text(self.columns),
            "n_inputs": self.n_inputs,
            "maps": {name: facts for name, (_, facts) in states.items()},
            "newest": {str(i): day for i, day in self.newest.items()},
            "feature_names": list(self.feature_names),
            "log": list(self.log),
        }
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the map of a `state`.

        Raises:
            LookupError: it is none.
        """

        def of(name: str) -> dict[str, Tensor]:
            return {key.partition(".")[2]: value for key, value in tensors.items() if key.partition(".")[0] == name}

        columns = {kind.kind: kind for kind in COLUMN_MAPS}
        stored = dict(facts["maps"])
        whole, labelled = stored.pop("whole", None), stored.pop("labelled", None)
        given = {i: dict(stored[i]) for i in map(str, range(len(stored)))}
        maps = (columns[each.pop("kind")].from_state(of(i), each) for i, each in given.items())
        raw = columns_of_text(facts["columns"], "features")
        return cls(
            str(facts["how"]),
            raw,
            int(facts["n_inputs"]),
            tuple(maps),
            None if whole is None else MatrixMap.from_state(of("whole"), whole),
            {int(i): float(day) for i, day in facts["newest"].items()},
            tuple(facts["feature_names"]),
            tuple(facts["log"]),
            None if labelled is None else LabelledNodes.from_state(of("labelled"), labelled),
        )


def _whole(graph: Graph, how: str, seed: int) -> tuple[MatrixMap, str]:
    """Returns the map of features as one matrix, and what it does."""
    if how in ("rank", "standardize"):
        raise InputError(
            f"features: {how} needs dense features, but those of graph {graph.name!r} are sparse and would lose their "
            "zeros: take auto, row, tfidf, svd or none"
        )
    if how == "svd":
        svd, share = fit_svd(graph, seed)
        assert svd.directions is not None
        return (
            svd,
            f"{len(svd.directions)} singular directions, {100 * share:.0f} % of the variance, and the number of words",
        )
    if how == "tfidf":
        return fit_tfidf(graph), "tf-idf, each row of length 1"
    if how == "row" or (how == "auto" and least(graph) >= 0):
        if least(graph) < 0:
            raise InputError(
                f"features: row needs features >= 0, but graph {graph.name!r} has {least(graph):g}: take auto or none"
            )
        return MatrixMap("row"), "each row divided by its sum"
    return MatrixMap("as is"), "as they are"


def _labels_of(graph: Graph, nodes: Tensor | None) -> tuple[Any, Any]:
    """Returns labelled nodes and their labels as arrays, None where there are none."""
    if nodes is None:
        return None, None
    check_nodes("features", nodes, graph.n_nodes)
    if graph.y is None or bool((graph.y[nodes] < 0).any()):
        raise InputError(f"features: nodes must have labels, but graph {graph.name!r} lacks some of them")
    return nodes.cpu().numpy(), graph.y[nodes].cpu().numpy()


def _picked(x: Tensor | Csr, places: tuple[int, ...]) -> Tensor | Csr:
    """Returns columns of features."""
    if isinstance(x, Tensor):
        return x[:, list(places)]
    order = torch.full((x.n_cols,), -1, dtype=torch.int64, device=x.device)
    order[list(places)] = torch.arange(len(places), device=x.device)
    columns = order[x.indices.long()]
    kept = columns >= 0
    return Csr.from_coo(x.rows()[kept], columns[kept], x.values[kept], (x.n_rows, len(places)))
