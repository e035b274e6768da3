"""What `auto` chose and why: each detector's loss without each label, its weight, and whether the graph helps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Row:
    """One detector.

    Attributes:
        name: such as "trees".
        weight: its share of the average, in [0, 1].
        loss: mean loss of the labels, each judged without itself, classes weighing the same.
    """

    name: str
    weight: float
    loss: float


@dataclass(frozen=True)
class Choice:
    """What `auto` chose.

    Attributes:
        rows: the detectors.
        loss: of their average, as theirs.
        graph_gain: how much lower the loss is than that of the same detectors on a node's own features only; None: the
            graph has no edges.
        graph_error: standard error of that, from the labels' paired differences.
    """

    rows: tuple[Row, ...]
    loss: float
    graph_gain: float | None = None
    graph_error: float = 0.0

    @property
    def graph_effect(self) -> str:
        """Whether the edges lower the loss, with a 95 % interval; "" without edges."""
        if self.graph_gain is None:
            return ""
        gain, error = abs(self.graph_gain), 1.96 * self.graph_error
        clear, lower = gain > error, self.graph_gain >= 0
        word = "has no clear effect" if not clear else "helps" if lower else "hurts"
        ends = f"{gain - error:.3f}{'-' if clear else ' to '}{gain + error:.3f}"
        return f"{word}: class-balanced log loss {'lower' if lower else 'higher'} by {gain:.3f} (95% CI {ends})"

    def lines(self) -> list[str]:
        """Returns the table, a line per detector, the heaviest first."""
        wide = max(10, *(len(row.name) for row in self.rows))
        head = f"{'detector':<{wide}} {'weight':>7} {'out-of-fold log loss':>24}"
        rows = sorted(self.rows, key=lambda row: -row.weight)
        lines = [f"{row.name:<{wide}} {row.weight:>7.2f} {row.loss:>24.4f}" for row in rows]
        return [head, *lines, f"{'ensemble':<{wide}} {'':>7} {self.loss:>24.4f}"]

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Returns what `to_mapping` returned."""
        rows = tuple(Row(**row) for row in values["rows"])
        return cls(rows, **{name: value for name, value in values.items() if name != "rows"})

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return asdict(self)
