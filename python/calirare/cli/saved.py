"""`calirare eice` and `calirare predict`: what a saved run says of its own graph, and of another."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare.calibration import AffineCalibrator, JackknifeCalibrator
from calirare.datasets import read_graph
from calirare.graph import TABLE_SUFFIXES, Graph, standardized
from calirare.intervals import JackknifeResult, jackknife
from calirare.leave_one_out import leave_one_out
from calirare.leave_one_out.methods import LooSettings
from calirare.run import predictions, write_predictions
from calirare.run.folder import LoadedRun, load_run, run_probabilities
from calirare_ext import Csr

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
    raw, probabilities = run_probabilities(run, run.model.logits(graph))
    chosen = torch.arange(graph.n_nodes) if part == "all" else getattr(run.split, part)
    if chosen.numel() == 0:
        raise InputError(f"eice: the run has no {part} nodes; take another --nodes")
    right, ice = result.about(probabilities[chosen], chosen)
    own = result.about(torch.stack([1 - raw, raw], 1)[chosen], chosen)[1]
    what = "calibrated" if run.calibrator is not None else "the network's own, there is no map"
    print(f"nodes        {part}, {chosen.numel():,}")
    print(
        f"EICE         {float(ice.double().mean()):.6f} of the probabilities in predictions.csv ({what}): mean of `ice`"
    )
    print(f"EICE, raw    {float(own.double().mean()):.6f} of the network's own probabilities: mean of `ice_raw`")
    print(f"uncertainty  {float(right.double().mean()):.6f} on average")
    print(f"confidence   {float(probabilities[chosen].max(1).values.double().mean()):.6f} on average")
    width = (result.upper - result.lower)[chosen].abs()
    print(f"width        {float(width.mean()):.6f} on average, {result.coverage:.0%}")
    print(f"damping      {result.diagnostics['damping']:.3g}, mean leverage {result.diagnostics['mean_leverage']:.3f}")


def run_predict(folder: Path, data: dict[str, Any], out: Path | None, *, overwrite: bool) -> None:
    """Scores another graph with a saved run and writes its predictions.

    Args:
        folder: the run's folder.
        data: keywords of `read_graph` under its names, `dataset` for the name or path; the graph must have the run's
            features, in any order where they have names; labels are not needed. A table is read with the column of
            weights that the run named, where it names none itself.
        out: CSV to write (beside it a Parquet file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    run = load_run(folder)
    name, data = data["dataset"], _columns_of(run, data)
    graph = _labelled_as(run, read_graph(name, **{k: v for k, v in data.items() if k != "dataset"})[0])
    graph = _scaled_as(run, _with_features_of(run, graph, str(name)))
    path = out or folder / f"predictions_{_stem(name)}.csv"
    if path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    if not overwrite and (path.exists() or path.with_suffix(".parquet").exists()):
        raise InputError(f"predict: {path} exists already: take another --out, or pass --overwrite")
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
    damping: float | None = run.damping
    change = None
    if leaving_out != LooSettings(seed=settings.seed):
        # As the training asked for it: what such a method raised by itself would be raised again.
        damping = None if settings.damping == "auto" else float(settings.damping)
        m = trained.nodes.numel()
        with Reporter() as reporter:
            change = leave_one_out(
                trained,
                graph,
                damping=damping,
                settings=leaving_out,
                progress=lambda done: reporter("retrain", done, m),
            )
    return jackknife(
        trained,
        graph,
        coverage=coverage,
        damping=damping,
        calibrator=calibrator,
        change=change,
        settings=leaving_out,
        uncertainty=settings.uncertainty,
        judges=in_val if bool(in_val.any()) else None,
    )


def _labelled_as(run: LoadedRun, graph: Graph) -> Graph:
    """Returns the graph with its labels merged as in the run: 1 for its rare class, 0 for the others."""
    if graph.y is None:
        return graph
    rare = run.class_names[1]
    if rare not in graph.class_names:
        print(
            f"note: the graph's labels are left out, the run's rare class {rare!r} is not among its classes",
            file=sys.stderr,
        )
        return dataclasses.replace(graph, y=None, split=None, class_names=(), trusted=True)
    y = torch.where(graph.y < 0, graph.y, (graph.y == graph.class_names.index(rare)).long())
    return dataclasses.replace(graph, y=y, class_names=run.class_names, posterior=None, trusted=True)


def _columns_of(run: LoadedRun, data: dict[str, Any]) -> dict[str, Any]:
    """Returns the keywords with the run's column of weights, without which another graph would be scored."""
    if "weight" in data or not str(data["dataset"]).lower().endswith(TABLE_SUFFIXES):
        return data
    weight = run.data.get("weight")
    return data if weight is None else data | {"weight": weight}


def _with_features_of(run: LoadedRun, graph: Graph, name: str) -> Graph:
    """Returns the graph with the run's features: by their names where both have names, else by their number."""
    wanted, given = run.feature_names, graph.feature_names
    absent = [feature for feature in wanted if feature not in given]
    if wanted and given and absent:
        raise InputError(
            f"predict: graph {name} must have the features the run was trained on, {absent[0]!r} is not among its "
            f"columns {', '.join(given[:20])}: name the columns as the run's graph does"
        )
    if wanted and given and wanted != given:
        more = [feature for feature in given if feature not in wanted]
        if more:
            print(f"note: left out, as the run has no such feature: {', '.join(more)}", file=sys.stderr)
        assert isinstance(graph.x, torch.Tensor)
        x = graph.x[:, [given.index(feature) for feature in wanted]]
        return dataclasses.replace(graph, x=x, feature_names=wanted, trusted=True)
    if graph.n_features != run.model.n_features:
        raise InputError(
            f"predict: graph {name} must have the {run.model.n_features} features the run was trained on, got "
            f"{graph.n_features}"
        )
    return graph


def _scaled_as(run: LoadedRun, graph: Graph) -> Graph:
    """Returns the graph with features scaled as the run's graph was: standardized by the run's own statistics."""
    if run.scaling is None:
        return dataclasses.replace(graph, feature_normalisation=run.feature_normalisation, trusted=True)
    if isinstance(graph.x, Csr):
        raise InputError(f"predict: graph {graph.name!r} must have dense features, as the run standardizes, got sparse")
    x = standardized(graph.x, *run.scaling)
    return dataclasses.replace(graph, x=x, feature_normalisation="none", trusted=True)


def _stem(name: str) -> str:
    """Returns what a graph's predictions are called after: its file without any suffix of a table."""
    path = Path(name)
    tables = [suffix for suffix in TABLE_SUFFIXES if path.name.endswith(suffix)]
    return path.name.removesuffix(max(tables, key=len)) if tables else path.stem
