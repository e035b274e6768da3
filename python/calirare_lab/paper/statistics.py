"""Means over seeds, paired tests, and the verdicts of the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import HIGHER_IS_BETTER
from calirare_lab.paper.published import TABLE2

Cell = dict[str, Any]
Key = tuple[str, int, str]  # data set, label rate, method
JUDGED = ("recall", "macro_f1", "ace_minority", "macro_ace")


@dataclass(frozen=True)
class Summary:
    """A measure over seeds.

    Attributes:
        mean: mean.
        std: standard deviation, 0 with a single seed.
        n: number of seeds.
    """

    mean: float
    std: float
    n: int

    def text(self, scale: float, digits: int) -> str:
        """Returns "mean ± std" of the measure times `scale`; the mean alone where there is one seed."""
        mean = f"{scale * self.mean:.{digits}f}"
        return f"{mean} ± {scale * self.std:.{digits}f}" if self.n > 1 else mean


def by_key(cells: Iterable[Cell]) -> dict[Key, dict[int, Cell]]:
    """Returns the cells of each data set, label rate and method by seed."""
    out: dict[Key, dict[int, Cell]] = {}
    for cell in cells:
        out.setdefault((cell["dataset"], cell["label_rate"], cell["method"]), {})[cell["seed"]] = cell
    return out


def summarise(cells: Iterable[Cell], measure: str) -> Summary:
    """Returns mean and standard deviation of a measure over the given cells, NaN where one has not measured it."""
    return mean_and_std([cell["measures"].get(measure, math.nan) for cell in cells])


def mean_and_std(values: Sequence[float]) -> Summary:
    """Returns mean and standard deviation of the values."""
    found = np.array(values)
    return Summary(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0, len(found))


def paired_p(first: dict[int, Cell], second: dict[int, Cell], measure: str) -> float:
    """Returns the two-sided p of a paired t-test over the seeds both have; NaN with fewer than 2 or no spread."""
    from scipy.stats import ttest_rel

    seeds = sorted(set(first) & set(second))
    a = np.array([first[s]["measures"][measure] for s in seeds])
    b = np.array([second[s]["measures"][measure] for s in seeds])
    if len(seeds) < 2 or np.ptp(a - b) == 0:
        return float("nan")
    return float(ttest_rel(a, b).pvalue)


def strongest(groups: dict[Key, dict[int, Cell]], dataset: str, rate: int, methods: Iterable[str], measure: str) -> str:
    """Returns the method with the best mean of a measure among those run at a data set and label rate, or ""."""
    sign = -1 if measure in HIGHER_IS_BETTER else 1
    found = {
        method: sign * summarise(groups[dataset, rate, method].values(), measure).mean
        for method in methods
        if (dataset, rate, method) in groups
    }
    return min(found, key=lambda method: found[method]) if found else ""


@dataclass(frozen=True)
class Comparison:
    """Our default against the paper's "Ours" in one cell of Table 2.

    Attributes:
        dataset: name.
        label_rate: nodes per class.
        ours: our means of the four judged measures.
        paper: the paper's.
        n_seeds: seeds behind our means.
    """

    dataset: str
    label_rate: int
    ours: dict[str, float]
    paper: dict[str, float]
    n_seeds: int

    @property
    def lost(self) -> list[str]:
        """The measures on which the cell is lost: ACE must be smaller, recall and macro-F1 at least equal."""
        worse = [m for m in ("recall", "macro_f1") if self.ours[m] < self.paper[m]]
        return worse + [m for m in ("ace_minority", "macro_ace") if self.ours[m] >= self.paper[m]]


def compare_with_paper(groups: dict[Key, dict[int, Cell]], method: str = "ours") -> list[Comparison]:
    """Returns one comparison per data set and label rate that the paper has and we have run."""
    out = []
    for (dataset, rate, name), row in TABLE2.items():
        if name == "ours" and (dataset, rate, method) in groups:
            cells = list(groups[dataset, rate, method].values())
            means = {measure: summarise(cells, measure).mean for measure in JUDGED}
            out.append(Comparison(dataset, rate, means, row, len(cells)))
    return out


def mean_over_places(groups: dict[Key, dict[int, Cell]], method: str, measure: str, at: Iterable[Key]) -> float:
    """Returns the mean over data sets and label rates of a method's mean over seeds; NaN where one is missing."""
    values = []
    for dataset, rate, _ in at:
        if (dataset, rate, method) not in groups:
            return float("nan")
        values.append(summarise(groups[dataset, rate, method].values(), measure).mean)
    return float(np.mean(values)) if values else float("nan")


def same_label_rivals(exclude: Iterable[str]) -> list[str]:
    """Returns the methods that have used training and validation labels, without the given ones."""
    left_out = set(exclude)
    return [name for name, method in METHODS.items() if method.all_labels and name not in left_out]
