"""Sparse features: a table of their own, a row for each number that is not 0, and constants in tables beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.export.sql.names import Names
from calirare.export.sql.script import Columns, Script, numbered
from calirare.features import AsIs, FeatureMap, RowSums, Svd, TfIdf

OVER = "OVER (PARTITION BY f.node)"


@dataclass(frozen=True)
class Sparse:
    """Sparse features in a query.

    Attributes:
        script: the query.
        names: of the tables.
        part: with columns node, feature and value.
        keys: how the part names each feature: SQL literals.
    """

    script: Script
    names: Names
    part: str
    keys: tuple[str, ...]

    def times(self, weights: NumpyArray) -> Columns:
        """Returns a part with the features of every node times weights [d, h]."""
        called = numbered(weights.shape[1])
        table = self.script.constants("weights", self.keys, weights, called)
        d, id_ = self.script.dialect, self.names.id
        node = f"n.{d.name_of(id_)}"
        made = [(f"COALESCE(SUM(f.value * w.{c}), 0)", c) for c in called]
        source = (
            f"FROM {d.table(self.names.nodes)} n LEFT JOIN {self.part} f ON f.node = {node} "
            f"LEFT JOIN {table} w ON w.feature = f.feature GROUP BY {node}"
        )
        return Columns(self.script.select("product", [(node, "node"), *made], source), called)

    def dense(self) -> Columns:
        """Returns a part with a column for each feature."""
        return self.times(np.eye(len(self.keys)))

    def mapped(self, features: FeatureMap) -> Sparse | Columns:
        """Returns what a map of the matrix makes of it."""
        whole = features.whole
        if isinstance(whole, AsIs):
            return self
        if isinstance(whole, RowSums):
            total = f"COALESCE(NULLIF(SUM(f.value) {OVER}, 0), 1)"
            return self._with(f"SELECT f.node, f.feature, f.value / {total} AS value FROM {self.part} f")
        if isinstance(whole, TfIdf):
            return self._weighted(whole.idf)
        assert isinstance(whole, Svd)
        words = self if whole.idf is None else self._weighted(whole.idf)
        return words.times(np.asarray(whole.directions, dtype=np.float64).T)

    def _weighted(self, idf: NumpyArray) -> Sparse:
        """Returns numbers times the weight of their word, each node's of length 1."""
        table = self.script.constants("idf", self.keys, idf[:, None], ["idf"])
        counted = self._with(
            f"SELECT f.node, f.feature, f.value * w.idf AS value FROM {self.part} f "
            f"JOIN {table} w ON w.feature = f.feature"
        )
        length = f"COALESCE(NULLIF(SQRT(SUM(f.value * f.value) {OVER}), 0), 1)"
        return counted._with(f"SELECT f.node, f.feature, f.value / {length} AS value FROM {counted.part} f")

    def _with(self, body: str) -> Sparse:
        return Sparse(self.script, self.names, self.script.add("words", body), self.keys)


def sparse_features(script: Script, names: Names, features: FeatureMap) -> Sparse:
    """Returns the features of the table that the user named.

    Raises:
        InputError: the run reads columns of a table instead.
    """
    if features.whole is None or names.features is None:
        raise InputError(
            "export: the run reads the columns of the node table, so there is no table of sparse features: leave "
            "--features-table out"
        )
    d = script.dialect
    keys = _keys(features, [d.string(column.name) for column in features.columns])
    of_key = f"CAST(f.feature AS {d.text})" if features.columns else "f.feature"
    value = d.as_single(d.as_double("f.value"))
    part = script.add("words", f"SELECT f.node, {of_key} AS feature, {value} AS value FROM {d.table(names.features)} f")
    return Sparse(script, names, part, keys)


def _keys(features: FeatureMap, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) or tuple(str(i) for i in range(features.n_inputs))
