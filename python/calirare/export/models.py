"""The logits' difference of each detector, class 1 less class 0, as a part of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from calirare._util.errors import InputError
from calirare.export.columns import mapped
from calirare.export.dialects import number
from calirare.export.maps import log_odds, probability
from calirare.export.neighbours import Neighbours
from calirare.export.script import Columns, Script, linear, numbered, total
from calirare.export.sparse import Sparse
from calirare.models import (
    GCN,
    SMALLEST_P,
    TREE_SHRINKAGE,
    Ensemble,
    FoldedNetwork,
    GcnFit,
    HopColumns,
    HopsFit,
    Mixture,
    TreesFit,
)
from calirare.training import Fitted

DIRECTED = (
    "export: the run's edges have directions or types, which no export holds yet: train without --directed and "
    "--relation, or score with `calirare predict`"
)


class Detectors:
    """Writes detectors into a query; columns that several read are made once.

    Args:
        script: the query.
        neighbours: its edges.
        features: the mapped features.
    """

    def __init__(self, script: Script, neighbours: Neighbours, features: Columns | Sparse) -> None:
        self.script, self.neighbours, self.features = script, neighbours, features
        self._made: list[tuple[HopColumns, Columns]] = []

    def of(self, fit: Fitted) -> str:
        """Returns the part with columns `node` and `d`, the difference of the logits.

        Raises:
            InputError: the detector is none that a query can hold.
        """
        if isinstance(fit, FoldedNetwork):
            return self.of(fit.network)
        if isinstance(fit, HopsFit):
            return self._network(fit.model, self._columns(fit.columns))
        if isinstance(fit, GcnFit):
            return self._network(fit.model, self.features)
        if isinstance(fit, TreesFit):
            return self._trees(fit.trees.all_labels, self._columns(fit.columns))
        if isinstance(fit, Mixture):
            return self._mixture(fit)
        raise InputError(
            "export: only runs of --model gcn, hops, trees, forest and auto can be written as a query: train one of "
            "them, or score with `calirare predict`"
        )

    def _columns(self, columns: HopColumns) -> Columns:
        """Returns the hop columns as a detector reads them."""
        for known, made in self._made:
            if known.same_as(columns):
                return made
        x = self.features
        if isinstance(x, Sparse) and columns.own is not None:
            x = x.mapped(columns.own)
        x = x.dense() if isinstance(x, Sparse) else x
        hops = self._hops(x, columns.hops)
        if len(hops.names) != columns.scaled.n_inputs:
            raise InputError(DIRECTED)
        made = mapped(self.script, hops, columns.scaled)
        self._made.append((columns, made))
        return made

    def _hops(self, x: Columns, hops: int) -> Columns:
        """Returns [x, M x, .., M^K x, log(1 + degree)]."""
        neighbours = self.neighbours
        if not hops:
            return x
        made, joins, below = [("x." + c) for c in x.names], list[str](), x.part
        for hop in range(1, hops + 1):
            below = neighbours.means(below, x.names)
            joins.append(f"LEFT JOIN {below} m{hop} ON m{hop}.node = x.node")
            made += [f"COALESCE(m{hop}.{c}, 0)" for c in x.names]
        joins.append(f"LEFT JOIN {neighbours.degrees} g ON g.node = x.node")
        made.append("LN(1 + COALESCE(g.n, 0))")
        called = numbered(len(made))
        source = f"FROM {x.part} x " + " ".join(joins)
        part = self.script.select("columns", [("x.node", "node"), *zip(made, called, strict=True)], source)
        return Columns(part, called)

    def _network(self, model: GCN, columns: Columns | Sparse) -> str:
        """Returns the part of a graph convolution, or of a perceptron where nothing is propagated."""
        layers = [(weight.detach().double(), bias.detach().double()) for weight, bias in model.layers()]
        weight, bias = layers[-1]
        layers[-1] = ((weight[:, 1] - weight[:, 0])[:, None], (bias[1] - bias[0])[None])
        h: Columns | Sparse = columns
        for i, (weight, bias) in enumerate(layers):
            hops = (model.hops if i == 0 else 1) if model.hops else 0
            h = self._biased(self._product(h if i == 0 else self._active(h), weight), hops, bias)
        return self.script.select("logit", [("node", "node"), ("c0", "d")], f"FROM {h.part}")

    def _active(self, h: Columns | Sparse) -> Columns:
        """Returns max(h, 0), and NULL of NULL."""
        assert isinstance(h, Columns)
        made = [("node", "node"), *((f"0.5e0 * ({c} + ABS({c}))", c) for c in h.names)]
        return Columns(self.script.select("active", made, f"FROM {h.part}"), h.names)

    def _product(self, h: Columns | Sparse, weight: Tensor) -> Columns:
        """Returns h W."""
        if isinstance(h, Sparse):
            return h.times(weight.numpy())
        out = numbered(weight.shape[1])
        made = [linear(h.names, column.tolist()) for column in weight.T]
        part = self.script.select("layer", [("node", "node"), *zip(made, out, strict=True)], f"FROM {h.part}")
        return Columns(part, out)

    def _biased(self, h: Columns, hops: int, bias: Tensor) -> Columns:
        """Returns A_hat^hops h + b."""
        part = h.part
        for _ in range(hops):
            part = self.neighbours.propagated(part, h.names)
        shifted = [(f"{c} + {number(float(b))}", c) for c, b in zip(h.names, bias, strict=True)]
        return Columns(self.script.select("biased", [("node", "node"), *shifted], f"FROM {part}"), h.names)

    def _trees(self, ensemble: Ensemble, columns: Columns) -> str:
        """Returns the part of boosted or randomised trees, each a CASE."""
        double = self.script.dialect.as_double
        trees = [tree for booster in ensemble.boosters for tree in booster.dump_model()["tree_info"]]
        sums = total([double(_tree(tree["tree_structure"], columns.names)) for tree in trees])
        prior = np.asarray(ensemble.prior, dtype=np.float64)
        if ensemble.kind == "boosting":
            start = float(np.log(prior[1]) - np.log(prior[0]))
            made = f"{number(start)} + {sums}"
            return self.script.select("logit", [("node", "node"), (made, "d")], f"FROM {columns.part}")
        least = TREE_SHRINKAGE / (ensemble.weight + TREE_SHRINKAGE)
        low, high = number(least * prior[1]), number(1 - least * (1 - prior[1]))
        share = f"{number(prior[1])} + {sums} / {len(trees)}"
        part = self.script.select("votes", [("node", "node"), (share, "p")], f"FROM {columns.part}")
        cut = f"CASE WHEN p < {low} THEN {low} WHEN p > {high} THEN {high} ELSE p END"
        part = self.script.select("share", [("node", "node"), (cut, "p")], f"FROM {part}")
        return self.script.select("logit", [("node", "node"), ("LN(p) - LN(1 - p)", "d")], f"FROM {part}")

    def _mixture(self, fit: Mixture) -> str:
        """Returns the part of detectors averaged by their weights."""
        dialect, parts = self.script.dialect, [self.of(member.fitted) for member in fit.members]
        first, joins = "m0", "".join(f" JOIN {p} m{i} ON m{i}.node = m0.node" for i, p in enumerate(parts) if i)
        columns = [(log_odds(m.spoken, f"m{i}.d"), f"d{i}") for i, m in enumerate(fit.members)]
        part = self.script.select("members", [(f"{first}.node", "node"), *columns], f"FROM {parts[0]} m0{joins}")
        sides = []
        for sign in ("", "-"):
            terms = [f"{number(m.weight)} * {probability(dialect, f'{sign}d{i}')}" for i, m in enumerate(fit.members)]
            sides.append(f"LN({dialect.high}({total(terms)}, {number(SMALLEST_P)}))")
        return self.script.select("logit", [("node", "node"), (f"{sides[0]} - {sides[1]}", "d")], f"FROM {part}")


def _tree(node: dict[str, Any], columns: Sequence[str]) -> str:
    """Returns a tree of LightGBM as a CASE."""
    if "leaf_value" in node:
        return number(node["leaf_value"])
    if node["decision_type"] != "<=":
        raise InputError(f"export: trees must compare numbers, got {node['decision_type']!r}: train again")
    test = f"{columns[node['split_feature']]} <= {number(node['threshold'])}"
    left, right = (_tree(node[side], columns) for side in ("left_child", "right_child"))
    return f"CASE WHEN {test} THEN {left} ELSE {right} END"
