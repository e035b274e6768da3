"""`calirare profile`: where the time of a training goes. Light: what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calirare._util.errors import InputError
from calirare_multilabel.commands import Commands

PRELOAD = "calirare_lab.profile.command"
app = Commands(name="profile", add_completion=False, rich_markup_mode=None)


@app.command()
def profile(
    run: Annotated[Path | None, typer.Option("--run", help="Folder of a run to train again.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Data set to train on, as in `calirare train`.")] = None,
    root: Annotated[str | None, typer.Option(help="Folder to look for named data sets in.")] = None,
    minority: Annotated[str | None, typer.Option(help="Name or number of the rare class.")] = None,
    label_rate: Annotated[int | None, typer.Option(help="Training labels per class.")] = None,
    split: Annotated[str | None, typer.Option(help="public or random.")] = None,
    features: Annotated[str | None, typer.Option(help="Node table that belongs to an edge table.")] = None,
    scale: Annotated[str | None, typer.Option(help="Of the features: standardize, row or none.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the labels in the node table.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of the weights in the edge table.")] = None,
    duplicates: Annotated[str | None, typer.Option(help="Repeated edges: error, drop or sum.")] = None,
    self_loops: Annotated[str | None, typer.Option(help="Self loops: error, drop or keep.")] = None,
    symmetrize: Annotated[bool, typer.Option("--symmetrize", help="Add every edge's missing direction.")] = False,
    download: Annotated[bool, typer.Option("--download", help="Fetch a named data set that is not there.")] = False,
    epochs: Annotated[int | None, typer.Option(help="Gradient steps, with --dataset. [default: 50]")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda, with --dataset. [default: auto]")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("profile"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Train under a profiler: Chrome trace, table of time, bytes and share of peak, timeline picture."""
    told = {k: v for k, v in locals().items() if v is not None and v is not False}
    from calirare.run import Data, Settings
    from calirare_lab.profile.command import run_profile

    given = {name: told[name] for name in (*Data.__dataclass_fields__, "epochs", "device") if name in told}
    if run is not None and dataset is None and given:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given))
        raise InputError(f"profile: {words} must be left out with --run, which trains a run as it was")
    settings = None if dataset is None else Settings.of(preset="paper", **{"epochs": 50} | given)
    run_profile(run, settings, out, overwrite=overwrite)
