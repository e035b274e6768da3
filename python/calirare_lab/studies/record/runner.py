"""Cells of the record that are run once each, kept in a file as they are done, and summed up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calirare._util.errors import InputError
from calirare_lab.studies.record.cells import TRACKS, run_cell
from calirare_lab.studies.record.measures import MEASURES
from calirare_lab.studies.record.protocol import CHOSEN, NETWORKS, Cell, Protocol

Progress = Callable[[str], None]
Key = tuple[str, str, str, str]  # data set, network, track, map


def cells_of(
    protocol: Protocol, datasets: Sequence[str], networks: Sequence[str], tracks: Sequence[str], seeds: int
) -> list[Cell]:
    """Returns the cells in the order they are run: every data set, network and track of a draw before the next.

    Raises:
        InputError: a name is unknown, or there are more draws than the protocol has.
    """
    asked = (
        ("datasets", datasets, protocol.datasets),
        ("networks", networks, (*NETWORKS, CHOSEN)),
        ("tracks", tracks, TRACKS),
    )
    for what, names, known in asked:
        if unknown := [name for name in names if name not in known]:
            raise InputError(
                f"study {protocol.name}: {what} must be among {', '.join(known)}, got {', '.join(unknown)}"
            )
    if not 1 <= seeds <= protocol.draws:
        raise InputError(f"study {protocol.name}: seeds must be from 1 to {protocol.draws}, got {seeds}")
    every = (Cell(d, n, seed, t) for seed in range(seeds) for d in datasets for n in networks for t in tracks)
    return [cell for cell in every if _exists(cell)]


def _exists(cell: Cell) -> bool:
    """Returns whether a network has a track: attention's labels are left out by folds alone, see `cells`."""
    if cell.network == CHOSEN or cell.track == "anything":
        return (cell.network, cell.track) == (CHOSEN, "anything")
    return (cell.network, cell.track) != ("gat", "left-out")


def run(
    protocol: Protocol,
    path: Path,
    datasets: Sequence[str],
    networks: Sequence[str],
    tracks: Sequence[str],
    seeds: int,
    progress: Progress,
) -> list[Path]:
    """Runs the cells that a file does not hold yet and adds each, a row per map, as it is done.

    Args:
        protocol: what a cell is.
        path: JSONL; what it holds is kept.
        datasets: of the protocol's.
        networks: of `NETWORKS`, and `CHOSEN` for track "anything".
        tracks: of `TRACKS`.
        seeds: draws 0 .. seeds - 1.
        progress: called with a line per cell.

    Returns:
        The path.

    Raises:
        InputError: a name is unknown, or the file cannot be read or written.
    """
    cells = cells_of(protocol, datasets, networks, tracks, seeds)
    there = {Cell(row["dataset"], row["network"], row["seed"], row["track"]) for row in read(protocol, path)}
    for number, cell in enumerate(cells, 1):
        if cell in there:
            continue
        rows = run_cell(protocol, cell)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        where = f"{cell.dataset}, {cell.network}, draw {cell.seed}, {cell.track}"
        progress(f"{number}/{len(cells)} {where}: {rows[0]['cpu_seconds']} s")
    return [path]


def read(protocol: Protocol, path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a results file; none where there is no file. An InputError names a line that is no row."""
    if not path.exists():
        return []
    rows = list[dict[str, Any]]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append({name: row[name] for name in ("dataset", "network", "seed", "track", "map", *MEASURES)} | row)
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"study {protocol.name}: line {number} of {path} is no row of results ({error}): delete it"
            ) from None
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Returns mean and standard deviation (n - 1) of each measure over draws, by data set, network, track and map."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["network"], row["track"], row["map"]), []).append(row)
    out: dict[Key, dict[str, Any]] = {}
    for key, some in groups.items():
        out[key] = {"seeds": len({row["seed"] for row in some})}
        for name in MEASURES:
            values = np.array([row[name] for row in some])
            spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
            out[key][name] = (float(values.mean()), spread)
    return out
