"""The logits' difference of each network, class 1 less class 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare._util.errors import InputError
from calirare.export.models import DIRECTED
from calirare.export.onnx.columns import mapped
from calirare.export.onnx.edges import Edges
from calirare.export.onnx.maps import log_odds, probability
from calirare.export.onnx.sketch import DOUBLE, Value
from calirare.models import GCN, SMALLEST_P, FoldedNetwork, GcnFit, HopColumns, HopsFit, Mixture, TreesFit
from calirare.training import Fitted


class Detectors:
    """Writes detectors as operations; columns that several read are made once.

    Args:
        edges: the adjacency.
        features: the mapped features, float32 [n, d].
        width: d.
    """

    def __init__(self, edges: Edges, features: Value, width: int) -> None:
        self.edges, self.features, self.width = edges, features, width
        self._made: list[tuple[HopColumns, Value]] = []

    def of(self, fit: Fitted) -> Value:
        """Returns the difference of the logits, float64 [n, 1].

        Raises:
            InputError: the detector is none that a model can hold.
        """
        if isinstance(fit, FoldedNetwork):
            return self.of(fit.network)
        if isinstance(fit, HopsFit):
            return self._network(fit.model, self._columns(fit.columns))
        if isinstance(fit, GcnFit):
            return self._network(fit.model, self.features)
        if isinstance(fit, Mixture):
            return self._mixture(fit)
        if isinstance(fit, TreesFit):
            raise InputError(
                "export: --onnx holds networks, but the run has trees, as --model auto, trees and forest have: train "
                "with --model gcn or hops, or export it with --sql"
            )
        raise InputError(
            "export: only runs of --model gcn and hops can be written as a model: train one of them, or score with "
            "`calirare predict`"
        )

    def _columns(self, columns: HopColumns) -> Value:
        """Returns [x, M x, .., M^K x, log(1 + degree)], scaled, as a network reads them."""
        for known, made in self._made:
            if known.same_as(columns):
                return made
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
        made = mapped(raw, columns.scaled)
        self._made.append((columns, made))
        return made

    def _network(self, model: GCN, x: Value) -> Value:
        """Returns what a graph convolution says, or a perceptron where nothing is propagated."""
        layers = [(weight.detach().double().numpy(), bias.detach().double().numpy()) for weight, bias in model.layers()]
        weight, bias = layers[-1]
        layers[-1] = ((weight[:, 1] - weight[:, 0])[:, None], bias[1:] - bias[:1])
        dtype: np.dtype[Any] = model.weights[0].detach().numpy().dtype
        h = x.cast(dtype)
        for i, (weight, bias) in enumerate(layers):
            hops = (model.hops if i == 0 else 1) if model.hops else 0
            h = h if i == 0 else (h + h.apply("Abs")) * 0.5  # max(h, 0), and NaN of NaN, which Relu need not keep
            h = self._layer(h, weight.astype(dtype), hops) + bias.astype(dtype)
        return h.cast(DOUBLE)

    def _layer(self, h: Value, weight: np.ndarray[Any, Any], hops: int) -> Value:
        """Returns A_hat^hops h W; what is propagated is as narrow as can be."""
        d, width = weight.shape
        h = h @ weight if width <= d else h
        for _ in range(hops):
            h = self.edges.propagated(h, min(d, width))
        return h if width <= d else h @ weight

    def _mixture(self, fit: Mixture) -> Value:
        """Returns what detectors averaged by their weights say."""
        odds = [(member.weight, log_odds(member.spoken, self.of(member.fitted))) for member in fit.members]
        sides = list[Value]()
        for sign in (1.0, -1.0):
            weight, first = odds[0]
            total = probability(first * sign) * weight
            for weight, each in odds[1:]:
                total = total + probability(each * sign) * weight
            sides.append(total.sketch.op("Max", total, np.array(SMALLEST_P)).apply("Log"))
        return sides[0] - sides[1]
