"""`calirare paper`: one command per table and figure."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from calirare._util.errors import InputError
from calirare_multilabel.commands import Commands

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


app = Commands(
    name="paper",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The paper's tables and figures.",
)
PRELOAD = "calirare_lab.paper.cells"

Datasets = Annotated[str, typer.Option(help="Data sets, separated by commas or spaces.")]
Rates = Annotated[str, typer.Option(help="Training nodes per class.")]
Seeds = Annotated[int, typer.Option(help="Seeds 0 .. N-1.")]
Jobs = Annotated[int, typer.Option(help="Processes.")]
Methods = Annotated[str, typer.Option(help="Methods by name; empty: all of the table.")]
Out = Annotated[Path, typer.Option(help="Folder; cells that are there are not run again.")]

DEFAULT_DATASETS = "cora,citeseer,pubmed,dblp,facebook"
DEFAULT_OUT = Path("paper")


def _add_table(name: str, about: str) -> None:
    """Adds the command that writes a table: the function of its name in the module of its name."""

    @app.command(name, cls=ListCommand, help=about)
    def table(
        datasets: Datasets = DEFAULT_DATASETS,
        label_rates: Rates = "20,30,40",
        seeds: Seeds = 10,
        jobs: Jobs = 1,
        methods: Methods = "",
        out: Out = DEFAULT_OUT,
    ) -> None:
        module = import_module(f"calirare_lab.paper.{name}")
        known = getattr(module, f"{name.upper()}_METHODS")
        _table(getattr(module, name), known, datasets, label_rates, seeds, jobs, methods, out)


def _add_figure(name: str, about: str) -> None:
    """Adds the command that draws a figure of predictions."""

    @app.command(name, help=about)
    def figure(jobs: Jobs = 1, out: Out = DEFAULT_OUT) -> None:
        draw = getattr(import_module("calirare_lab.paper.figures"), name)
        _positive("jobs", jobs)
        _tell(draw(_folder(out), jobs, _progress))


_add_table("table2", "Confidence calibration of every method.")
_add_table("table3", "Rare category characterisation of every network.")
_add_figure("figure1", "Reliability diagrams per class.")
_add_figure("figure2", "CiteSeer with and without temperature scaling.")


@app.command()
def figure3(seeds: Seeds = 10, jobs: Jobs = 1, out: Out = DEFAULT_OUT) -> None:
    """Macro-ACE of Algorithm 2 over alpha and lambda on Cora."""
    from calirare_lab.paper.figure3 import figure3 as draw

    _positive("seeds", seeds)
    _positive("jobs", jobs)
    _tell(draw(_folder(out), seeds, jobs, _progress))


@app.command(cls=ListCommand)
def search(
    datasets: Datasets = "cora,citeseer,dblp,facebook",
    label_rates: Rates = "20,30,40",
    seeds: Seeds = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """The search behind our default: validation nodes only."""
    from calirare_lab.paper.protocol import places
    from calirare_lab.paper.search import search as run

    wanted = places(_some("datasets", datasets), _numbers("label-rates", label_rates), _positive("seeds", seeds))
    _tell(run(wanted, _folder(out), _progress))


@app.command()
def methods() -> None:
    """Names of the methods, what they train on and what they calibrate on."""
    from calirare_lab.paper.methods import METHODS

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
    from calirare_lab.paper.cells import read_cells, run_cells
    from calirare_lab.paper.protocol import places

    names = _words(methods) or known
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"--methods must be among {', '.join(known)}, got {', '.join(unknown)}")
    chosen = tuple(dict.fromkeys(_some("datasets", datasets)))
    where = places(chosen, _numbers("label-rates", label_rates), _positive("seeds", seeds))
    _positive("jobs", jobs)
    cannot = _not_there(chosen)
    can = [place for place in where if place.dataset not in cannot]
    out = _folder(out)
    if can:
        run_cells(out, can, names, jobs, _progress)
    cells = read_cells(out, where, names)
    kept = {cell["dataset"] for cell in cells}
    not_run = {dataset: reason for dataset, reason in cannot.items() if dataset not in kept}
    if not cells:
        raise InputError(f"paper: no data set can be run: {'; '.join(dict.fromkeys(not_run.values()))}")
    for dataset, reason in cannot.items():
        how_far = "not run" if dataset in not_run else "only the cells that are there"
        typer.echo(f"{dataset}: {how_far}. {reason}", err=True)
    _tell_of_other_versions(cells)
    _tell(write(cells, not_run, out))


def _not_there(datasets: tuple[str, ...]) -> dict[str, str]:
    """Returns the reason for each data set that cannot be loaded."""
    from calirare_lab.paper.protocol import why_not_run

    reasons = {dataset: why_not_run(dataset) for dataset in datasets}
    return {dataset: reason for dataset, reason in reasons.items() if reason}


def _tell_of_other_versions(cells: list[dict[str, Any]]) -> None:
    """Says when cells were made by another version than this one."""
    from calirare_ext import __version__

    other = [cell.get("version", "without a number") for cell in cells if cell.get("version") != __version__]
    if other:
        made = f"version {', '.join(sorted(set(other)))}, this is {__version__}"
        typer.echo(
            f"note: {len(other)} of {len(cells)} cells were made by {made}: a new --out runs all of them again",
            err=True,
        )


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
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out must be a folder, {out} cannot be one: {error.strerror or error}") from error
    return out


def _progress(done: int, total: int, what: str) -> None:
    typer.echo(f"{done}/{total} {what}", err=True)


def _tell(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))
