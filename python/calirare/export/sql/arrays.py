"""Searches in arrays, for an engine that has functions of arrays and reads nested CASEs slowly.

Spark's parser takes minutes for such a query of a megabyte. An array of constants is one word of the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calirare._util.errors import InputError

Leaf = tuple[float, float, float]  # of a broken line: a point, slope and value there


def searched(x: str, bounds: Sequence[float], leaves: Sequence[Leaf]) -> str:
    """Returns the value of a broken line at x: its piece is found by halving.

    Args:
        x: an expression.
        bounds: between the pieces, rising.
        leaves: the pieces, one more than bounds.
    """
    steps = [1 << i for i in range(len(bounds).bit_length())][::-1]
    padded = [*bounds, *[float("inf")] * ((1 << len(steps)) - 1 - len(bounds))]
    place = f"IF({_array('DOUBLE', padded)}[i + s - 1] <= {x}, i + s, i)"
    at, slope, value = (_array("DOUBLE", part) for part in zip(*leaves, strict=True))
    return f"AGGREGATE({_array('INT', steps)}, 0, (i, s) -> {place}, i -> {value}[i] + {slope}[i] * ({x} - {at}[i]))"


def walked(trees: Iterable[dict[str, Any]], columns: str) -> str:
    """Returns the sum of what trees of LightGBM say.

    Args:
        trees: their roots.
        columns: an expression, the array of all columns.
    """
    split, leaf = list[tuple[int, float, list[int]]](), list[float]()

    def numbered(node: dict[str, Any]) -> int:
        """Returns the number of a node: of splits from 0, of leaves from -1 down."""
        if "leaf_value" in node:
            leaf.append(float(node["leaf_value"]))
            return -len(leaf)
        if node["decision_type"] != "<=":
            raise InputError(f"export: trees must compare numbers, got {node['decision_type']!r}: train again")
        ends, number = list[int](), len(split)
        split.append((int(node["split_feature"]), float(node["threshold"]), ends))
        ends += [numbered(node["left_child"]), numbered(node["right_child"])]
        return number

    roots = list(trees)
    depth, starts = max(map(_depth, roots)), [numbered(root) for root in roots]
    feature = _array("INT", [each[0] for each in split])
    threshold = _array("DOUBLE", [each[1] for each in split])
    left, right = (_array("INT", [each[2][side] for each in split]) for side in (0, 1))
    step = f"IF({columns}[{feature}[k]] <= {threshold}[k], {left}[k], {right}[k])"
    walk = f"AGGREGATE(SEQUENCE(0, {depth}), r, (k, n) -> IF(k < 0, k, {step}), k -> {_array('DOUBLE', leaf)}[-k - 1])"
    return f"AGGREGATE({_array('INT', starts)}, CAST(0 AS DOUBLE), (t, r) -> t + {walk})"


def _depth(node: dict[str, Any]) -> int:
    """Returns how many splits lie above the deepest leaf."""
    return 0 if "leaf_value" in node else 1 + max(_depth(node[side]) for side in ("left_child", "right_child"))


def _array(kind: str, numbers: Iterable[float]) -> str:
    """Returns an array of constants: the engine makes it once."""
    words = " ".join("Infinity" if number == float("inf") else repr(number) for number in numbers)
    return f"CAST(SPLIT('{words}', ' ') AS ARRAY<{kind}>)"
