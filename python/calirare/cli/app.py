"""The command line: `calirare --help`. Exit codes: 0 done, 1 failure, 2 bad usage or input."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from calirare._util.errors import InputError
from calirare._util.startup import handle
from calirare.cli import plugins
from calirare.cli.multilabel import app as multilabel_app

DEBUG = "--debug"
INTERRUPTED = 130  # a shell's code for Ctrl-C
MODULES = {
    "eice": "calirare.cli.saved",
    "predict": "calirare.cli.saved",
    "loo-check": "calirare.cli.loo_check",
    "multilabel": "calirare.multilabel.run",
}  # what a command imports, where it is not calirare.cli.<command>

app = typer.Typer(
    cls=plugins.CommandGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs.",
    epilog="Every command takes --debug, which shows the whole traceback of an error.",
)

app.add_typer(multilabel_app, name="multilabel")

Run = Annotated[Path, typer.Option("--run", help="Folder written by `calirare train`.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Root = Annotated[str | None, typer.Option(help="Folder to look for named data sets in.")]
Minority = Annotated[str | None, typer.Option(help="Name or number of the rare class.")]
LabelRate = Annotated[
    int | None,
    typer.Option(help="Training labels per class. [default: 20 in a random split, a stored one stays as it is]"),
]
SplitKind = Annotated[str | None, typer.Option(help="public or random. [default: public where there is one]")]
Scale = Annotated[
    str | None,
    typer.Option(help="Of the features: standardize (each column), row (sums to 1), none. [default: as stored]"),
]
Features = Annotated[str | None, typer.Option(help="Node table that belongs to an edge table.")]
Label = Annotated[str | None, typer.Option(help="Column of the labels in the node table.")]
Weight = Annotated[str | None, typer.Option(help="Column of the weights in the edge table.")]
Duplicates = Annotated[str | None, typer.Option(help="Repeated edges: error, drop or sum. [default: error]")]
SelfLoops = Annotated[str | None, typer.Option(help="Self loops: error, drop or keep. [default: error]")]
Symmetrize = Annotated[bool, typer.Option("--symmetrize", help="Add the missing direction of every edge.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch a named data set that is not there.")]


@app.command()
def train(
    dataset: Annotated[
        str | None,
        typer.Option(help="Name (see `calirare datasets`), .npz file, or edge table (CSV, Parquet). [default: digits]"),
    ] = None,
    root: Root = None,
    minority: Minority = None,
    label_rate: LabelRate = None,
    split: SplitKind = None,
    features: Features = None,
    scale: Scale = None,
    label: Label = None,
    weight: Weight = None,
    duplicates: Duplicates = None,
    self_loops: SelfLoops = None,
    symmetrize: Symmetrize = False,
    download: Download = False,
    method: Annotated[
        str | None, typer.Option(help="jackknife, calirare, ts or uncalibrated. [default: jackknife]")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Population the probabilities are right for: balanced or population. [default: balanced]"),
    ] = None,
    sharpen: Annotated[
        bool,
        typer.Option("--sharpen", help="Sharpness of the balanced map by true class, on leave-one-out logits."),
    ] = False,
    epochs: Annotated[str | None, typer.Option(help="Number, or auto: by leave-one-out loss. [default: auto]")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the hidden layer. [default: 16]")] = None,
    n_layers: Annotated[int | None, typer.Option(help="Layers. [default: 2]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Of the hidden units. [default: 0.5]")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam. [default: 0.01]")] = None,
    weight_decay: Annotated[
        str | None, typer.Option(help="Penalty mu / 2 |theta|^2, or auto: by leave-one-out loss. [default: 0.0005]")
    ] = None,
    hops: Annotated[
        str | None,
        typer.Option(help="How often features are propagated first, or auto: by leave-one-out loss. [default: 1]"),
    ] = None,
    loo: Annotated[
        str | None,
        typer.Option(help="alo, influence, newton, retrain, grouped or replicates: how labels are left out."),
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="corrected, paper (as printed) or official (the authors' code).")
    ] = None,
    uncertainty: Annotated[
        str | None, typer.Option(help="map (on leave-one-out logits) or midpoint (the paper's). [default: auto]")
    ] = None,
    coverage: Annotated[float | None, typer.Option(help="Of the jackknife intervals. [default: 0.9]")] = None,
    damping: Annotated[
        str | None, typer.Option(help="Number, or auto: until leave-one-out agrees with held-out loss. [default: auto]")
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Folds of that check; 0 leaves it out. [default: 5]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random. [default: 0]")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. [default: auto]")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/run"),
    config: Annotated[Path | None, typer.Option(help="YAML file with any of these settings.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Train, calibrate and explain a network on a graph; write a run's folder.

    The folder holds config.yaml, metrics.json, predictions.csv, review.csv (what a human should look at first),
    model.safetensors, reliability.png, intervals.png and log.txt. Options given here win over --config.
    """
    from calirare.cli.train import run_train
    from calirare.run import Settings, read_yaml
    from calirare.run.settings import DATA, check_data

    given = _given(locals(), DATA)
    tuned: dict[str, Any] = {
        "method": method,
        "target": target,
        "sharpen": sharpen or None,
        "epochs": _number_or_auto("epochs", epochs, int),
        "hidden": hidden,
        "n_layers": n_layers,
        "dropout": dropout,
        "learning_rate": learning_rate,
        "weight_decay": _number_or_auto("weight-decay", weight_decay, float),
        "hops": _number_or_auto("hops", hops, int),
        "loo": loo,
        "convention": convention,
        "uncertainty": uncertainty,
        "coverage": coverage,
        "damping": _number_or_auto("damping", damping, float),
        "folds": folds,
        "seed": seed,
        "device": device,
    }
    values: dict[str, Any] = {} if config is None else read_yaml(config)
    values |= given | {name: value for name, value in tuned.items() if value is not None}
    where = "command line" if config is None else f"config {config}"
    settings = Settings.from_mapping({k: v for k, v in values.items() if k not in DATA}, where)
    check_data({k: v for k, v in values.items() if k in DATA}, where)
    told = {k: v for k, v in values.items() if k in DATA and v is not None}
    data = {"dataset": "digits", "root": None, "seed": settings.seed} | told
    run_train(data, settings, out, overwrite=overwrite)


@app.command()
def eice(
    run: Run,
    nodes: Annotated[str, typer.Option(help="train, val, test or all.")] = "val",
    coverage: Annotated[float | None, typer.Option(help="Of the intervals. [default: the run's]")] = None,
) -> None:
    """Recompute uncertainty, ICE and EICE of a saved run."""
    from calirare.cli.saved import run_eice

    run_eice(run, nodes, coverage)


@app.command()
def predict(
    run: Run,
    graph: Annotated[str, typer.Option(help="Graph to score: all that `calirare train --dataset` takes.")],
    root: Root = None,
    features: Features = None,
    label: Label = None,
    weight: Weight = None,
    duplicates: Duplicates = None,
    self_loops: SelfLoops = None,
    symmetrize: Symmetrize = False,
    download: Download = False,
    out: Annotated[Path | None, typer.Option(help="CSV to write. [default: in the run's folder]")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Score a graph with a saved run."""
    from calirare.cli.saved import run_predict
    from calirare.run.settings import DATA

    run_predict(run, {"dataset": graph} | _given(locals(), DATA), out, overwrite=overwrite)


@app.command("loo-check")
def loo_check(
    run: Run,
    nodes: Annotated[int, typer.Option(help="Labels to retrain without, drawn at random.")] = 30,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    resume: Annotated[Path | None, typer.Option(help="Folder that keeps finished retrainings.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Hold every leave-one-out method of a saved run beside true retraining."""
    from calirare.cli.loo_check import run_loo_check

    run_loo_check(run, nodes, jobs=jobs, seed=seed, resume=resume, overwrite=overwrite)


@app.command()
def datasets(root: Annotated[str | None, typer.Option(help="Folder to look in.")] = None) -> None:
    """List the data sets, where they are looked for and how to get them."""
    from calirare.cli.datasets import run_datasets

    run_datasets(root)


@app.command()
def doctor() -> None:
    """Print what was built, and check every kernel against its reference."""
    from calirare.cli.doctor import run_doctor

    if not run_doctor():
        raise typer.Exit(1)


@app.command()
def metrics(
    table: Annotated[Path, typer.Argument(help="Table of predictions: CSV, TSV or Parquet, one row per sample.")],
    y: Annotated[list[str] | None, typer.Option(help="Label column; several for multi-label. [default: y]")] = None,
    p: Annotated[
        list[str] | None, typer.Option(help="Probability column: of the rare class, or one per class. [default: p]")
    ] = None,
    before: Annotated[list[str] | None, typer.Option(help="The same columns of an earlier model.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of sample weights.")] = None,
    where: Annotated[str | None, typer.Option(help="column=value: only these rows, such as split=test.")] = None,
    minority: Annotated[str, typer.Option(help="The rare class, as it stands in the label column.")] = "1",
    bins: Annotated[int, typer.Option(help="Bins of ECE and of the pictures.")] = 15,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json and the pictures.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure and draw the calibration of a table of predictions."""
    from calirare.cli.metrics import run_metrics
    from calirare.cli.tables import TableColumns

    columns = TableColumns(tuple(y or ["y"]), tuple(p or ["p"]), tuple(before or []), weights, where, minority)
    run_metrics(table, columns, out, bins, overwrite=overwrite)


def _given(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns those of a command's options that were given, by name."""
    return {name: values[name] for name in names if values.get(name) is not None and values[name] is not False}


def _number_or_auto(name: str, text: str | None, kind: type[int] | type[float]) -> int | float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"--{name} must be {what} or auto, got {text!r}") from None


# typer keeps its copy of click under a private name: what it exports leads to the class of every usage error.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Runs the command line; the entry point of the `calirare` script."""
    debug = DEBUG in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]
    try:
        _preload(arguments)
        handle({"SIGINT": signal.default_int_handler, "SIGTERM": _stop, "SIGHUP": _stop})
        code = app(args=arguments or ["--help"], prog_name="calirare", standalone_mode=False)
    except (InputError, _UsageError) as error:
        code = 2
        if debug:
            traceback.print_exc()
        else:
            print(f"calirare: {_sentence(error)}", file=sys.stderr)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        code = 1
        if debug:
            traceback.print_exc()
        else:
            what = " ".join(str(error).split())
            print(f"calirare: failed: {type(error).__name__}: {what} (--debug shows where)", file=sys.stderr)
    if code == INTERRUPTED:
        print("calirare: interrupted", file=sys.stderr)
    sys.exit(code)


def _preload(arguments: list[str]) -> None:
    """Imports what a command needs, while a Ctrl-C may still end the process on the spot."""
    command = next(iter(arguments), "")
    if "--help" in arguments or not (command.isalpha() or command in MODULES):
        return
    try:
        import_module(MODULES.get(command, f"calirare.cli.{command}"))
    except ModuleNotFoundError:
        plugins.preload(command)


def _sentence(error: Exception) -> str:
    """Returns what a bad input is about; for a usage error also where the usage stands."""
    if isinstance(error, InputError):
        return str(error)
    message = cast(Any, error).format_message().rstrip(".").replace(". ", "; ")
    context = getattr(error, "ctx", None)
    return f"{message} (see `{'calirare' if context is None else context.command_path} --help`)"


def _stop(number: int, frame: object) -> None:
    """Ends the program as an error would, so that nothing half-written stays behind."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
