"""`calirare eice` and `calirare predict`: what a saved run says of its own graph, and of another."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import torch

from calirare.calibration import AffineCalibrator, JackknifeCalibrator
from calirare.errors import InputError
from calirare.graph import Graph
from calirare.jackknife import jackknife
from calirare.jackknife_result import JackknifeResult
from calirare.leave_one_out.methods import LooSettings, leave_one_out
from calirare.output import fresh_files
from calirare.predictions import predictions, write_predictions
from calirare.run import LoadedRun, load_run, run_probabilities

PARTS = ("train", "val", "test", "all")


def run_eice(folder: Path, part: str, coverage: float | None) -> None:
    """Recomputes intervals, uncertainty, ICE and EICE of a saved run and prints EICE.

    Args:
        folder: the run's folder.
        part: "train", "val", "test" or "all".
        coverage: of the intervals; None: the run's.

    Raises:
        InputError: the folder is not a run, the graph is gone, or the part is empty.
    """
    if part not in PARTS:
        raise InputError(f"eice: --nodes must be one of {', '.join(PARTS)}, got {part!r}")
    if coverage is not None and not 0 < coverage < 1:
        raise InputError(f"eice: --coverage must be in (0, 1), got {coverage}")
    run = load_run(folder)
    graph = run.graph()
    result = _jackknife(run, graph, graph, run.settings.coverage if coverage is None else coverage)
    chosen = torch.arange(graph.n_nodes) if part == "all" else getattr(run.split, part)
    if chosen.numel() == 0:
        raise InputError(f"eice: the run has no {part} nodes; take another --nodes")
    ice = result.ice[chosen].double()
    print(f"nodes        {part}, {chosen.numel():,}")
    print(f"EICE         {float(ice.mean()):.6f}")
    print(f"uncertainty  {float(result.uncertainty[chosen].mean()):.6f} on average")
    print(f"confidence   {float(result.confidence[chosen].mean()):.6f} on average")
    print(f"width        {float((result.upper - result.lower)[chosen].mean()):.6f} on average, {result.coverage:.0%}")
    print(f"damping      {result.diagnostics['damping']:.3g}, mean leverage {result.diagnostics['mean_leverage']:.3f}")


def run_predict(folder: Path, graph_path: Path, out: Path | None, *, overwrite: bool) -> None:
    """Scores another graph with a saved run and writes its predictions.

    Args:
        folder: the run's folder.
        graph_path: `.npz` with as many features; labels are not needed.
        out: CSV to write (beside it a Parquet file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: a file cannot be used, or the features have another width.
    """
    run = load_run(folder)
    graph = Graph.from_npz(graph_path)
    if graph.n_features != run.model.n_features:
        raise InputError(
            f"predict: graph {graph_path} has {graph.n_features} features, the run was trained on "
            f"{run.model.n_features}"
        )
    path = out or folder / f"predictions_{graph_path.stem}.csv"
    if path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    if not overwrite and (path.exists() or path.with_suffix(".parquet").exists()):
        raise InputError(f"predict: {path} exists already: take another --out, or pass --overwrite")
    graph = dataclasses.replace(graph, feature_normalisation=run.feature_normalisation, trusted=True)
    try:
        result = _jackknife(run, run.graph(), graph, run.settings.coverage)
    except InputError as error:
        result = None
        print(f"note: intervals are left empty, they need the run's own graph: {error}", file=sys.stderr)
    raw, probabilities = run_probabilities(run, run.model.logits(graph))
    table = predictions(graph, raw, probabilities, result, None)
    with fresh_files(path.parent, f"predict: {path}") as partial:
        names = [file.name for file in write_predictions(table, partial, path.stem)]
    for name in names:
        print(path.parent / name)


def _jackknife(run: LoadedRun, own: Graph, graph: Graph, coverage: float) -> JackknifeResult:
    """Returns Algorithm 1 for the nodes of `graph`, leaving out labels of the run's own graph."""
    calibrator = run.calibrator
    assert calibrator is None or isinstance(calibrator, AffineCalibrator | JackknifeCalibrator)
    settings = run.settings
    trained = run.fit(own)
    in_val = torch.isin(trained.nodes, run.split.val.to(trained.nodes.device))
    leaving_out = settings.leaving_out()
    change = None
    if leaving_out != LooSettings(seed=settings.seed):
        if graph is not own:
            raise InputError(
                f"predict: intervals by --loo {settings.loo} need the run's own graph: train with --loo alo"
            )
        change = leave_one_out(trained, own, damping=run.damping, settings=leaving_out)
    return jackknife(
        trained,
        graph,
        coverage=coverage,
        damping=run.damping,
        calibrator=calibrator,
        change=change,
        settings=leaving_out,
        uncertainty=settings.uncertainty,
        judges=in_val if bool(in_val.any()) else None,
    )
