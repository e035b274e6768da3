"""The document's experiment on open data: cross-entropy, focal loss and CMLCC on four sets, ten seeds each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.store import key_of, write_json
from calirare_lab.jobs import Store, read_json, workers
from calirare_multilabel import (
    TrainOptions,
    choose_beta,
    load_multilabel,
    multilabel_report,
    noise_floor,
    train_network,
)
from calirare_multilabel.data import PUBLISHED
from calirare_multilabel.evaluate import calibration_measures
from calirare_multilabel.training import BETAS, best_beta, fit_temperature

SEEDS = tuple(range(10))
METHODS = ("bce", "bce_temperature", "focal", "cmlcc", "cmlcc_per_seed")
FLOORED = ("copula", "copula_threshold", "marginal_ece")  # measures cheap enough to simulate their noise floor
FLOOR_DRAWS = 10
HAMMING_LIMIT = 1.02
Cell = dict[str, Any]


def run_cell(name: str, seed: int, *, root: str | Path | None = None, options: TrainOptions | None = None) -> Cell:
    """Trains every method on one set with one seed and measures it on the publisher's test rows.

    The seed draws the validation rows, the weights and the batches, alike for each method. The temperature is fitted
    on the validation rows. CMLCC is trained with every beta and each is measured; `summarise` chooses among them by
    what the validation rows say.

    Args:
        name: a published set, or the path of an `.npz`.
        seed: see above.
        root: where the published sets are.
        options: of the training; loss, beta and seed are set here.

    Returns:
        {"data", "seed", "rows", "labels", "test": model -> measures, "validation": beta -> [canonical error, Hamming
        loss], "temperature", "epochs"}, ready for JSON; the models are "bce", "bce_temperature", "focal" and "cmlcc_B"
        for each beta B.
    """
    data = load_multilabel(name, root=root, seed=seed).standardised()
    options = dataclasses.replace(options or TrainOptions(), seed=seed)
    base = train_network(data, dataclasses.replace(options, loss="bce"))
    focal = train_network(data, dataclasses.replace(options, loss="focal"))
    choice = choose_beta(data, options, betas=BETAS, baseline=base)
    val, val_labels = data.part("val")
    temperature = fit_temperature(base.logits(data, val), val_labels)
    test, labels = data.part("test")
    models = {"bce": base, "focal": focal} | {f"cmlcc_{beta:g}": model for beta, model in choice.models.items()}
    scores = {name: model.scores(data, test) for name, model in models.items()}
    scores["bce_temperature"] = (base.logits(data, test) / temperature).sigmoid()
    return {
        "data": data.name,
        "seed": seed,
        "rows": len(test),
        "labels": data.n_labels,
        "test": {name: _measure(f, labels, seed) for name, f in scores.items()},
        "validation": {f"{beta:g}": list(found) for beta, found in choice.table.items()},
        "temperature": temperature,
        "epochs": {name: model.best_epoch for name, model in models.items()},
    }


def _measure(scores: Tensor, labels: Tensor, seed: int) -> dict[str, float]:
    report = multilabel_report(labels, scores)
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

    Raises:
        InputError: the folder holds cells of another training, or a damaged one.
    """
    chosen = options or TrainOptions()
    store = Store(Path(folder), key_of(str(chosen)), "a cell of the experiments", "training")
    wanted = [(name, seed) for seed in seeds for name in sets]
    missing = [key for key in wanted if not store.has(_file(*key))]
    tell = progress or (lambda line: None)
    if jobs == 1:
        for name, seed in missing:
            _run_and_save(store, name, seed, root, chosen)
            tell(f"{name}, seed {seed}: done")
    else:
        with workers(jobs) as pool:
            work = {pool.submit(_run_and_save, store, *key, root, chosen): key for key in missing}
            for done in as_completed(work):
                done.result()
                tell("{}, seed {}: done".format(*work[done]))
    cells = [read_json(store.path(_file(*key)), ("data", "seed", "test"), store.wrote) for key in wanted]
    return sorted(cells, key=lambda cell: (list(sets).index(cell["data"]), cell["seed"]))


def _file(name: str, seed: int) -> str:
    return f"{name}_{seed}.json"


def _run_and_save(store: Store, name: str, seed: int, root: str | Path | None, options: TrainOptions) -> None:
    torch.set_num_threads(1)
    write_json(store.path(_file(name, seed)), run_cell(name, seed, root=root, options=options))


def summarise(cells: list[Cell]) -> dict[str, Any]:
    """Returns means and deviations per set and method, and what CMLCC did against cross-entropy.

    Beta is chosen by validation rows in two ways (`best_beta`): "cmlcc" takes one beta for a set, by the canonical
    error and the Hamming loss averaged over the seeds' validation rows (repeated hold-out); "cmlcc_per_seed" lets each
    seed's few validation rows choose for that seed. Neither reads a test row.

    Args:
        cells: of `run_experiments`.

    Returns:
        {"sets": set -> {"seeds", "methods": method -> measure -> [mean, sd], "against_bce": method -> {"paired":
        measure -> difference, "hamming_ratio", "passes"}, "beta", "betas_per_seed": beta -> count}, "sets_passed":
        method -> count}. A method passes on a set where its mean canonical error ("copula") is below that of
        cross-entropy and its mean Hamming loss is at most 1.02 times as large.
    """
    sets = {}
    for name in dict.fromkeys(cell["data"] for cell in cells):
        sets[name] = _summarise_set([cell for cell in cells if cell["data"] == name])
    passed = {
        method: sum(part["against_bce"][method]["passes"] for part in sets.values())
        for method in ("cmlcc", "cmlcc_per_seed")
    }
    return {"sets": sets, "sets_passed": passed}


def _summarise_set(cells: list[Cell]) -> dict[str, Any]:
    tables = [{float(beta): tuple(found) for beta, found in cell["validation"].items()} for cell in cells]
    pooled = {beta: tuple(np.mean([table[beta] for table in tables], axis=0)) for beta in tables[0]}
    beta, within = best_beta(pooled)
    own = [best_beta(table)[0] for table in tables]
    rows = {method: [cell["test"][method] for cell in cells] for method in ("bce", "bce_temperature", "focal")}
    rows["cmlcc"] = [cell["test"][f"cmlcc_{beta:g}"] for cell in cells]
    rows["cmlcc_per_seed"] = [cell["test"][f"cmlcc_{b:g}"] for cell, b in zip(cells, own, strict=True)]
    values = {m: {key: np.array([row[key] for row in table]) for key in table[0]} for m, table in rows.items()}
    return {
        "seeds": len(cells),
        "methods": {m: {key: _mean_and_deviation(v) for key, v in table.items()} for m, table in values.items()},
        "against_bce": {m: _against(table, values["bce"]) for m, table in values.items() if m != "bce"},
        "beta": beta,
        "beta_within_slack": within,
        "betas_per_seed": {f"{b:g}": own.count(b) for b in sorted(set(own))},
    }


def _mean_and_deviation(values: np.ndarray) -> list[float]:
    return [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]


def _against(table: dict[str, np.ndarray], base: dict[str, np.ndarray]) -> dict[str, Any]:
    paired = {key: _paired(table[key] - base[key]) for key in base}
    ratio = float(table["hamming_loss"].mean() / base["hamming_loss"].mean())
    return {
        "paired": paired,
        "hamming_ratio": ratio,
        "passes": paired["copula"]["mean"] < 0 and ratio <= HAMMING_LIMIT,
    }


def _paired(difference: np.ndarray) -> dict[str, float]:
    """Returns mean difference, its 95 % half-width (Student t) and on how many seeds it is below zero."""
    n = len(difference)
    half = math.inf
    if n > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(n - 1, 0.975) * difference.std(ddof=1) / math.sqrt(n))
    return {"mean": float(difference.mean()), "half_width": half, "below_zero": int((difference < 0).sum())}
