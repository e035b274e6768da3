"""A run as one ONNX model: features, edges, weights, map and threshold."""

from __future__ import annotations

import json

import numpy as np

from calirare._util.errors import InputError
from calirare.export.detectors import DIRECTED
from calirare.export.maps import log_odds
from calirare.export.onnx.columns import mapped
from calirare.export.onnx.detectors import Detectors
from calirare.export.onnx.edges import Edges
from calirare.export.onnx.sketch import SINGLE, WHOLE, Sketch, Value
from calirare.export.unlabelled import without_labels
from calirare.features import FeatureMap
from calirare.run import Scorer
from calirare_ext import __version__

WEIGHT = "edge_weight: weight of each edge, float32 [edges].\n"
WORDS = """P(rare) of every node of a graph, by a run of CaliRare.

x: features in the order of `columns` (metadata), float32 [nodes, {width}]; NaN where missing. Of a column of categories
the number of each in its list of `categories`, from 0, that of the list's length where it is none of them; of a date
days since the start of the year 2000, UTC.
edge_index: both ends of each edge, int64 [2, edges], numbers of rows of x; every edge both ways, once each way.
{weight}p_rare: probability of the rare class in the population, float64 [nodes].
p_raw: the network's own, float64 [nodes].
alert: p_rare is at least the threshold, bool [nodes].
"""


def onnx_of(scorer: Scorer, name: str = "") -> bytes:
    """Returns the ONNX model that scores arrays as a run does.

    Args:
        scorer: of the run.
        name: of the run, stored in the model.

    Returns:
        The file's content. Inputs x, edge_index and, where the run's edges have weights, edge_weight; outputs p_rare,
        p_raw and alert, see `WORDS`, which is the model's doc_string. Its metadata hold the run's name, CaliRare's
        version, the classes, the threshold, and the columns of x in order, each with its kind and its categories.

    Raises:
        InputError: a part of the run cannot be written, or the package onnx is missing.
    """
    if len(scorer.class_names) != 2:
        raise InputError(f"export: the run must have two classes, got {len(scorer.class_names)}: train with --minority")
    data = scorer.settings.data
    if data.relation is not None or data.directed:
        raise InputError(DIRECTED)
    scorer, _ = without_labels(scorer)
    sketch, features = Sketch(), scorer.features
    x = sketch.given("x", SINGLE, ["nodes", features.n_inputs])
    index = sketch.given("edge_index", WHOLE, [2, "edges"])
    weight = sketch.given("edge_weight", SINGLE, ["edges"]) if scorer.weighted else None
    nodes = sketch.op("Shape", x, start=0, end=1, dtype=WHOLE)
    edges = Edges(nodes, index, weight, loops=data.self_loops == "keep")
    logits = Detectors(edges, mapped(x, features), features.n_features).of(scorer.fit)
    _give(sketch, logits, scorer)
    words = WORDS.format(width=features.n_inputs, weight=WEIGHT if scorer.weighted else "")
    return sketch.model(_facts(scorer, name), words)


def _give(sketch: Sketch, logits: Value, scorer: Scorer) -> None:
    """Makes the outputs of the logits' difference [n, 1]."""
    d = sketch.op("Squeeze", logits, np.array([1]))
    p_rare = log_odds(scorer.calibrators.get("population"), d).probability()
    sketch.give("p_rare", p_rare, ["nodes"])
    sketch.give("p_raw", d.probability(), ["nodes"])
    sketch.give("alert", p_rare >= scorer.threshold, ["nodes"])


def _facts(scorer: Scorer, name: str) -> dict[str, str]:
    """Returns what is stored beside the graph, JSON where it is more than a word."""
    return {
        "run": name,
        "calirare": __version__,
        "classes": json.dumps(list(scorer.class_names)),
        "threshold": repr(float(scorer.threshold)),
        "columns": json.dumps(_columns(scorer.features)),
    }


def _columns(features: FeatureMap) -> list[dict[str, object]]:
    """Returns name, kind and categories of each raw column."""
    return [
        {"name": each.name, "kind": each.kind, "categories": list(each.categories)}
        if each.kind == "categorical"
        else {"name": each.name, "kind": each.kind}
        for each in features.inputs
    ]
