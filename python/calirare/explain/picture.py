"""The picture of a node that is explained, among the neighbours whose edges count most."""

from __future__ import annotations

import math
from pathlib import Path

from calirare._util.amounts import class_words, shortened
from calirare.explain.context import ExplanationContext
from calirare.explain.explanation import Explanation, written
from calirare.plots import Spot, neighbourhood_diagram

MOST = 16  # neighbours that can be told apart


def draw(explanation: Explanation, context: ExplanationContext, path: str | Path) -> Path:
    """Draws a node among at most `MOST` neighbours, the edge that counts most first, clockwise from the top.

    Args:
        explanation: of the node.
        context: what was explained.
        path: where to write; the folder must exist.
    """
    rare, shown = explanation.of, explanation.edges[:MOST]
    rest = class_words(context.class_names[0]) if explanation.probabilities is None else "another"

    def kind(label: str | None) -> str | None:
        return None if label is None else "rare" if label == rare else "rest"

    place = {edge.node: i for i, edge in enumerate(shown)}
    a = context.graph.adjacency
    between = [
        (i, place[other])
        for node, i in place.items()
        for other in a.indices[int(a.indptr[node]) : int(a.indptr[node + 1])].tolist()
        if place.get(other, -1) > i
    ]
    left_out = len(explanation.edges) - len(shown)
    title = f"{shortened(explanation.name)}: P({class_words(rare)}) {written(explanation.p)}, {_verdict(explanation)}"
    title += f"; {len(shown)} of {len(explanation.edges)} neighbours" if left_out else ""
    middle = Spot(explanation.name, explanation.p, kind(explanation.label))
    around = [
        Spot(edge.name, math.nan if edge.p_rare is None else edge.p_rare, kind(edge.label), edge.log_odds)
        for edge in shown
    ]
    return neighbourhood_diagram(middle, around, path, between=between, title=title, of=class_words(rare), rest=rest)


def _verdict(explanation: Explanation) -> str:
    """Returns what the probability makes of a node."""
    if explanation.probabilities is None:
        return f"{'an' if explanation.alert else 'no'} alert at {explanation.threshold:.3g}"
    return "its likeliest class" if explanation.of == explanation.prediction else f"likelier {explanation.prediction}"
