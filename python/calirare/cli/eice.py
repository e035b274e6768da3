"""`calirare eice`: uncertainty, ICE and EICE of a saved run, computed again."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import torch

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare.run import load

PARTS = ("val", "test", "train")
ALL = "all"


def run(folder: Path, graph: str | None = None, nodes: str | None = None, coverage: float | None = None) -> None:
    """Recomputes intervals, uncertainty, ICE and EICE of a saved run and prints EICE.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        nodes: "train", "val", "test" or "all"; None: the first of validation, test and training nodes that the run has.
        coverage: of the intervals, in (0, 1); None: the run's.

    Raises:
        InputError: the folder is not a run, the graph is gone, or the part is empty.
    """
    if nodes not in (None, *PARTS, ALL):
        raise InputError(f"eice: --nodes must be one of {', '.join((*PARTS, ALL))}, got {nodes!r}")
    saved = load(folder)
    own = saved.mapped(saved.graph(graph))
    nodes = nodes or next(part for part in PARTS if part == PARTS[-1] or getattr(saved.split, part).numel())
    chosen = torch.arange(own.n_nodes) if nodes == ALL else getattr(saved.split, nodes)
    if chosen.numel() == 0:
        raise InputError(f"eice: the run has no {nodes} nodes; take another --nodes")
    with Reporter() as reporter:
        result = saved.scorer.intervals(own, coverage, reporter)
    said = saved.scorer.probabilities(own)
    probabilities = said.chosen[chosen]
    right, ice = result.about(probabilities, chosen)
    ice_raw = result.about(said.raw[chosen], chosen)[1]
    what = "calibrated" if saved.scorer.calibrator is not None else "the network's own, there is no calibrator"
    print(f"nodes        {nodes}, {chosen.numel():,}")
    print(f"EICE         {_mean(ice)} of the probabilities in predictions.csv ({what}): mean of `ice`")
    print(f"EICE, raw    {_mean(ice_raw)} of the network's own probabilities: mean of `ice_raw`")
    print(f"uncertainty  {_mean(right)} on average")
    print(f"confidence   {_mean(probabilities.max(1).values)} on average")
    width = (result.upper - result.lower)[chosen].abs()
    print(f"width        {float(width.mean()):.6f} on average, {result.coverage:.0%}")
    if result.facts.damping:  # detectors with folds have none
        leverage = result.diagnostics["mean_leverage"]
        known = f"{leverage:.3f}" if isfinite(leverage) else "unknown"
        print(f"damping      {result.facts.damping:.3g}, mean leverage {known}")


def _mean(values: torch.Tensor) -> str:
    return f"{float(values.double().mean()):.6f}"
