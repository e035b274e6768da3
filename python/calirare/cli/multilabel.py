"""`calirare multilabel`: train, evaluate, simulate."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from calirare._util.errors import InputError

PRELOAD = "calirare.cli.multilabel_runs"
SIZE = 64  # edge of an image
MANY_TIES = 0.1  # share of rows that share their score with another
TIES_MATTER = 0.02  # relative change of a reading by what ties are given for a rank

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Canonical calibration of models that give several labels at once (CMLCC).",
)


@app.command()
def train(
    dataset: Annotated[
        str | None,
        typer.Option(help="emotions, scene, yeast, enron, simulated_graph, or an .npz file, also of a graph."),
    ] = None,
    root: Annotated[str | None, typer.Option(help="Folder to look for named data sets in.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of images, instead of --dataset.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Table of the images: file, split (optional), labels.")] = None,
    features: Annotated[Path | None, typer.Option(help="Features of the images computed once, .npz.")] = None,
    size: Annotated[int | None, typer.Option(help="Edge the images are scaled to. [default: 64]")] = None,
    loss: Annotated[str, typer.Option(help="bce, focal or cmlcc.")] = "cmlcc",
    beta: Annotated[str, typer.Option(help="Weight of the calibration error, or auto: by validation.")] = "auto",
    p: Annotated[float, typer.Option(help="Order of its norm.")] = 1.0,
    gamma: Annotated[float, typer.Option(help="Exponent of the focal loss.")] = 2.0,
    calibrate: Annotated[str, typer.Option(help="none or temperature, fitted on the validation rows.")] = "none",
    hidden: Annotated[int, typer.Option(help="Width of the hidden layer.")] = 64,
    dropout: Annotated[float, typer.Option(help="Of the hidden units.")] = 0.0,
    learning_rate: Annotated[float, typer.Option(help="Of Adam.")] = 1e-3,
    weight_decay: Annotated[float, typer.Option(help="Of Adam.")] = 0.0,
    batch_size: Annotated[int, typer.Option(help="Rows per step.")] = 128,
    epochs: Annotated[int, typer.Option(help="At most so many.")] = 150,
    patience: Annotated[int, typer.Option(help="Epochs without improvement before stopping.")] = 15,
    floors: Annotated[int, typer.Option(help="Draws for the noise floors of the errors; 0: none.")] = 5,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/multilabel"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Train on a table, a graph or images with several labels per row; write a run's folder."""
    from calirare._util.console import Reporter

    if floors < 0 or floors == 1:
        raise InputError(f"multilabel train: --floors must be 0 (none) or at least 2, got {floors}")
    _check_seed("train", seed)
    _check_source(dataset, images, {"root": root}, {"labels": labels, "features": features, "size": size})
    from calirare.cli.multilabel_runs import Calibration, train_and_measure, write_run
    from calirare.multilabel.training import TrainOptions

    options = TrainOptions(
        loss=cast(Any, loss),
        beta=1.0 if beta == "auto" else _number(beta),
        p=p,
        gamma=gamma,
        hidden=hidden,
        dropout=dropout,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        batch_size=batch_size,
        max_epochs=epochs,
        patience=patience,
        seed=seed,
    )
    told = {
        "dataset": dataset,
        "root": root,
        "images": images and str(images),
        "labels": labels and str(labels),
        "features": features and str(features),
        "size": size,
    }
    with Reporter() as reporter:
        start = time.perf_counter()
        data = _load(dataset, root, images, labels, features, size, seed)
        reporter.say(
            f"{data.name}: {len(data.x):,} rows, {data.n_labels} labels"
            + ("" if data.adjacency is None else f", {data.adjacency.nnz:,} directed edges")
        )
        outcome = train_and_measure(
            data,
            options,
            choose=beta == "auto",
            calibration=cast(Calibration, calibrate),
            floors=floors,
            reporter=reporter,
        )
        if outcome.choice is not None:
            reporter.say(f"beta {outcome.choice.beta:g} chosen on the validation rows")
        reporter.log(f"trained and measured after {time.perf_counter() - start:.1f} s")
        paths = write_run(outcome, told, out, overwrite=overwrite, reporter=reporter)
    for part, sides in outcome.reports.items():
        _print_reports(f"{data.name}, {part} rows, loss {loss}", sides)
    for path in paths:
        print(path)


def _load(
    dataset: str | None,
    root: str | None,
    images: Path | None,
    labels: Path | None,
    features: Path | None,
    size: int | None,
    seed: int,
) -> Any:
    if images is None:
        from calirare.multilabel.data import PUBLISHED, load_multilabel

        if root is not None and dataset not in PUBLISHED:
            raise InputError(f"multilabel train: --root must be left out, it is for {', '.join(PUBLISHED)}")
        return load_multilabel(cast(str, dataset), root=root, seed=seed)
    if labels is None:
        raise InputError("multilabel train: --images needs --labels, the table of their labels")
    from calirare.multilabel.images import load_images

    return load_images(images, labels, features=features, size=SIZE if size is None else size, seed=seed)


def _check_source(
    dataset: str | None, images: Path | None, of_dataset: dict[str, Any], of_images: dict[str, Any]
) -> None:
    """Checks that there is one source of data, and no option of the other."""
    if (images is None) == (dataset is None):
        raise InputError("multilabel train: give either --dataset or --images with --labels")
    chosen, foreign = ("--dataset", of_images) if images is None else ("--images", of_dataset)
    words = ", ".join(f"--{name}" for name, value in foreign.items() if value is not None)
    if words:
        raise InputError(f"multilabel train: {words} must be left out with {chosen}, it has no effect there")


@app.command()
def evaluate(
    table: Annotated[Path, typer.Argument(help="CSV with y_<label> and p_<label>, or a run's folder.")],
    part: Annotated[str | None, typer.Option(help="Only rows of this split. [default: test, for a run]")] = None,
    p: Annotated[float, typer.Option(help="Order of the norm of the canonical errors.")] = 1.0,
    copula: Annotated[
        str, typer.Option(help="gaussian, student or vine: one more row for another family.")
    ] = "gaussian",
    floors: Annotated[int, typer.Option(help="Draws for the noise floors; 0: none.")] = 20,
    seed: Annotated[int, typer.Option(help="Of those draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file if it is there.")] = False,
) -> None:
    """Measure the calibration and accuracy of multi-label predictions."""
    from calirare.cli.multilabel_runs import read_table
    from calirare.multilabel import CopulaOptions, canonical_calibration_error, multilabel_report, noise_floor
    from calirare.multilabel.families import FAMILIES

    if floors < 0 or floors == 1:
        raise InputError(f"multilabel evaluate: --floors must be 0 (none) or at least 2, got {floors}")
    _check_seed("evaluate", seed)
    if copula not in FAMILIES:
        raise InputError(f"multilabel evaluate: copula must be one of {', '.join(FAMILIES)}, got {copula!r}")
    if table.is_dir():
        table, part = table / "predictions.csv", part or "test"
    _check_new("evaluate", () if out is None else (out,), overwrite, table)
    scores, labels, names = read_table(table, part)
    try:
        report = multilabel_report(labels, scores, norm=p, floors=floors, seed=seed)
        if copula != "gaussian":
            family = CopulaOptions(cast(Any, copula))

            def reading(y: Any, f: Any) -> float:
                return canonical_calibration_error(y, f, norm=p, options=family).mean

            report[f"copula_{copula}"] = reading(labels, scores)
            if floors:
                report[f"copula_{copula}_floor"], _ = noise_floor(reading, scores, repeats=floors, seed=seed)
        diagnostics = canonical_calibration_error(labels, scores, norm=p).diagnostics
    except (ValueError, ImportError) as error:
        raise InputError(f"{table}: {error}") from error
    _print_reports(f"{table}, {len(scores):,} rows, {len(names)} labels", {"value": report})
    for what, found in dataclasses.asdict(diagnostics).items():
        if found and what in ("jitter", "constant_scores", "absent_labels", "universal_labels"):
            shown = ", ".join(names[j] for j in found) if isinstance(found, tuple) else f"{found:g}"
            print(f"note: {what.replace('_', ' ')}: {shown}")
    if diagnostics.tied_share >= MANY_TIES:
        _tell_of_ties(scores, labels, p, report, diagnostics.tied_share)
    if out is not None:
        values = {"report": report, "diagnostics": dataclasses.asdict(diagnostics), "rows": len(scores), "p": p}
        _write(out, json.dumps(values, indent=2, sort_keys=True) + "\n")
        print(out)


def _tell_of_ties(scores: Any, labels: Any, p: float, report: dict[str, float], share: float) -> None:
    """Says what the copulas read where tied scores take their mean rank, if that is another number."""
    from calirare.multilabel import CopulaOptions, canonical_calibration_error
    from calirare.multilabel.families import FAMILIES

    options = {"copula": CopulaOptions(cdf="midrank")}
    options["copula_threshold"] = CopulaOptions(cdf="midrank", label_model="threshold")
    options |= {f"copula_{family}": CopulaOptions(family, cdf="midrank") for family in FAMILIES}
    found = {
        name: canonical_calibration_error(labels, scores, norm=p, options=chosen).mean
        for name, chosen in options.items()
        if name in report
    }
    if any(abs(value - report[name]) > TIES_MATTER * report[name] for name, value in found.items()):
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.items())
        print(
            f"note: tied scores: {share:.1%} of the rows share a score with another, and the CDF as printed gives them "
            f"the highest of their ranks; with the mean of their ranks: {shown}; give scores with all their digits"
        )


@app.command()
def simulate(
    out: Annotated[Path, typer.Option(help="Folder for simulation.json and simulation.png.")] = Path("runs/simulation"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace such files that are there.")] = False,
    sizes: Annotated[str, typer.Option(help="Rows per sample, comma-separated.")] = "250,1000,4000,16000",
    repeats: Annotated[int, typer.Option(help="Samples per size, at most.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
) -> None:
    """Measure bias and consistency of the estimators where the true error is known."""
    from calirare_lab.multilabel.plots import draw_study
    from calirare_lab.multilabel.study import run_study

    _check_seed("simulate", seed)
    try:
        rows = tuple(sorted({int(size) for size in sizes.split(",")}))
    except ValueError:
        raise InputError(f"multilabel simulate: sizes must be whole numbers with commas, got {sizes!r}") from None
    if rows[0] < 10 or repeats < 2:
        raise InputError(f"multilabel simulate: sizes must be >= 10 and repeats >= 2, got {rows[0]} and {repeats}")
    _check_new("simulate", (out / "simulation.json", out / "simulation.png"), overwrite)
    study = run_study(sizes=rows, repeats=repeats, seed=seed, progress=print)
    _write(out / "simulation.json", json.dumps(study, indent=1, sort_keys=True) + "\n")
    draw_study(study, out / "simulation.png")
    for verdict in cast(list[dict[str, Any]], study["verdicts"]):
        print(
            "{estimator}, {world}, p = {p:g}: truth {truth:.4f}, bias {bias_small:+.4f} ({z_small:+.1f} SE) at n = "
            "{n_small:,}, {bias_large:+.4f} ({z_large:+.1f} SE) at n = {n_large:,}".format(**verdict)
            + f"; unbiased: {_yes(verdict['unbiased'])}, consistent: {_yes(verdict['consistent'])}"
        )
    for name in ("simulation.json", "simulation.png"):
        print(out / name)


def _check_new(command: str, files: tuple[Path, ...], overwrite: bool, table: Path | None = None) -> None:
    """Checks that no file is replaced unasked, and the table that is read not at all."""
    for file in files:
        if table is not None and file.exists() and table.exists() and file.samefile(table):
            raise InputError(f"multilabel {command}: --out must not be the table itself, got {file}")
        if file.exists() and not overwrite:
            raise InputError(f"multilabel {command}: {file} exists already: take another --out, or pass --overwrite")


def _check_seed(command: str, seed: int) -> None:
    from calirare.run.settings import MAX_SEED

    if not 0 <= seed < MAX_SEED:
        raise InputError(f"multilabel {command}: --seed must be from 0 to 2^63 - 1, got {seed}")


def _yes(verdict: bool | None) -> str:
    if verdict is None:
        return "too short a range"
    return "yes" if verdict else "no"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"multilabel train: beta must be a number or auto, got {text!r}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: the file cannot be written: {error.strerror or error}") from error


def _print_reports(title: str, sides: dict[str, dict[str, float]]) -> None:
    """Prints one row per measure, one column per side, with the noise floors where they are known."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    for side in sides:
        table.add_column(side, justify="right")
    for name in next(iter(sides.values())):
        if not name.endswith("_floor"):
            cells = [
                f"{report[name]:.4f}" + (f" (floor {report[f'{name}_floor']:.4f})" if f"{name}_floor" in report else "")
                for report in sides.values()
            ]
            table.add_row(name.replace("_", " "), *cells)
    Console(width=None if Console().is_terminal else 110).print(table, highlight=False)
