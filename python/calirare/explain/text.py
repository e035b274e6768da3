"""Explanations for a terminal: sentences first, then a table per kind of reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from calirare._util.amounts import class_words, listed
from calirare._util.errors import printable, without_middle
from calirare.explain.explanation import LITTLE, EdgeEffect, Explanation, Explanations, LabelEffect, written

WIDTH, SHORT = 80, 12  # characters: of a line, and of what fits above a column
WIDTHS = 30, 24, 9, 8, 9  # of the columns of features
LABELS, EDGES, FEATURES = 5, 5, 8  # rows of each table
MOVED = 0.1  # log-odds from which a label has a row though it moves P by less than 0.1 points
READING = (
    "points are percentage points of P. Log-odds: +0.7 doubles the odds P / (1 - P), -0.7 halves them. Usual is where "
    "90% of all values lie, or the commonest one; the value of neighbours is their mean"
)
Row = Sequence[str]


def text_of(explanations: Explanations, width: int = WIDTH, labels: int = LABELS) -> str:
    """Returns explanations as text for a terminal of some width, in characters; `labels`: rows of labels at most."""
    parts = [_one(each, width, labels) for each in explanations]
    notes = [textwrap.fill(f"note: {note}", width, subsequent_indent="  ") for note in (READING, *explanations.notes)]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _one(explanation: Explanation, width: int, labels: int) -> str:
    lines = [textwrap.fill(printable(each), width) for each in explanation.sentences]
    for head, rows in tables_of(explanation, labels):
        lines += ["", *_table(head, rows, width)]
    return "\n".join(lines)


def tables_of(explanation: Explanation, labels: int = LABELS) -> list[tuple[Row, list[Row]]]:
    """Returns head and rows, of five cells, of a table per kind of reason: labels, edges, features."""
    edges = explanation.edges[:EDGES]
    own = explanation.what if len(explanation.what) <= SHORT else "P(class)"
    what = "labels there" if edges and all(edge.beyond for edge in edges) else own
    found: list[tuple[Row, list[Row]]] = [
        (
            ("label of", "class", "points", "without", "log-odds"),
            [_label(e) for e in explanation.labels[:labels] if abs(e.effect) >= LITTLE or abs(e.log_odds) >= MOVED],
        ),
        (("edge to", what, "points", "without", "log-odds"), [row for e in edges for row in _edge(e)]),
        (("feature", "value (usual)", "", "", "log-odds"), _features(explanation) if explanation.features else []),
    ]
    return [(head, rows) for head, rows in found if rows]


def _label(each: LabelEffect) -> Row:
    """Returns the row of a label."""
    name = f"{each.name} (its own)" if each.own else each.name
    return name, class_words(each.label), points(each.effect), written(each.without), f"{each.log_odds:+.2f}"


def _edge(each: EdgeEffect) -> list[Row]:
    """Returns the row of an edge, and one below it of its types."""
    name = each.name if each.label is None else f"{each.name}, {class_words(each.label)}"
    p = each.beyond if each.p_rare is None else written(each.p_rare)
    row = name, p, points(each.effect), written(each.without), f"{each.log_odds:+.2f}"
    return [row, (f"  ({listed(each.types)})", "", "", "", "")] if each.types else [row]


def _features(explanation: Explanation) -> list[Row]:
    """Returns the strongest columns, the sum of the others, and what they add up to."""
    shown = explanation.features[:FEATURES]
    rows = list[Row]()
    for each in shown:
        usual = f" ({each.usual.replace(' (', ', ').rstrip(')')})" if each.usual else ""
        cells = f"{each.value or ''}{usual}", "", each.way, f"{each.share:+.2f}"
        long = len(each.name) > WIDTHS[0] - 2
        rows += [(each.name, "", "", "", ""), ("", *cells)] if long else [(each.name, *cells)]
    if len(explanation.features) > len(shown):
        rest = sum(each.share for each in explanation.features[len(shown) :])
        rows.append((f"{len(explanation.features) - len(shown)} other features together", "", "", "", f"{rest:+.2f}"))
    if explanation.base is not None:
        rows.append(("baseline", "", "", "", f"{explanation.base:+.2f}"))
        rows.append((f"log-odds of {explanation.what}", "", "", written(explanation.p), f"{explanation.log_odds:+.2f}"))
    return rows


def _table(head: Row, rows: Iterable[Row], width: int) -> list[str]:
    """Returns lines of five columns: two of words, three of numbers at the right; words go on over empty cells."""
    first = max(width - sum(WIDTHS[1:]), 10)
    widths = (first, *WIDTHS[1:]) if head[0] == "feature" else (max(width - 44, 12), 14, 10, 10, 10)
    return [_line(row, widths) for row in [head, *rows]]


def _line(row: Row, widths: tuple[int, ...]) -> str:
    line, at = "", 0
    while at < len(row):
        room, last = widths[at], at
        while at < 2 and last + 1 < len(row) and not row[last + 1]:
            last += 1
            room += widths[last]
        line += f"{without_middle(row[at], room - 2):<{room}}" if at < 2 else f"{row[at]:>{room}}"
        at = last + 1
    return line.rstrip()


def points(effect: float) -> str:
    """Returns a difference of probabilities in points of a hundred."""
    points = round(100 * effect, 1)
    return f"{points:+.1f}" if points else "0.0"
