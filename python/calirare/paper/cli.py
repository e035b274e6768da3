"""`calirare paper`: one command per table and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from calirare.errors import InputError

LISTS = ("--datasets", "--label-rates", "--methods")


class ListCommand(TyperCommand):
    """Lets an option take several words, `--label-rates 20 30 40`, as well as `20,30,40`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Joins the words after an option that takes a list with commas."""
        joined: list[str] = []
        into = False
        for word in args:
            if into and not word.startswith("-"):
                joined[-1] += f",{word}" if joined[-1] else word
                continue
            joined.append(word)
            into = word in LISTS
            if into:
                joined.append("")
        return super().parse_args(ctx, joined)


app = typer.Typer(add_completion=False, no_args_is_help=True, help="The paper's tables and figures.")

Datasets = Annotated[str, typer.Option(help="Data sets, separated by commas or spaces.")]
Rates = Annotated[str, typer.Option(help="Training nodes per class.")]
Seeds = Annotated[int, typer.Option(help="Seeds 0 .. N-1.")]
Jobs = Annotated[int, typer.Option(help="Processes.")]
Methods = Annotated[str, typer.Option(help="Methods by name; empty: all of the table.")]
Out = Annotated[Path, typer.Option(help="Folder; cells that are there are not run again.")]

DEFAULT_DATASETS = "cora,citeseer,pubmed,dblp,facebook"
DEFAULT_OUT = Path("paper")


@app.command(cls=ListCommand)
def table2(
    datasets: Datasets = DEFAULT_DATASETS,
    label_rates: Rates = "20,30,40",
    seeds: Seeds = 10,
    jobs: Jobs = 1,
    methods: Methods = "",
    out: Out = DEFAULT_OUT,
) -> None:
    """Confidence calibration of every method."""
    from calirare.paper.table2 import TABLE2_METHODS
    from calirare.paper.table2 import table2 as write

    _table(write, TABLE2_METHODS, datasets, label_rates, seeds, jobs, methods, out)


@app.command(cls=ListCommand)
def table3(
    datasets: Datasets = DEFAULT_DATASETS,
    label_rates: Rates = "20,30,40",
    seeds: Seeds = 10,
    jobs: Jobs = 1,
    methods: Methods = "",
    out: Out = DEFAULT_OUT,
) -> None:
    """Rare category characterisation of every network."""
    from calirare.paper.table3 import TABLE3_METHODS
    from calirare.paper.table3 import table3 as write

    _table(write, TABLE3_METHODS, datasets, label_rates, seeds, jobs, methods, out)


@app.command()
def figure1(jobs: Jobs = 1, out: Out = DEFAULT_OUT) -> None:
    """Reliability diagrams per class."""
    from calirare.paper.figures import figure1 as draw

    _tell(draw(_folder(out), jobs, _progress))


@app.command()
def figure2(jobs: Jobs = 1, out: Out = DEFAULT_OUT) -> None:
    """CiteSeer with and without temperature scaling."""
    from calirare.paper.figures import figure2 as draw

    _tell(draw(_folder(out), jobs, _progress))


@app.command()
def figure3(seeds: Seeds = 10, jobs: Jobs = 1, out: Out = DEFAULT_OUT) -> None:
    """Macro-ACE of Algorithm 2 over alpha and lambda on Cora."""
    from calirare.paper.figure3 import figure3 as draw

    _tell(draw(_folder(out), _positive("seeds", seeds), _positive("jobs", jobs), _progress))


@app.command(cls=ListCommand)
def search(
    datasets: Datasets = "cora,citeseer,dblp,facebook",
    label_rates: Rates = "20,30,40",
    seeds: Seeds = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """The search behind our default: validation nodes only."""
    from calirare.paper.protocol import places
    from calirare.paper.search import search as run

    wanted = places(_some("datasets", datasets), _numbers("label-rates", label_rates), _positive("seeds", seeds))
    _tell(run(wanted, _folder(out), _progress))


@app.command()
def methods() -> None:
    """Names of the methods, what they train on and what they calibrate on."""
    from calirare.paper.methods import METHODS

    for name, method in METHODS.items():
        typer.echo(f"{name:26} {method.title:40} trains on {method.trains_on}, calibrates on {method.calibrates_on}")


def _table(
    write: Any,
    known: tuple[str, ...],
    datasets: str,
    label_rates: str,
    seeds: int,
    jobs: int,
    methods: str,
    out: Path,
) -> None:
    from calirare.paper.cells import read_cells, run_cells
    from calirare.paper.protocol import places, why_not_run

    names = _words(methods) or known
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"--methods must be among {', '.join(known)}, got {', '.join(unknown)}")
    rates, chosen = _numbers("label-rates", label_rates), _some("datasets", datasets)
    places(chosen, rates, 1)  # checks names before anything is loaded
    reasons = {dataset: why_not_run(dataset) for dataset in chosen}
    not_run = {dataset: reason for dataset, reason in reasons.items() if reason}
    for dataset, reason in not_run.items():
        typer.echo(f"{dataset}: not run. {reason}", err=True)
    where = places(tuple(d for d in reasons if d not in not_run), rates, _positive("seeds", seeds))
    run_cells(_folder(out), where, names, _positive("jobs", jobs), _progress)
    _tell(write(read_cells(out, where, names), not_run, out))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)


def _some(option: str, text: str) -> tuple[str, ...]:
    words = _words(text)
    if not words:
        raise InputError(f"--{option} must name at least one, got {text!r}: leave it out for the default")
    return words


def _numbers(option: str, text: str) -> tuple[int, ...]:
    words = _some(option, text)
    try:
        return tuple(int(word) for word in words)
    except ValueError:
        raise InputError(f"--{option} must be whole numbers, got {text!r}") from None


def _positive(option: str, value: int) -> int:
    if value < 1:
        raise InputError(f"--{option} must be at least 1, got {value}")
    return value


def _folder(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return out


def _progress(done: int, total: int, what: str) -> None:
    typer.echo(f"{done}/{total} {what}", err=True)


def _tell(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))
