"""The logits' difference of each network, class 1 less class 0, as operations."""

from __future__ import annotations

from collections.abc import Sequence

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.calibration import Calibrator
from calirare.export.arithmetic import mixed
from calirare.export.detectors import DIRECTED, DetectorWriter
from calirare.export.maps import log_odds
from calirare.export.onnx.columns import mapped
from calirare.export.onnx.edges import Edges
from calirare.export.onnx.sketch import DOUBLE, Value
from calirare.models import GCN, HopColumns, TreesFit


class Detectors(DetectorWriter[Value, Value]):
    """Writes detectors as operations; the difference of the logits is float64 [n, 1].

    Args:
        edges: the adjacency.
        features: the mapped features, float32 [n, d].
        width: d.
    """

    refused = (
        "export: only runs of --model gcn and hops can be written as a model: train one of them, or score with "
        "`calirare predict`"
    )

    def __init__(self, edges: Edges, features: Value, width: int) -> None:
        super().__init__(features)
        self.edges, self.width = edges, width

    def hop_columns(self, columns: HopColumns) -> Value:
        """Returns the hop columns, scaled."""
        x, width = self.features, self.width
        if columns.own is not None:
            x, width = mapped(x, columns.own), columns.own.n_features
        parts = [x]
        for _ in range(columns.hops):
            parts.append(self.edges.means(parts[-1], width))
        if columns.hops:
            parts.append(self.edges.log_degree)
        if width * (columns.hops + 1) + bool(columns.hops) != columns.scaled.n_inputs:
            raise InputError(DIRECTED)
        raw = parts[0] if len(parts) == 1 else x.sketch.op("Concat", *parts, axis=1)
        return mapped(raw, columns.scaled)

    def network(self, model: GCN, h: Value) -> Value:
        """Returns what a network says, computed in its own precision."""
        return super().network(model, h.cast(model.weights[0].detach().numpy().dtype))

    def layer(self, h: Value, weight: NumpyArray, bias: NumpyArray, hops: int) -> Value:
        """Returns A_hat^hops h W + b; what is propagated is as narrow as can be."""
        weight, (d, width) = weight.astype(h.dtype), weight.shape
        h = h @ weight if width <= d else h
        for _ in range(hops):
            h = self.edges.propagated(h, min(d, width))
        return (h if width <= d else h @ weight) + bias.astype(h.dtype)

    def active(self, h: Value) -> Value:
        """Returns max(h, 0), and NaN of NaN, which Relu need not keep."""
        return (h + h.apply("Abs")) * 0.5

    def answer(self, h: Value) -> Value:
        """Returns the only column in double precision."""
        return h.cast(DOUBLE)

    def trees(self, fit: TreesFit) -> Value:
        """Raises InputError: a model holds networks alone."""
        raise InputError(
            "export: --onnx holds networks, but the run has trees, as --model auto, trees and forest have: train "
            "with --model gcn or hops, or export it with --sql"
        )

    def mixture(self, members: Sequence[tuple[float, Calibrator | None, Value]]) -> Value:
        """Returns what detectors averaged by their weights say."""
        return mixed([(weight, log_odds(spoken, said)) for weight, spoken, said in members])
