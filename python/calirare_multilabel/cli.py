"""`calirare multilabel`: train on rows with several labels each, and measure predictions of several labels."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from calirare._util.amounts import amount, listed
from calirare._util.errors import InputError
from calirare_multilabel.commands import Commands

if TYPE_CHECKING:
    import numpy as np

PRELOAD = "calirare_multilabel.run"
MANY_TIES = 0.1  # share of rows that share their score with another
TIES_MATTER = 0.02  # relative change of a reading by what ties are given for a rank

app = Commands(
    name="multilabel",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Canonical calibration of models that give several labels at once (CMLCC).",
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


@app.command()
def train(
    dataset: Annotated[str, typer.Option(help="emotions, scene, yeast, enron, or an .npz file, also of a graph.")],
    root: Annotated[str | None, typer.Option(help="Folder to look for named data sets in.")] = None,
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
    overwrite: Overwrite = False,
) -> None:
    """Train on a table or a graph with several labels per row; write a run's folder."""
    told = dict(locals())
    _check("train", floors, seed)
    from calirare._util.console import Reporter
    from calirare_multilabel import (
        PUBLISHED,
        Calibration,
        TrainOptions,
        load_multilabel,
        train_and_measure,
        write_run,
    )

    given = {field.name: told[field.name] for field in dataclasses.fields(TrainOptions) if field.name in told}
    options = TrainOptions(**given | {"beta": 1.0 if beta == "auto" else _number(beta), "max_epochs": epochs})
    if root is not None and dataset not in PUBLISHED:
        raise InputError(f"multilabel train: --root must be left out, it is for {', '.join(PUBLISHED)}")
    with Reporter() as reporter:
        start = time.perf_counter()
        data = load_multilabel(dataset, root=root, seed=seed)
        if loss != "cmlcc" and beta != "auto":
            reporter.say(f"note: beta {beta} changes nothing, loss {loss} has no calibration error: take loss cmlcc")
        edges = "" if data.adjacency is None else f", {data.adjacency.nnz:,} directed edges"
        reporter.say(f"{data.name}: {amount(len(data.x), 'row')}, {amount(data.n_labels, 'label')}{edges}")
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
        source = {"dataset": dataset, "root": root}
        paths = write_run(outcome, source, out, overwrite=overwrite, reporter=reporter)
    for part, sides in outcome.reports.items():
        print_reports(f"{data.name}, {part} rows, loss {loss}", sides)
    for path in paths:
        print(path)


@app.command()
def evaluate(
    table: Annotated[Path, typer.Argument(help="CSV with y_<label> and p_<label>, or a run's folder.")],
    part: Annotated[str | None, typer.Option(help="Only rows of this split. [default: test, for a run]")] = None,
    p: Annotated[float, typer.Option(help="Order of the norm of the canonical errors.")] = 1.0,
    floors: Annotated[int, typer.Option(help="Draws for the noise floors; 0: none.")] = 20,
    seed: Annotated[int, typer.Option(help="Of those draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure the calibration and accuracy of multi-label predictions."""
    _check("evaluate", floors, seed)
    from calirare._util.output import check_free, fresh_files
    from calirare.run import write_json
    from calirare_multilabel import canonical_calibration_error, multilabel_report

    if table.is_dir():
        table, part = table / "predictions.csv", part or "test"
    if out is not None:
        if out.exists() and table.exists() and out.samefile(table):
            raise InputError(f"multilabel evaluate: --out must not be the table itself, got {out}")
        check_free([out], "multilabel evaluate", overwrite=overwrite)
    scores, labels, names = read_table(table, part)
    try:
        report = multilabel_report(labels, scores, norm=p, floors=floors, seed=seed)
        diagnostics = canonical_calibration_error(labels, scores, norm=p).diagnostics
    except ValueError as error:
        raise InputError(f"{table}: {error}") from error
    print_reports(f"{table}, {amount(len(scores), 'row')}, {amount(len(names), 'label')}", {"value": report})
    for what, found in dataclasses.asdict(diagnostics).items():
        if found and what in ("jitter", "constant_scores", "absent_labels", "universal_labels"):
            shown = listed(names[j] for j in found) if isinstance(found, tuple) else f"{found:g}"
            print(f"note: {what.replace('_', ' ')}: {shown}")
    if diagnostics.tied_share >= MANY_TIES:
        _tell_of_ties(scores, labels, p, report, diagnostics.tied_share)
    if out is not None:
        values = {"report": report, "diagnostics": dataclasses.asdict(diagnostics), "rows": len(scores), "p": p}
        with fresh_files(out.parent, f"multilabel evaluate: {out}") as partial:
            write_json(values, partial / out.name)
        print(out)


def _tell_of_ties(scores: Any, labels: Any, p: float, report: dict[str, float], share: float) -> None:
    """Says what the copulas read where tied scores take their mean rank, if that is another number."""
    from calirare_multilabel import CopulaOptions, canonical_calibration_error

    options = {
        "copula_threshold": CopulaOptions(cdf="midrank"),
        "copula": CopulaOptions(cdf="midrank", label_model="density"),
    }
    found = {name: canonical_calibration_error(labels, scores, norm=p, options=o).mean for name, o in options.items()}
    if any(abs(value - report[name]) > TIES_MATTER * report[name] for name, value in found.items()):
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.items())
        print(
            f"note: tied scores: {share:.1%} of the rows share a score with another, and the CDF as printed gives them "
            f"the highest of their ranks; with the mean of their ranks: {shown}; give scores with all their digits"
        )


def _check(command: str, floors: int, seed: int) -> None:
    from calirare.run import MAX_SEED

    if floors < 0 or floors == 1:
        raise InputError(f"multilabel {command}: --floors must be 0 (none) or at least 2, got {floors}")
    if not 0 <= seed < MAX_SEED:
        raise InputError(f"multilabel {command}: --seed must be from 0 to 2^63 - 1, got {seed}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"multilabel train: beta must be a number or auto, got {text!r}") from None


def print_reports(title: str, sides: dict[str, dict[str, float]]) -> None:
    """Prints one row per measure, one column per side, with the noise floors where they are known."""
    from rich.table import Table

    from calirare._util.console import screen

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
    screen(110).print(table)


def read_table(path: Path, part: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Reads scores and labels from a table with columns y_<label> and p_<label>.

    Args:
        path: a CSV as written by a run, or any table that `calirare evaluate` reads.
        part: only rows whose column `split` holds this (1, 1.0 and true are the same); None takes all.

    Returns:
        Scores [n, K], labels [n, K] and the labels' names.

    Raises:
        InputError: the file is missing or does not fit.
    """
    import numpy as np

    from calirare.cli.tables import numbers_of, read_frame, read_labels
    from calirare.graph.spelling import is_value

    if not path.is_file():
        raise InputError(f"{path}: there is no such table of predictions: check the path")
    table = read_frame(path)
    names = tuple(str(column)[2:] for column in table.columns if str(column).startswith("y_"))
    missing = [name for name in names if f"p_{name}" not in table.columns]
    if not names or missing:
        raise InputError(
            f"{path}: the table must have a column y_<label> and a column p_<label> for each label, got "
            f"{listed(table.columns)}"
        )
    given = {name: read_labels(table, f"y_{name}", path) for name in names}
    if part is not None:
        if "split" not in table.columns:
            raise InputError(f"{path}: the table has no column `split` to choose {part!r} rows from: leave --part out")
        sizes = table["split"].value_counts()
        table = table[is_value(table["split"], part)]
        if len(table) < 2:
            parts = ", ".join(f"{name} ({amount(size, 'row')})" for name, size in sizes.items())
            raise InputError(
                f"{path}: at least 2 rows of {part!r} are needed, got {len(table)}: choose with --part among {parts}"
            )
    if len(table) < 2:
        raise InputError(f"{path}: at least 2 rows are needed, got {len(table)}")
    labels = np.stack([numbers_of(table, f"y_{name}", read, None, 2) for name, read in given.items()], 1)
    try:
        scores = table[[f"p_{name}" for name in names]].to_numpy(dtype=float)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: probabilities must be numbers: {error}") from error
    return scores, labels, names
