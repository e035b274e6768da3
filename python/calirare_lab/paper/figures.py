"""Figures 1 and 2: reliability diagrams per class, and with and without temperature scaling."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from calirare.plots import Panel, confidence_panel, reliability_diagram
from calirare_lab.paper.cells import Progress, read_probability, run_cells
from calirare_lab.paper.protocol import Place

N_BINS = 20  # the paper's number, of equal width
SUFFIXES = (".png", ".pdf")
FIGURE1_PLACE = Place("facebook", 20, 0)  # the paper's own transaction network is not published
FIGURE2_PLACE = Place("citeseer", 20, 0)
CLASSES = (("all nodes", None), ("majority class", 0), ("minority class", 1))


def figure1(out: Path, jobs: int, progress: Progress, place: Place = FIGURE1_PLACE) -> list[Path]:
    """Draws reliability diagrams of the minority and the majority class, before and after our map.

    Args:
        out: folder of the run.
        jobs: processes.
        progress: see `run_cells`.
        place: data, label rate and seed.

    Returns:
        The pictures.
    """
    probabilities, labels = _predictions(out, place, ("uncalibrated", "ours"), jobs, progress)
    panels: list[Panel] = []
    for name, title in (("uncalibrated", "uncalibrated"), ("ours", "ours")):
        for what, cls in CLASSES[:0:-1]:
            panels.append(confidence_panel(f"{what}, {title}", labels, probabilities[name], cls=cls))
    heading = f"Reliability per true class: {place.dataset}, {place.label_rate} labels per class, test nodes"
    return _draw(panels, out / "figure1", heading, 2)


def figure2(out: Path, jobs: int, progress: Progress, place: Place = FIGURE2_PLACE) -> list[Path]:
    """Draws reliability diagrams of all nodes and of each class, without and with temperature scaling.

    Args:
        out: folder of the run.
        jobs: processes.
        progress: see `run_cells`.
        place: data, label rate and seed.

    Returns:
        The pictures.
    """
    probabilities, labels = _predictions(out, place, ("uncalibrated", "temperature"), jobs, progress)
    panels = [
        confidence_panel(f"{what}, {title}", labels, probabilities[name], cls=cls)
        for name, title in (("uncalibrated", "GCN-CS"), ("temperature", "temperature scaling"))
        for what, cls in CLASSES
    ]
    heading = f"GCN-CS without and with temperature scaling: {place.dataset}, {place.label_rate} labels per class"
    return _draw(panels, out / "figure2", heading, 3)


def _predictions(
    out: Path, place: Place, methods: tuple[str, ...], jobs: int, progress: Progress
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns each method's probabilities of the test nodes [n, 2], running what is missing, and their labels."""
    run_cells(out, [place], methods, jobs, progress)
    graph = place.load()
    assert graph.y is not None
    assert graph.split is not None
    p = {name: read_probability(out, place, name) for name in methods}
    return {name: torch.stack([1 - rare, rare], 1) for name, rare in p.items()}, graph.y[graph.split.test]


def _draw(panels: list[Panel], stem: Path, heading: str, n_columns: int) -> list[Path]:
    return [
        reliability_diagram(panels, stem.with_suffix(suffix), n_bins=N_BINS, n_columns=n_columns, title=heading)
        for suffix in SUFFIXES
    ]
