"""The logits' difference of each detector, class 1 less class 0, as a part of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.calibration import Calibrator
from calirare.export.arithmetic import mixed
from calirare.export.detectors import DIRECTED, DetectorWriter
from calirare.export.maps import log_odds
from calirare.export.sql.arrays import walked
from calirare.export.sql.columns import mapped
from calirare.export.sql.dialects import number
from calirare.export.sql.neighbours import Neighbours
from calirare.export.sql.script import Columns, Script, linear, numbered, total
from calirare.export.sql.sparse import Sparse
from calirare.export.sql.terms import Term
from calirare.models import TREE_SHRINKAGE, HopColumns, TreesFit


class Detectors(DetectorWriter[Columns | Sparse, str]):
    """Writes detectors into a query, each a part with columns `node` and `d`.

    Args:
        script: the query.
        neighbours: its edges.
        features: the mapped features.
    """

    refused = (
        "export: only runs of --model gcn, hops, trees, forest and auto can be written as a query: train one of "
        "them, or score with `calirare predict`"
    )

    def __init__(self, script: Script, neighbours: Neighbours, features: Columns | Sparse) -> None:
        super().__init__(features)
        self.script, self.neighbours = script, neighbours

    def hop_columns(self, columns: HopColumns) -> Columns:
        """Returns a part with the hop columns, scaled."""
        x = self.features
        if isinstance(x, Sparse) and columns.own is not None:
            x = x.mapped(columns.own)
        hops = self._hops(x.dense() if isinstance(x, Sparse) else x, columns.hops)
        if len(hops.names) != columns.scaled.n_inputs:
            raise InputError(DIRECTED)
        return mapped(self.script, hops, columns.scaled)

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

    def layer(self, h: Columns | Sparse, weight: NumpyArray, bias: NumpyArray, hops: int) -> Columns:
        """Returns a part with A_hat^hops h W + b."""
        product = h.times(weight) if isinstance(h, Sparse) else self._product(h, weight)
        part = product.part
        for _ in range(hops):
            part = self.neighbours.propagated(part, product.names)
        shifted = [(f"{c} + {number(float(b))}", c) for c, b in zip(product.names, bias, strict=True)]
        return Columns(self.script.select("biased", [("node", "node"), *shifted], f"FROM {part}"), product.names)

    def _product(self, h: Columns, weight: NumpyArray) -> Columns:
        """Returns h W."""
        out = numbered(weight.shape[1])
        made = [linear(h.names, column.tolist()) for column in weight.T]
        part = self.script.select("layer", [("node", "node"), *zip(made, out, strict=True)], f"FROM {h.part}")
        return Columns(part, out)

    def active(self, h: Columns | Sparse) -> Columns:
        """Returns max(h, 0), and NULL of NULL."""
        assert isinstance(h, Columns)
        made = [("node", "node"), *((f"0.5e0 * ({c} + ABS({c}))", c) for c in h.names)]
        return Columns(self.script.select("active", made, f"FROM {h.part}"), h.names)

    def answer(self, h: Columns | Sparse) -> str:
        """Returns the part of the only column."""
        return self._logit("c0", h.part)

    def _logit(self, d: str, part: str) -> str:
        return self.script.select("logit", [("node", "node"), (d, "d")], f"FROM {part}")

    def trees(self, fit: TreesFit) -> str:
        """Returns the part of boosted or randomised trees, each a CASE."""
        ensemble, columns = fit.trees.all_labels, self.columns(fit.columns)
        assert isinstance(columns, Columns)
        dumped = [tree for booster in ensemble.boosters for tree in booster.dump_model()["tree_info"]]
        trees = [tree["tree_structure"] for tree in dumped]
        part, sums = self._sums(trees, columns)
        prior = np.asarray(ensemble.prior, dtype=np.float64)
        if ensemble.kind == "boosting":
            return self._logit(f"{number(float(np.log(prior[1]) - np.log(prior[0])))} + {sums}", part)
        least = TREE_SHRINKAGE / (ensemble.weight + TREE_SHRINKAGE)
        share = f"{number(prior[1])} + {sums} / {len(trees)}"
        part = self.script.select("votes", [("node", "node"), (share, "p")], f"FROM {part}")
        p = Term(self.script.dialect, "p").at_least(least * prior[1]).at_most(1 - least * (1 - prior[1]))
        part = self.script.select("share", [("node", "node"), (p.text, "p")], f"FROM {part}")
        return self._logit("LN(p) - LN(1 - p)", part)

    def _sums(self, trees: Sequence[dict[str, Any]], columns: Columns) -> tuple[str, str]:
        """Returns a part, and the sum of what trees say as an expression of its columns."""
        dialect = self.script.dialect
        if not dialect.arrays:
            return columns.part, total([dialect.as_double(_tree(tree, columns.names)) for tree in trees])
        packed = [("node", "node"), (f"ARRAY({', '.join(columns.names)})", "f")]
        return self.script.select("packed", packed, f"FROM {columns.part}"), walked(trees, "f")

    def mixture(self, members: Sequence[tuple[float, Calibrator | None, str]]) -> str:
        """Returns the part of detectors averaged by their weights."""
        dialect = self.script.dialect
        joins = "".join(f" JOIN {part} m{i} ON m{i}.node = m0.node" for i, (_, _, part) in enumerate(members) if i)
        said = [log_odds(spoken, Term(dialect, f"m{i}.d")).text for i, (_, spoken, _) in enumerate(members)]
        columns = [("m0.node", "node"), *((each, f"d{i}") for i, each in enumerate(said))]
        part = self.script.select("members", columns, f"FROM {members[0][2]} m0{joins}")
        odds = [(weight, Term(dialect, f"d{i}")) for i, (weight, _, _) in enumerate(members)]
        return self._logit(mixed(odds).text, part)


def _tree(node: dict[str, Any], columns: Sequence[str]) -> str:
    """Returns a tree of LightGBM as a CASE."""
    if "leaf_value" in node:
        return number(node["leaf_value"])
    if node["decision_type"] != "<=":
        raise InputError(f"export: trees must compare numbers, got {node['decision_type']!r}: train again")
    test = f"{columns[node['split_feature']]} <= {number(node['threshold'])}"
    left, right = (_tree(node[side], columns) for side in ("left_child", "right_child"))
    return f"CASE WHEN {test} THEN {left} ELSE {right} END"
