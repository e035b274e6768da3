"""`calirare study`: simulations and experiments behind the docs, and data for them. Light: imports when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from calirare._util.errors import InputError
from calirare_multilabel.commands import Commands

app = Commands(
    name="study",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Studies on simulated and published data, and data for `calirare multilabel train`.",
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Out = Annotated[Path, typer.Option(help="Folder to write into.")]


@app.command()
def copula(
    out: Out = Path("runs/copula"),
    overwrite: Overwrite = False,
    sizes: Annotated[str, typer.Option(help="Rows per sample, comma-separated.")] = "250,1000,4000,16000",
    repeats: Annotated[int, typer.Option(help="Samples per size, at most.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
) -> None:
    """Measure bias and consistency of the multi-label estimators where the true error is known."""
    try:
        rows = tuple(sorted({int(size) for size in sizes.split(",")}))
    except ValueError:
        raise InputError(f"study copula: sizes must be whole numbers with commas, got {sizes!r}") from None
    if rows[0] < 10 or repeats < 2:
        raise InputError(f"study copula: sizes must be >= 10 and repeats >= 2, got {rows[0]} and {repeats}")
    _at_least("copula", "seed", seed, 0)
    paths = _new("copula", out, overwrite, "simulation.json", "simulation.png")
    from calirare_lab.multilabel.plots import draw_study
    from calirare_lab.multilabel.study import run_study

    study = run_study(sizes=rows, repeats=repeats, seed=seed, progress=print)
    paths[0].write_text(json.dumps(study, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    draw_study(study, paths[1])
    for verdict in cast(list[dict[str, Any]], study["verdicts"]):
        print(
            "{estimator}, {world}, p = {p:g}: truth {truth:.4f}, bias {bias_small:+.4f} ({z_small:+.1f} SE) at n = "
            "{n_small:,}, {bias_large:+.4f} ({z_large:+.1f} SE) at n = {n_large:,}".format(**verdict)
            + f"; unbiased: {_yes(verdict['unbiased'])}, consistent: {_yes(verdict['consistent'])}"
        )
    _tell(paths)


@app.command()
def losses(
    out: Annotated[Path, typer.Option(help="Folder; cells that are there are not run again.")] = Path("runs/losses"),
    seeds: Annotated[int, typer.Option(help="Seeds 0 .. N-1.")] = 10,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    root: Annotated[str | None, typer.Option(help="Folder to look for the published sets in.")] = None,
) -> None:
    """Train with cross-entropy, focal loss and CMLCC on the four published multi-label sets."""
    _at_least("losses", "seeds", seeds, 1)
    _at_least("losses", "jobs", jobs, 1)
    from calirare_lab.multilabel.experiments import run_experiments, summarise
    from calirare_lab.multilabel.plots import draw_experiments

    summary = summarise(run_experiments(out / "cells", seeds=range(seeds), root=root, jobs=jobs, progress=print))
    paths = [out / "summary.json", out / "summary.png"]
    paths[0].write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    draw_experiments(summary, paths[1])
    _tell(paths)


@app.command()
def families(
    table: Annotated[Path, typer.Argument(help="CSV with y_<label> and p_<label>, as `calirare multilabel evaluate`.")],
    part: Annotated[str | None, typer.Option(help="Only rows of this split.")] = None,
    p: Annotated[float, typer.Option(help="Order of the norm.")] = 1.0,
    vine: Annotated[bool, typer.Option("--vine", help="Regular vines too; needs pyvinecopulib.")] = False,
    floors: Annotated[int, typer.Option(help="Draws for the noise floors; 0: none.")] = 20,
    seed: Annotated[int, typer.Option(help="Of those draws.")] = 0,
) -> None:
    """Read the canonical error of a table of predictions with other copulas than the Gaussian one."""
    _at_least("families", "seed", seed, 0)
    if floors < 0 or floors == 1:
        raise InputError(f"study families: --floors must be 0 (none) or at least 2, got {floors}")
    from calirare_lab.multilabel.families import family_readings
    from calirare_multilabel.cli import print_reports, read_table

    scores, labels, names = read_table(table, part)
    try:
        readings = family_readings(labels, scores, norm=p, vine=vine, floors=floors, seed=seed)
    except (ValueError, ImportError) as error:
        raise InputError(f"{table}: {error}") from error
    print_reports(f"{table}, {len(scores):,} rows, {len(names)} labels", readings)


@app.command()
def uncertainty(
    out: Out = Path("runs/uncertainty"),
    overwrite: Overwrite = False,
    seeds: Annotated[int, typer.Option(help="Seeds 0 .. N-1.")] = 10,
) -> None:
    """Judge definitions of a node's uncertainty on graphs whose posterior is known."""
    _at_least("uncertainty", "seeds", seeds, 1)
    paths = _new("uncertainty", out, overwrite, "uncertainty.json", "uncertainty.png")
    from calirare_lab.studies.uncertainty import write

    write(seeds, *paths)
    _tell(paths)


@app.command()
def loo_check(
    run: Annotated[Path, typer.Option(help="Folder of a run with one network.")],
    graph: Annotated[str | None, typer.Option(help="Where the run's own graph is now, if it has moved.")] = None,
    nodes: Annotated[int, typer.Option(help="How many labels to retrain without, sampled at random.")] = 30,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the sample of labels.")] = 0,
    resume: Annotated[Path | None, typer.Option(help="Folder that keeps finished retrainings.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare each approximate leave-one-out method with exact retraining on a sample of labels."""
    _at_least("loo-check", "nodes", nodes, 3)
    _at_least("loo-check", "jobs", jobs, 1)
    from calirare_lab.studies import loo_check as check

    check.run(run, graph, nodes, jobs, seed, resume, overwrite)


Cells = Annotated[Path, typer.Option(help="Folder; cells that are there are not run again.")]
Datasets = Annotated[str, typer.Option(help="Data sets, comma-separated.")]
Networks = Annotated[str, typer.Option(help="gcn, gat, auto (the default detector, track anything), comma-separated.")]
Tracks = Annotated[
    str, typer.Option(help="frozen, peers, left-out (gcn alone), folds, anything (auto alone), comma-separated.")
]


@app.command()
def gets(
    out: Cells = Path("runs/gets"),
    datasets: Datasets = "cora,citeseer,computers",
    networks: Networks = "gcn,auto",
    tracks: Tracks = "frozen,peers,left-out,folds,anything",
    seeds: Annotated[int, typer.Option(help="Draws 0 .. N-1, at most 10.")] = 10,
) -> None:
    """Run the calibration record's protocol of GETS: random splits, 200 epochs, every map beside published rows."""
    _record("gets", out, datasets, networks, tracks, seeds)


@app.command()
def gats(
    out: Cells = Path("runs/gats"),
    datasets: Datasets = "cora,citeseer,computers",
    networks: Networks = "gcn,auto",
    tracks: Tracks = "frozen,peers,left-out,folds,anything",
    seeds: Annotated[int, typer.Option(help="Draws 0 .. N-1, at most 75; of 15, each split and fold once.")] = 75,
) -> None:
    """Run the calibration record's protocol of GATS: stratified folds, training stopped by one of them."""
    _record("gats", out, datasets, networks, tracks, seeds)


@app.command()
def graph(
    out: Annotated[Path, typer.Option(help="File to write, .npz.")] = Path("graph.npz"),
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 3000,
    labels: Annotated[int, typer.Option(help="Labels per node, at most.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the graph.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a simulated graph whose nodes have several rare labels, for `calirare multilabel train`."""
    _at_least("graph", "seed", seed, 0)
    paths = _new("graph", out.parent, overwrite, out.name)
    from calirare_lab.multilabel.graphs import simulated_graph
    from calirare_multilabel import save_multilabel

    save_multilabel(simulated_graph(nodes, n_labels=labels, seed=seed), paths[0])
    _tell(paths)


@app.command()
def images(
    folder: Annotated[Path, typer.Argument(help="Folder of images.")],
    labels: Annotated[Path, typer.Option(help="Table of the images: file, split (optional), labels.")],
    features: Annotated[Path | None, typer.Option(help="Features of the images computed once, .npz.")] = None,
    size: Annotated[int, typer.Option(help="Edge the images are scaled to, without --nodes.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the split, where the table has none.")] = 0,
    out: Annotated[Path, typer.Option(help="File to write, .npz.")] = Path("images.npz"),
    overwrite: Overwrite = False,
) -> None:
    """Write a folder of labelled images as a file for `calirare multilabel train`."""
    _at_least("images", "seed", seed, 0)
    _at_least("images", "size", size, 1)
    paths = _new("images", out.parent, overwrite, out.name)
    from calirare_lab.multilabel.images import load_images
    from calirare_multilabel import save_multilabel

    save_multilabel(load_images(folder, labels, features=features, size=size, seed=seed), paths[0])
    _tell(paths)


def _new(command: str, folder: Path, overwrite: bool, *names: str) -> list[Path]:
    """Returns the files to write, in a folder that is there, after checking that none is replaced unasked."""
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() and not overwrite:
            raise InputError(f"study {command}: {path} exists already: take another --out, or pass --overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"study {command}: {folder} cannot be a folder: {error.strerror or error}") from error
    return paths


def _record(name: str, out: Path, datasets: str, networks: str, tracks: str, seeds: int) -> None:
    """Runs a protocol of the calibration record into `name`.jsonl of a folder."""
    from calirare_lab.studies.record import PROTOCOLS, run

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"study {name}: {out} cannot be a folder: {error.strerror or error}") from error
    asked = (datasets.split(","), networks.split(","), tracks.split(","))
    _tell(run(PROTOCOLS[name], out / f"{name}.jsonl", *asked, seeds, lambda line: print(line, flush=True)))


def _at_least(command: str, option: str, value: int, least: int) -> None:
    if not least <= value < 2**63:
        raise InputError(f"study {command}: --{option} must be from {least} to 2^63 - 1, got {value}")


def _yes(verdict: bool | None) -> str:
    if verdict is None:
        return "too short a range"
    return "yes" if verdict else "no"


def _tell(paths: list[Path]) -> None:
    for path in paths:
        print(path)
