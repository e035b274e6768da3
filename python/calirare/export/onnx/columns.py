"""What a run's map of features makes of a matrix of raw numbers, all columns of a kind at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.export.columns import ColumnWriter
from calirare.export.onnx.ranks import normal_scores, ranks
from calirare.export.onnx.sketch import DOUBLE, SINGLE, WHOLE, Value
from calirare.features import AsIs, FeatureMap, Kept, RowSums, Svd, TfIdf


def mapped(x: Value, features: FeatureMap) -> Value:
    """Returns what a map makes of raw numbers, float32 [n, features.n_features].

    Args:
        x: the columns as `features` knows them, float32 [n, d]: numbers, NaN where missing; of categories their number,
            of dates days since the start of the year 2000.
        features: the map.
    """
    if features.whole is not None:
        return _whole(x, features)
    writer = _Writer(x, features)
    made = [writer.of(each).cast(SINGLE) for each in features.maps if each.names]
    return made[0] if len(made) == 1 else x.sketch.op("Concat", *made, axis=1)


def _whole(x: Value, features: FeatureMap) -> Value:
    """Returns features that are mapped as one matrix."""
    whole = features.whole
    if isinstance(whole, AsIs):
        return x
    wide = x.cast(DOUBLE)
    if isinstance(whole, RowSums):
        return (wide / _or_one(wide.row_sums())).cast(SINGLE)
    assert isinstance(whole, TfIdf | Svd)
    if whole.idf is not None:
        wide = wide * np.asarray(whole.idf, dtype=np.float64)
        wide = wide / _or_one((wide * wide).row_sums().apply("Sqrt"))
    if isinstance(whole, Svd):
        wide = wide @ np.asarray(whole.directions.T, dtype=np.float64)
    return wide.cast(SINGLE)


def _or_one(x: Value) -> Value:
    """Returns numbers, 1 in the place of 0."""
    return x.equals(0.0).choose(np.ones((1, 1)), x)


class _Writer(ColumnWriter[Value, Value]):
    """What column maps make, each [n, columns].

    Args:
        x: the raw columns.
        features: the whole map.
    """

    def __init__(self, x: Value, features: FeatureMap) -> None:
        super().__init__(features)
        self.x = x

    def _raw(self, inputs: Sequence[int]) -> Value:
        """Returns raw columns, of dates their age, float64 [n, len(inputs)]."""
        whole = tuple(inputs) == tuple(range(self.features.n_inputs))
        raw = (self.x if whole else self.x.at(np.array(inputs), axis=1)).cast(DOUBLE)
        newest = self.features.newest
        if not newest.keys() & set(inputs):
            return raw
        signs = np.array([-1.0 if i in newest else 1.0 for i in inputs])
        return raw * signs + np.array([newest.get(i, 0.0) for i in inputs])

    def numbers(self, each: Kept) -> Value:
        """Returns numbers, their gaps filled, scaled; where none may be missing the gap stays."""
        x, fill = self._raw(each.inputs), np.asarray(each.fill, dtype=np.float64)
        return self.scaled(each, slice(None), x if np.isnan(fill).all() else x.missing().choose(fill, x))

    def ranked(self, x: Value, quantiles: NumpyArray) -> Value:
        """Returns the normal scores of ranks."""
        return normal_scores(ranks(x, quantiles))

    def gaps(self, inputs: Sequence[int]) -> Value:
        """Returns where raw columns are missing."""
        return self._raw(inputs).missing()

    def coded(self, i: int, rows: NumpyArray) -> Value:
        """Returns the row of each node's category."""
        raw = self._raw([i])
        known = len(self.features.inputs[i].categories)
        unknown, gone = np.array(float(known)), np.array(known + 1.0)
        inside = raw.sketch.op("Min", raw, unknown)
        code = raw.missing().choose(gone, (raw >= 0.0).choose(inside, unknown))
        place = raw.sketch.op("Squeeze", code, np.array([1])).cast(WHOLE)
        return raw.sketch.constant(rows).at(place)

    def cyclic(self, i: int, cycles: Sequence[str]) -> Value:
        """Returns sine and cosine of a date's phases, 0 where it is missing."""
        raw = self._raw([i])
        angles = self.angles(self.features.newest[i] - raw, cycles)
        made = [(angle + shift).apply("Sin") for angle in angles for shift in (0.0, np.pi / 2)]
        both = raw.sketch.op("Concat", *made, axis=1)
        return raw.missing().choose(np.zeros((1, 1)), both)
