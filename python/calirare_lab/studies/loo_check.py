"""`calirare study loo-check`: a saved run's leave-one-out next to true retraining, as a table and a picture."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare.graph import Graph
from calirare.models import FittedNetwork, converge, networks
from calirare.run import load, write_json
from calirare_lab.leave_one_out import Comparison, compare

N_ELSEWHERE = 1000  # nodes away from the left-out one that the change is judged at
TOLERANCE, MAX_STEPS = 1e-5, 400
RETRAIN_STEPS = 120  # per label; from the full fit a few dozen are enough unless the loss lies on many kinks
STEM = "loo_check"


def run(
    folder: Path,
    graph: str | None,
    nodes: int,
    jobs: int,
    seed: int,
    resume: Path | None,
    overwrite: bool,
) -> None:
    """Prints correlation, slope and relative error of every method against retraining; writes `loo_check.png`, `.json`.

    The run's network is first trained on, without dropout and in float64, until its loss stands still: only there is
    the effect of leaving a label out defined by the label alone.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        nodes: labels to retrain without, drawn at random.
        jobs: processes.
        seed: of the draw.
        resume: folder that keeps finished retrainings; None: none is kept.
        overwrite: replace the files of an earlier check.

    Raises:
        InputError: the folder is not a run, or the graph is gone.
    """
    saved = load(folder)
    network = saved.fit.closed_form
    if network is None:
        raise InputError(
            f"study loo-check: run {folder} must hold one network with closed-form leave-one-out, got model "
            f"{saved.settings.model}: train with --model {' or '.join(networks())}, on at most some thousand labels"
        )
    picture, numbers = folder / f"{STEM}.png", folder / f"{STEM}.json"
    there = [path.name for path in (picture, numbers) if path.exists()]
    if there and not overwrite:
        raise InputError(f"study loo-check: {folder} holds {there[0]} already; give --overwrite to replace it")
    chosen, found = _compare(network, saved.mapped(saved.graph(graph)), nodes, seed, jobs=jobs, kept=resume)
    for line in table(found):
        print(line)
    if found.unconverged:
        left = f"{found.unconverged:.0%} of the retrainings stood still with a gradient left"
        print(f"note: {left}, as kinks of ReLU leave one")
    rows = [{key: value for key, value in vars(row).items() if key != "seconds"} for row in found.rows]
    with fresh_files(folder, f"study loo-check: {folder}") as partial:
        draw(found, partial / picture.name)
        values = {
            "labels": chosen.tolist(),
            "methods": rows,
            "truth": found.truth.flatten().tolist(),
            "unconverged": found.unconverged,
        }
        write_json(values, partial / numbers.name)
    print(f"wrote        {picture}, {numbers}")


def _compare(
    fitted: FittedNetwork, graph: Graph, n: int, seed: int, *, jobs: int, kept: Path | None
) -> tuple[Tensor, Comparison]:
    """Returns the places of n labels, int64 [n], and what every method predicts next to retraining."""
    trained, end = converge(fitted, graph, tolerance=TOLERANCE, max_steps=MAX_STEPS)
    generator = torch.Generator().manual_seed(seed)
    m = trained.nodes.numel()
    chosen = torch.randperm(m, generator=generator)[:n].sort().values
    elsewhere = torch.randperm(graph.n_nodes, generator=generator)[:N_ELSEWHERE].sort().values
    ended = f"loss {end.loss:.6f}, |gradient| {end.gradient_norm:.1e}"
    print(f"network      {end.steps} further steps without dropout, {ended}")
    print(f"retraining   {chosen.numel()} of {m} labels, each left out once", flush=True)
    with Reporter() as reporter:
        found = compare(
            trained,
            graph,
            chosen,
            elsewhere,
            jobs=jobs,
            folder=kept,
            max_steps=RETRAIN_STEPS,
            progress=lambda done: reporter("retrained", done, chosen.numel()),
        )
    return chosen, found


def table(found: Comparison) -> list[str]:
    """Returns the table's lines."""
    head = f"{'method':<20}{'correlation':>12}{'slope':>8}{'rel. error':>12}{'elsewhere':>12}{'rel. error':>12}{'s':>9}"
    lines = [head]
    for row in found.rows:
        if row.note:
            lines.append(f"{row.method:<20}  {row.note}")
            continue
        numbers = f"{row.correlation:>12.3f}{row.slope:>8.2f}{row.relative_error:>12.3f}"
        numbers += f"{row.elsewhere_correlation:>12.3f}{row.elsewhere_error:>12.3f}{row.seconds:>9.2f}"
        lines.append(f"{row.method:<20}{numbers}")
    lines.append(f"{'retraining':<20}{'':>56}{found.retrain_seconds:>9.2f}")
    return lines


def draw(found: Comparison, path: Path) -> None:
    """Writes a scatter plot of each method's change against the true one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(found.estimates)
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3 * columns, 3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    truth = found.truth.flatten().numpy()
    low, high = float(truth.min()), float(truth.max())
    for place, name in enumerate(names, 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.plot([low, high], [low, high], color="#5F5F5F", linewidth=1)
        axes.scatter(truth, found.estimates[name].flatten().numpy(), s=12, color="#0072B2")
        row = next(row for row in found.rows if row.method == name)
        axes.set_title(f"{name}: r = {row.correlation:.3f}", fontsize=9)
    figure.supxlabel("change of the own logit, retrained without the node", fontsize=9)
    figure.supylabel("change foreseen", fontsize=9)
    figure.savefig(path, dpi=120, metadata={"Software": None})
