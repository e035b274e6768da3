"""Bins of equal width, equally weighted, against numpy and netcal; the table says what is within two deviations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from calirare.graph.graph import Graph
from calirare_lab.paper.cells import cell_path, write_cell
from calirare_lab.paper.other_bins import average_calibration_error, equal_width_measures, other_bins_table
from calirare_lab.paper.protocol import Place
from calirare_lab.paper.published import TABLE2


@pytest.fixture
def outcome() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(300, dtype=torch.float64, generator=generator)
    return confidence, torch.rand(300, generator=generator) < 0.7


def test_average_calibration_error_by_numpy(outcome: tuple[torch.Tensor, torch.Tensor]) -> None:
    confidence, correct = (values.numpy() for values in outcome)
    gaps = []
    for low in np.arange(20) / 20:
        inside = (confidence > low) & (confidence <= low + 1 / 20)
        if inside.any():
            gaps.append(abs(correct[inside].mean() - confidence[inside].mean()))
    assert average_calibration_error(*outcome) == pytest.approx(np.mean(gaps), rel=1e-12)


def test_table_reads_the_cells(everywhere_small: Graph, tmp_path: Path) -> None:
    assert everywhere_small.split is not None
    assert everywhere_small.y is not None
    labels = everywhere_small.y[everywhere_small.split.test]
    where = [Place("cora", 20, seed) for seed in range(2)]
    measured = []
    for seed, place in enumerate(where):
        p = torch.rand(labels.numel(), generator=torch.Generator().manual_seed(seed))
        write_cell(cell_path(tmp_path, place, "temperature"), {"probability": p.tolist()})
        measured.append(equal_width_measures(p, labels)["macro_ace"])
    table = other_bins_table(tmp_path, [*where, Place("cora", 30, 0)])
    (row,) = table.rows
    assert row[:4] == ["cora", "20", "Temperature scaling", "2"]
    assert row[6].startswith(f"{np.mean(measured):.4f}")
    assert row[7] == f"{TABLE2['cora', 20, 'temperature']['macro_ace']:.4f}"
    assert row[8] == "no"
    assert json.dumps(table.data)
