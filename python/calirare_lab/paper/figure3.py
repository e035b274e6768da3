"""Figure 3: Macro-ACE of Algorithm 2 over coverage alpha and weight lambda on Cora."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score

from calirare.leave_one_out.eice import EiceSettings, train_calirare
from calirare.metrics import macro_ace
from calirare_lab.jobs import workers
from calirare_lab.paper.cells import Progress, read_cell, write_cell
from calirare_lab.paper.context import PAPER_TRAINING, Context
from calirare_lab.paper.protocol import Place

COVERAGES = (0.7, 0.75, 0.8, 0.85, 0.9)  # section 4.4
WEIGHTS = (0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True)
class GridPoint:
    """One training.

    Attributes:
        out: folder of the run.
        coverage: alpha.
        weight: lambda.
        seed: seed.
    """

    out: Path
    coverage: float
    weight: float
    seed: int

    @property
    def path(self) -> Path:
        """Where it is stored."""
        return self.out / "cells" / "figure3" / f"alpha{self.coverage}_lambda{self.weight}_seed{self.seed}.json"


def figure3(out: Path, n_seeds: int, jobs: int, progress: Progress) -> list[Path]:
    """Runs what is missing of the grid and draws it.

    Args:
        out: folder of the run.
        n_seeds: seeds per point.
        jobs: processes.
        progress: called with trainings done and in all.

    Returns:
        The pictures and the numbers.
    """
    points = [GridPoint(out, a, w, s) for a, w, s in product(COVERAGES, WEIGHTS, range(n_seeds))]
    left = [point for point in points if not point.path.is_file()]
    done = len(points) - len(left)
    progress(done, len(points), "found")
    with workers(jobs) as pool:
        for point in pool.map(run_point, left):
            done += 1
            progress(done, len(points), f"alpha {point.coverage}, lambda {point.weight}, seed {point.seed}")
    values = np.zeros((len(WEIGHTS), len(COVERAGES), n_seeds))
    for point in points:
        row, column = WEIGHTS.index(point.weight), COVERAGES.index(point.coverage)
        values[row, column, point.seed] = read_cell(point.path, ("macro_ace",))["macro_ace"]
    mean = values.mean(2)
    spread = values.std(2, ddof=1) if n_seeds > 1 else np.zeros_like(mean)
    table = out / "figure3.json"
    numbers = {"coverage": COVERAGES, "weight": WEIGHTS, "mean": mean.tolist(), "std": spread.tolist()}
    table.write_text(json.dumps(numbers | {"seeds": n_seeds}, indent=1) + "\n", encoding="utf-8")
    return [_draw(mean, spread, n_seeds, out / f"figure3{suffix}") for suffix in (".png", ".pdf")] + [table]


def run_point(point: GridPoint) -> GridPoint:
    """Trains and measures one point of the grid; returns it."""
    torch.set_num_threads(1)
    context = Context(Place("cora", 20, point.seed))
    settings = EiceSettings(weight=point.weight, coverage=point.coverage)
    model = train_calirare(context.graph, context.settings(PAPER_TRAINING), settings).model
    p = torch.softmax(model.logits(context.graph)[context.split.test].double(), 1)
    y = context.y[context.split.test]
    measured = {"macro_ace": float(macro_ace(y, p)), "macro_f1": float(f1_score(y, p.argmax(1), average="macro"))}
    write_cell(point.path, measured)
    return point


def _draw(mean: np.ndarray, spread: np.ndarray, n_seeds: int, path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(mean, cmap="cividis", origin="lower", aspect="auto")
    middle = (mean.min() + mean.max()) / 2
    for (row, column), value in np.ndenumerate(mean):
        colour = "black" if value > middle else "white"
        text = f"{value:.3f}" + (f"\n±{spread[row, column]:.3f}" if n_seeds > 1 else "")
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(COVERAGES)), [str(a) for a in COVERAGES])
    axes.set_yticks(range(len(WEIGHTS)), [str(w) for w in WEIGHTS])
    axes.set_xlabel("coverage α")
    axes.set_ylabel("weight λ of L_EICE")
    drawn = f"{n_seeds} seeds" if n_seeds > 1 else "one seed"
    axes.set_title(f"Macro-ACE of Algorithm 2 on Cora, 20 labels per class, {drawn}", fontsize=10)
    figure.colorbar(image, label="Macro-ACE (smaller is better)")
    FigureCanvasAgg(figure)
    figure.savefig(path)
    return path
