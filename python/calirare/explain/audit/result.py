"""What an audit of labels found: a table, and a summary in words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calirare._util.amounts import amount, class_words
from calirare._util.arrays import brief
from calirare._util.errors import cut, without_middle
from calirare.explain.audit.posterior import Posterior, is_vague
from calirare.explain.audit.reasons import Company

SHOWN = 10  # labels in the summary
WIDTH = 80
COLUMNS = ("node", "given", "p_given", "p_wrong", "flag", "expected_wrong", "other", "reason")
WARNING = "the audit cannot distinguish a wrong label from a correct one with the columns of {} class"
CANNOT_TELL = "the data cannot tell how many labels are wrong"
MOST_CLASSES = 12  # rows of the table by class


@dataclass(frozen=True, eq=False)
class Audit:
    """Which labels of a run are probably wrong.

    Attributes:
        nodes: the labelled nodes, int64 [m].
        node_names: of all nodes, where they have names.
        class_names: of the classes; of two the rare one last.
        given: class of each label, int64 [m].
        other: the likeliest of the other classes, int64 [m].
        p_given: P(that class) for the population, by models and maps that have not seen the label, [m].
        noise: how likely each label is wrong.
        counted: labels by given and true class as confident learning counts them, [k, k].
        order: labels, the most doubtful first, int64 [m].
        company: what stands around the first labels of that order.
        at_least: P(wrong) from which a label is flagged.
        evidence: which models spoke of each label.
    """

    nodes: NDArray[np.int64]
    node_names: NDArray[np.generic] | None
    class_names: tuple[str, ...]
    given: NDArray[np.int64]
    other: NDArray[np.int64]
    p_given: NDArray[np.float64]
    noise: Posterior
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
        it; with more than two classes other, the likeliest of the others; reason, in words, empty beyond the first
        thousand rows.
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
        if len(self.class_names) > 2:
            table["other"] = names[self.other[o]]
        return pd.DataFrame(table)[[name for name in COLUMNS if name in table]]

    def summary(self, width: int = WIDTH) -> str:
        """Returns how many labels are probably wrong, by class, and the first ones, as text of some width."""
        flags = self.flagged
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
        lines.append(f"  {self.in_all}; P(none is wrong): {self.noise.none:.0%}")
        lines += ["", *self._by_class(width), "", *self._first(width), ""]
        warning = WARNING.format("the other" if len(self.class_names) == 2 else "another")
        for words in (self.evidence, f"note: {warning}"):
            lines += textwrap.wrap(words, width)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    @property
    def in_all(self) -> str:
        """How many labels are wrong, with an interval, or that the data cannot tell."""
        mean, low, high = self.noise.count(np.ones(len(self.given), dtype=bool))
        number = CANNOT_TELL if is_vague(mean, high) else f"expect {mean:.1f} wrong labels in all"
        return f"{number} (90 %: {low:,} to {high:,})"

    def _by_class(self, width: int) -> list[str]:
        room = max(width - 60, 8)
        lines = [f"{'given as':<{room}} {'labels':>8} {'flagged':>8} {'expected wrong':>15} {'confident learning':>21}"]
        p = self.p_wrong
        doubtful = sorted(range(len(self.class_names)), key=lambda c: -float(p[self.given == c].sum()))
        shown = (1, 0) if len(doubtful) == 2 else doubtful[:MOST_CLASSES]
        for c in shown:
            mine = self.given == c
            mean, low, high = self.noise.count(mine)
            name, flagged = cut(class_words(self.class_names[c]), room), int((mine & self.flagged).sum())
            expected = "not known" if is_vague(mean, high) else f"{mean:.1f} ({low} to {high})"
            rival = self.counted[c].sum() - self.counted[c, c]
            lines.append(f"{name:<{room}} {int(mine.sum()):>8,} {flagged:>8,} {expected:>15} {rival:>21.1f}")
        left = len(doubtful) - len(shown)
        return lines + [f"and {amount(left, 'class', 'classes')} with fewer"] * (left > 0)

    def _first(self, width: int) -> list[str]:
        table = self.to_frame().head(SHOWN)
        table = table.assign(**{name: table[name].map(class_words) for name in ("given", "other") if name in table})
        near: tuple[str, ...] = ("neighbours", "look-alikes") if self.company.connected else ("look-alikes",)
        names = [("given", _widest(table["given"], "given", 14))]
        if "other" in table:  # and look-alikes in the table of all labels
            near, names = near[:1], [*names, ("other", _widest(table["other"], "other", 14))]
        taken = sum(room + 1 for _, room in names) + 18 + 14 * len(near)
        node = min(_widest(table["node"], "node", width), max(width - taken, 8))
        heads = "".join(f" {name:<{room}}" for name, room in names)
        lines = [
            f"{'name':<{node}}{heads} {'P(given)':>8} {'P(wrong)':>8}   same class among",
            f"{'':<{node}}{'':<{len(heads)}} {'':>8} {'':>8}" + "".join(f" {name:>13}" for name in near),
        ]
        for row, cells in enumerate(table.to_dict("records")):
            shares = self.company.near(row, int(self.given[self.order[row]]))
            words = "".join(f" {cut(str(cells[name]), room):<{room}}" for name, room in names)
            numbers = "".join(f" {cells[name]:>8.3f}" for name in ("p_given", "p_wrong"))
            lines.append(
                f"{without_middle(str(cells['node']), node):<{node}}{words}{numbers}"
                + "".join(f" {shares[name]:>13}" for name in near)
            )
        return lines


def _widest(column: pd.Series, name: str, most: int) -> int:
    return min(max([len(name), *(len(str(value)) for value in column)]), most)
