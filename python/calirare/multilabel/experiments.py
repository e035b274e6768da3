"""The document's experiment on open data: cross-entropy, focal loss and CMLCC on four sets, ten seeds each."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import PUBLISHED, load_multilabel
from .evaluate import calibration_measures, multilabel_report, noise_floor
from .training import BETAS, TrainOptions, choose_beta, fit_temperature, train_network

SEEDS = tuple(range(10))
METHODS = ("bce", "bce_temperature", "focal", "cmlcc")
FLOORED = ("copula", "copula_threshold", "marginal_ece")  # measures cheap enough to simulate their noise floor
FLOOR_DRAWS = 10
HAMMING_LIMIT = 1.02
Cell = dict[str, Any]


def run_cell(name: str, seed: int, *, root: str | Path | None = None, options: TrainOptions | None = None) -> Cell:
    """Trains every method on one set with one seed and measures it on the publisher's test rows.

    The seed draws the validation rows, the weights and the batches, alike for each method. Betas and temperature are
    chosen on the validation rows; test rows are read once, by the measures.

    Args:
        name: a published set, or the path of an `.npz`.
        seed: see above.
        root: where the published sets are.
        options: of the training; loss, beta and seed are set here.

    Returns:
        {"data", "seed", "rows", "labels", "methods": method -> measures, "beta", "betas", "within_slack",
        "temperature", "epochs"}, ready for JSON.
    """
    data = load_multilabel(name, root=root, seed=seed).standardised()
    options = dataclasses.replace(options or TrainOptions(), seed=seed)
    base = train_network(data, dataclasses.replace(options, loss="bce"))
    focal = train_network(data, dataclasses.replace(options, loss="focal"))
    choice = choose_beta(data, options, betas=BETAS, baseline=base)
    val, val_labels = data.part("val")
    temperature = fit_temperature(base.logits(data, val), val_labels)
    test, labels = data.part("test")
    scores = {
        "bce": base.scores(data, test),
        "bce_temperature": (base.logits(data, test) / temperature).sigmoid(),
        "focal": focal.scores(data, test),
        "cmlcc": choice.model.scores(data, test),
    }
    return {
        "data": data.name,
        "seed": seed,
        "rows": len(test),
        "labels": data.n_labels,
        "methods": {method: _measure(f, labels, seed) for method, f in scores.items()},
        "beta": choice.beta,
        "within_slack": choice.within_slack,
        "betas": {str(beta): {"copula": error, "hamming_loss": wrong} for beta, (error, wrong) in choice.table.items()},
        "temperature": temperature,
        "epochs": {"bce": base.best_epoch, "focal": focal.best_epoch, "cmlcc": choice.model.best_epoch},
    }


def _measure(scores: Tensor, labels: Tensor, seed: int) -> dict[str, float]:
    report = multilabel_report(scores, labels)
    measures = calibration_measures(len(scores))
    for name in FLOORED:
        report[f"{name}_floor"], _ = noise_floor(measures[name], scores, repeats=FLOOR_DRAWS, seed=seed)
    return report


def run_experiments(
    folder: str | Path,
    *,
    sets: Iterable[str] = PUBLISHED,
    seeds: Iterable[int] = SEEDS,
    root: str | Path | None = None,
    options: TrainOptions | None = None,
    jobs: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Runs every cell that is not there yet; each is a file `<set>_<seed>.json`, so that a stopped study goes on.

    Args:
        folder: where the cells are; made if need be.
        sets: published sets.
        seeds: of the cells.
        root: where the published sets are.
        options: of the training.
        jobs: processes, each with one thread.
        progress: called with a line after each cell.

    Returns:
        All cells, sets in the order given.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(name, seed) for seed in seeds for name in sets]
    missing = [key for key in wanted if not _path(folder, *key).is_file()]
    tell = progress or (lambda line: None)
    if jobs == 1:
        for name, seed in missing:
            _run_and_save(folder, name, seed, root, options)
            tell(f"{name}, seed {seed}: done")
    else:
        with ProcessPoolExecutor(jobs) as pool:
            work = {pool.submit(_run_and_save, folder, *key, root, options): key for key in missing}
            for done in as_completed(work):
                done.result()
                tell("{}, seed {}: done".format(*work[done]))
    cells = [json.loads(_path(folder, *key).read_text(encoding="utf-8")) for key in wanted]
    return sorted(cells, key=lambda cell: (list(sets).index(cell["data"]), cell["seed"]))


def _path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}_{seed}.json"


def _run_and_save(folder: Path, name: str, seed: int, root: str | Path | None, options: TrainOptions | None) -> None:
    torch.set_num_threads(1)
    path = _path(folder, name, seed)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(run_cell(name, seed, root=root, options=options), indent=1, sort_keys=True) + "\n")
    os.replace(partial, path)


def summarise(cells: list[Cell]) -> dict[str, Any]:
    """Returns means and deviations per set and method, and what CMLCC did against cross-entropy.

    Args:
        cells: of `run_experiments`.

    Returns:
        {"sets": set -> {"methods": method -> measure -> [mean, sd], "cmlcc_against_bce": measure -> paired
        difference, "betas": beta -> count, "hamming_ratio", "passes"}, "sets_passed"}. A set passes where CMLCC's mean
        canonical error ("copula") is below that of cross-entropy and its mean Hamming loss is at most
        1.02 times as large.
    """
    sets: dict[str, Any] = {}
    for name in dict.fromkeys(cell["data"] for cell in cells):
        own = [cell for cell in cells if cell["data"] == name]
        values = {
            method: {key: np.array([cell["methods"][method][key] for cell in own]) for key in own[0]["methods"][method]}
            for method in METHODS
        }
        against = {key: _paired(values["cmlcc"][key] - values["bce"][key]) for key in values["bce"]}
        ratio = float(values["cmlcc"]["hamming_loss"].mean() / values["bce"]["hamming_loss"].mean())
        chosen = [str(cell["beta"]) for cell in own]
        sets[name] = {
            "seeds": len(own),
            "methods": {
                method: {
                    key: [float(v.mean()), float(v.std(ddof=1)) if len(v) > 1 else 0.0] for key, v in table.items()
                }
                for method, table in values.items()
            },
            "cmlcc_against_bce": against,
            "betas": {beta: chosen.count(beta) for beta in sorted(set(chosen), key=float)},
            "hamming_ratio": ratio,
            "passes": against["copula"]["mean"] < 0 and ratio <= HAMMING_LIMIT,
        }
    return {"sets": sets, "sets_passed": sum(part["passes"] for part in sets.values())}


def _paired(difference: np.ndarray) -> dict[str, float]:
    """Returns mean difference, its 95 % half-width (Student t) and on how many seeds it is below zero."""
    n = len(difference)
    half = math.inf
    if n > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(n - 1, 0.975) * difference.std(ddof=1) / math.sqrt(n))
    return {"mean": float(difference.mean()), "half_width": half, "below_zero": int((difference < 0).sum())}
