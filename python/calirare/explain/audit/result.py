"""What an audit of labels found: a table, and a summary in words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calirare._util.amounts import amount
from calirare._util.brief import brief
from calirare._util.errors import printable
from calirare.explain.audit.noise import LabelNoise
from calirare.explain.audit.reasons import Company

SHOWN = 10  # labels in the summary
WIDTH = 80
COLUMNS = ("node", "given", "p_given", "p_wrong", "flag", "expected_wrong", "reason")
WARNING = "a node that looks wholly like the other class, and is not of it, cannot be told from a wrong label"


@dataclass(frozen=True, eq=False)
class Audit:
    """Which labels of a run are probably wrong.

    Attributes:
        nodes: the labelled nodes, int64 [m].
        node_names: of all nodes, where they have names.
        class_names: the two classes, the rare one last.
        given: class of each label, int64 [m].
        p_given: P(that class) for the population, by models and maps that have not seen the label, [m].
        noise: how likely each label is wrong.
        counted: labels by given and true class as confident learning counts them, [2, 2].
        order: labels, the most doubtful first, int64 [m].
        company: what stands around the first labels of that order.
        at_least: P(wrong) from which a label is flagged.
        evidence: which models spoke of each label.
    """

    nodes: NDArray[np.int64]
    node_names: NDArray[np.generic] | None
    class_names: tuple[str, ...]
    given: NDArray[np.int64]
    p_given: NDArray[np.float64]
    noise: LabelNoise
    counted: NDArray[np.float64]
    order: NDArray[np.int64]
    company: Company
    at_least: float
    evidence: str

    __repr__ = brief

    @property
    def p_wrong(self) -> NDArray[np.float64]:
        """P(the label is wrong) of each, [m]."""
        return self.noise.p_wrong

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Which labels are probably wrong, [m]."""
        return self.p_wrong >= self.at_least

    def to_frame(self) -> pd.DataFrame:
        """Returns one row per label, the most doubtful first.

        Columns: node; given, the label; p_given, its probability without it; p_wrong, how likely it is wrong; flag, 1
        where that reaches the threshold; expected_wrong, how many wrong labels to expect among this and the rows before
        it; reason, in words, empty beyond the first thousand rows.
        """
        names, o = np.asarray(self.class_names, dtype=object), self.order
        nodes = self.nodes if self.node_names is None else self.node_names[self.nodes]
        reasons = np.full(len(o), "", dtype=object)
        for row in range(len(self.company.neighbours)):
            reasons[row] = self.company.sentence(row, int(self.given[o[row]]), self.class_names)
        table = {
            "node": nodes[o],
            "given": names[self.given[o]],
            "p_given": self.p_given[o],
            "p_wrong": self.p_wrong[o],
            "flag": self.flagged[o].astype(np.int64),
            "expected_wrong": np.cumsum(self.p_wrong[o]),
            "reason": reasons,
        }
        return pd.DataFrame(table)[list(COLUMNS)]

    def summary(self, width: int = WIDTH) -> str:
        """Returns how many labels are probably wrong, by class, and the first ones, as text of some width."""
        flags, every = self.flagged, np.ones(len(self.given), dtype=bool)
        lines = [
            f"of {amount(len(flags), 'label')} {amount(int(flags.sum()), 'is', 'are')} probably wrong "
            f"(P(wrong) of at least {self.at_least:g})"
        ]
        if flags.any():
            mean, low, high = self.noise.count(flags)
            false = float((1 - self.p_wrong[flags]).sum())
            lines.append(
                f"  expect {mean:.1f} of these to be wrong (90 %: {low} to {high}), and {false:.1f} to be right"
            )
        mean, low, high = self.noise.count(every)
        lines.append(f"  expect {mean:.1f} wrong labels in all (90 %: {low} to {high}); none: {self.noise.clean:.0%}")
        lines += ["", *self._by_class(width), "", *self._first(width), ""]
        for words in (self.evidence, f"note: {WARNING}"):
            lines += textwrap.wrap(words, width)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _by_class(self, width: int) -> list[str]:
        room = max(width - 60, 8)
        lines = [f"{'given as':<{room}} {'labels':>8} {'flagged':>8} {'expected wrong':>15} {'confident learning':>21}"]
        for c in (1, 0):
            mine = self.given == c
            mean, low, high = self.noise.count(mine)
            name, flagged = _cut(self.class_names[c], room), int((mine & self.flagged).sum())
            expected, rival = f"{mean:.1f} ({low} to {high})", self.counted[c].sum() - self.counted[c, c]
            lines.append(f"{name:<{room}} {int(mine.sum()):>8,} {flagged:>8,} {expected:>15} {rival:>21.1f}")
        return lines

    def _first(self, width: int) -> list[str]:
        table = self.to_frame().head(SHOWN)
        given = _widest(table["given"], "given", 14)
        node = min(_widest(table["node"], "node", width), max(width - given - 49, 8))
        lines = [
            f"{'node':<{node}} {'given':<{given}} {'P(given)':>8} {'P(wrong)':>8}   same class among",
            f"{'':<{node}} {'':<{given}} {'':>8} {'':>8} {'neighbours':>13} {'look-alikes':>13}",
        ]
        for row, cells in enumerate(table.itertuples()):
            around, alike = self.company.near(row, int(self.given[self.order[row]]))
            lines.append(
                f"{_cut(str(cells.node), node):<{node}} {_cut(str(cells.given), given):<{given}} "
                f"{cells.p_given:>8.3f} {cells.p_wrong:>8.3f} {around:>13} {alike:>13}"
            )
        return lines


def _widest(column: pd.Series, name: str, most: int) -> int:
    return min(max([len(name), *(len(str(value)) for value in column)]), most)


def _cut(text: str, room: int) -> str:
    text = printable(text)
    return text if len(text) <= room else text[: room - 3] + "..."
