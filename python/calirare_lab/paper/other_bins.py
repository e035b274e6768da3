"""The post-hoc rows of the paper's Table 2 read with bins of equal width, which is how they seem to have been read.

Their ACE has three digits where every other row has four, and their Macro-ACE is the mean of two such numbers: another
program printed them. Libraries for post-hoc maps call "ACE" the average calibration error of Neumann et al. (2018).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from calirare.metrics.binning import equal_width_statistics
from calirare_lab.paper.cells import cell_path, read_probability
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import Place, paper_name
from calirare_lab.paper.published import TABLE2
from calirare_lab.paper.render import Table
from calirare_lab.paper.statistics import Summary, mean_and_std

READ_ELSEWHERE = ("temperature", "temperature_code", "matrix")
MEASURES = ("ace_minority", "macro_ace")
N_BINS = 20


def average_calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """Returns the mean over 20 bins of equal width, those that are not empty, of |accuracy - confidence|.

    Args:
        confidence: in [0, 1], float [n].
        correct: bool [n].
    """
    statistics = equal_width_statistics(confidence, correct, N_BINS)
    return float(statistics.gap.sum() / (statistics.count > 0).sum())


def equal_width_measures(p_rare: Tensor, labels: Tensor) -> dict[str, float]:
    """Returns the error among true rare nodes, `ace_minority`, and its mean with that of the others, `macro_ace`.

    Args:
        p_rare: P(rare), float [n].
        labels: 1 for rare, int64 [n].
    """
    decided = (p_rare > 0.5).long()
    confidence = torch.where(decided == 1, p_rare, 1 - p_rare)
    rare, others = (average_calibration_error(confidence[labels == c], decided[labels == c] == c) for c in (1, 0))
    return {"ace_minority": rare, "macro_ace": (rare + others) / 2}


def other_bins_table(run: Path, where: list[Place]) -> Table:
    """Returns temperature and matrix scaling by equal-width bins beside the paper's numbers, over the seeds run."""
    groups: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for place in where:
        names = [name for name in READ_ELSEWHERE if cell_path(run, place, name).is_file()]
        if names:
            graph = place.load()
            assert graph.y is not None
            assert graph.split is not None
            labels = graph.y[graph.split.test]
        for name in names:
            measured = equal_width_measures(read_probability(run, place, name), labels)
            groups.setdefault((place.dataset, place.label_rate, name), []).append(measured)
    rows, data = [], []
    for (dataset, rate, name), found in groups.items():
        published = TABLE2.get((paper_name(dataset), rate, METHODS[name].published))
        if published is None:
            continue
        summaries = {measure: mean_and_std([values[measure] for values in found]) for measure in MEASURES}
        within = all(_near(summaries[measure], published[measure]) for measure in MEASURES)
        row = [dataset, str(rate), METHODS[name].title, str(len(found))]
        for measure in MEASURES:
            row += [summaries[measure].text(1, 4), f"{published[measure]:.4f}"]
        rows.append([*row, "yes" if within else "no"])
        data.append({"dataset": dataset, "label_rate": rate, "method": name, "within": within})
    header = ["data set", "rate", "method", "seeds", "ace_minority", "paper", "macro_ace", "paper", "within 2 std"]
    note = "20 bins of equal width, those that are not empty weighing the same (average calibration error)."
    return Table("Post-hoc rows by bins of equal width", header, rows, [note], data)


def _near(summary: Summary, value: float) -> bool:
    return abs(summary.mean - value) <= 2 * summary.std
