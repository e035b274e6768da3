"""One JSON file per method and place, kept when it is there: a stopped run goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import torch

from calirare._util.store import write_json
from calirare.metrics import bootstrap_interval, calibration_report, class_ace, ece, macro_ace
from calirare_ext import __version__
from calirare_lab.jobs import read_json, workers
from calirare_lab.paper.context import Context
from calirare_lab.paper.individual import NODES, Individual, eice_measures, individual
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import N_BOOTSTRAP_DRAWS, N_FLOOR_DRAWS, Place

Cell = dict[str, Any]
Progress = Callable[[int, int, str], None]
BOOTSTRAPPED_SEED = 0  # intervals over test nodes are drawn at this seed only; the spread over seeds is in the tables
DIGITS = 7  # of stored probabilities
KEYS = ("method", "dataset", "label_rate", "seed", "measures", "numbers", "seconds", "probability")


def cell_path(out: Path, place: Place, method: str) -> Path:
    """Returns where a cell is stored."""
    return out / "cells" / place.dataset / str(place.label_rate) / str(place.seed) / f"{method}.json"


def compute_cell(context: Context, method: str) -> Cell:
    """Runs a method at one place and measures it on the test nodes.

    Args:
        context: the place with what is already computed there.
        method: name of the method.

    Returns:
        The cell: what was run by which version, measures with noise floors, further numbers, seconds, test nodes'
        P(rare).
    """
    started = time.perf_counter()
    probabilities, numbers = METHODS[method].run(context)
    seconds = time.perf_counter() - started
    labels = context.y[context.split.test]
    place = context.place
    measures = calibration_report(labels, probabilities, n_draws=N_FLOOR_DRAWS, seed=place.seed)
    cell: Cell = {
        "method": method,
        "dataset": place.dataset,
        "label_rate": place.label_rate,
        "seed": place.seed,
        "split": context.split.name,
        "version": __version__,
        "measures": measures,
        "numbers": numbers,
        "seconds": seconds,
        "probability": [round(p, DIGITS) for p in probabilities[:, 1].tolist()],
    }
    if place.seed == BOOTSTRAPPED_SEED:
        cell["intervals"] = _intervals(probabilities, labels)
    return cell


def _intervals(probabilities: torch.Tensor, labels: torch.Tensor) -> dict[str, list[float]]:
    measures = {"ace_minority": lambda y, p: class_ace(y, p, 1), "macro_ace": macro_ace, "ece": ece}
    return {
        name: list(bootstrap_interval(f, labels, probabilities, n_draws=N_BOOTSTRAP_DRAWS, stratify=True))
        for name, f in measures.items()
    }


def individual_path(out: Path, place: Place) -> Path:
    """Returns where a place's jackknife is stored."""
    return cell_path(out, place, "uncalibrated").with_name("individual.json")


def read_individual(out: Path, place: Place) -> Individual | None:
    """Returns a place's jackknife (`individual`); None where it was not run."""
    path = individual_path(out, place)
    return read_cell(path, NODES) if path.is_file() else None


def read_cell(path: Path, keys: Iterable[str]) -> Cell:
    """Returns what `write_cell` wrote.

    Args:
        path: the file.
        keys: what it must hold.

    Returns:
        The cell.

    Raises:
        InputError: the file is damaged.
    """
    return read_json(path, keys, "a cell that `calirare paper` wrote")


def write_cell(path: Path, cell: Cell) -> None:
    """Writes a cell at once or not at all."""
    write_json(path, cell)


def missing(out: Path, place: Place, methods: Iterable[str]) -> list[str]:
    """Returns the methods not yet run at a place."""
    return [method for method in methods if not cell_path(out, place, method).is_file()]


def run_place(out: Path, place: Place, methods: list[str]) -> list[str]:
    """Runs the given methods at a place, one thread; returns their names."""
    torch.set_num_threads(1)
    context = Context(place)
    if not individual_path(out, place).is_file():
        write_cell(individual_path(out, place), individual(context))
    for method in methods:
        write_cell(cell_path(out, place, method), compute_cell(context, method))
    return methods


def run_cells(out: Path, places: list[Place], methods: Iterable[str], jobs: int, progress: Progress) -> None:
    """Runs every missing cell, places in parallel.

    Args:
        out: folder of the run.
        places: where to run.
        methods: names of the methods.
        jobs: processes.
        progress: called with cells done, cells in all, and what was done last.
    """
    names = list(methods)
    work = [(place, missing(out, place, names)) for place in places]
    total = len(places) * len(names)
    done = total - sum(len(left) for _, left in work)
    progress(done, total, "found")
    work = [(place, left) for place, left in work if left or not individual_path(out, place).is_file()]
    for place, finished in _finished(out, work, jobs):
        done += len(finished)
        progress(done, total, f"{place.dataset}, label rate {place.label_rate}, seed {place.seed}")


def _finished(out: Path, work: list[tuple[Place, list[str]]], jobs: int) -> Iterator[tuple[Place, list[str]]]:
    if jobs == 1:
        for place, left in work:
            yield place, run_place(out, place, left)
        return
    with workers(jobs) as pool:
        futures = {pool.submit(run_place, out, place, left): place for place, left in work}
        for future in as_completed(futures):
            yield futures[future], future.result()


def read_cells(out: Path, places: Iterable[Place], methods: Iterable[str]) -> list[Cell]:
    """Returns the cells that are there, without their probabilities but with EICE and their network's coverage.

    Args:
        out: folder of the run.
        places: which places.
        methods: which methods.

    Returns:
        The cells.
    """
    names, cells = list(methods), []
    for place in places:
        found = read_individual(out, place)
        for method in names:
            path = cell_path(out, place, method)
            if path.is_file():
                cell = read_cell(path, KEYS)
                probability = torch.tensor(cell.pop("probability"), dtype=torch.float64)
                if found is not None:
                    trains_on = METHODS[method].trains_on
                    cell["measures"] |= eice_measures(found, trains_on, probability)
                    cell["intervals_of_network"] = {k: found[trains_on][k] for k in ("coverage", "width")}
                cells.append(cell)
    return cells


def read_probability(out: Path, place: Place, method: str) -> torch.Tensor:
    """Returns P(rare) of the test nodes, float64 [n], of a cell that was run."""
    cell = read_cell(cell_path(out, place, method), ("probability",))
    return torch.tensor(cell["probability"], dtype=torch.float64)
