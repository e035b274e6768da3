"""Which library should grow the trees: LightGBM, XGBoost or scikit-learn, by accuracy, speed, size and storage.

    python benchmarks/bench_trees_library.py [--data DIR] [--splits 3] [--sets cora] [--time]

Each grows gradient boosting and a forest of randomised trees on hop columns `[x, M x, M^2 x, log(1 + degree)]` (M: mean
over neighbours; sparse text by its first 128 singular vectors), with the same number of rounds, leaves and trees, class
weights balanced. AUPRC of the rare class on labelled nodes that are left over, 5,000 at most; processor seconds
of a fit with one thread, and with --time seconds with one and two threads on one cell, the fastest of three. A library
that is not installed is left out. Writes benchmarks/results/trees_library.json, to whose cells each run adds its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import record
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics import average_precision_score

from calirare.datasets import load_dataset
from calirare.graph import Graph

SETS = {"sichuan": "fraud/sichuan.npz", "amazon_upu": "fraud/amazon_upu.npz", "cora": "cora", "facebook": "facebook"}
REGIMES = ("20 rare + 80 rest", "60 % labelled")
ROUNDS, RATE, LEAVES, TREES, SHARE = 100, 0.08, 15, 100, 0.5
JUDGED = 5000  # test nodes at most
TIMED = ("sichuan", "60 % labelled")


def hop_columns(graph: Graph) -> np.ndarray:
    """Returns [x, M x, M^2 x, log(1 + degree)], float32 [n, 3 d + 1]."""
    x = graph.x
    if hasattr(x, "indptr"):
        words = sparse.csr_array((x.values.numpy(), x.indices.numpy(), x.indptr.numpy()), shape=x.shape)
        x = TruncatedSVD(128, random_state=0).fit_transform(words).astype(np.float32)
    else:
        x = x.numpy()
    a = graph.adjacency
    indptr = a.indptr.numpy()
    degree = np.diff(indptr)
    weights = np.repeat(1 / np.maximum(degree, 1), degree).astype(np.float32)
    mean = sparse.csr_array((weights, a.indices.numpy(), indptr), shape=(a.n_rows, a.n_rows))
    once = mean @ x
    return np.hstack([x, once, mean @ once, np.log1p(degree)[:, None]]).astype(np.float32)


def labels_of(y: np.ndarray, regime: str, seed: int) -> np.ndarray:
    """Returns the labelled nodes of a split."""
    generator = np.random.default_rng(seed)
    if regime == REGIMES[0]:
        sizes = {1: 20, 0: 80}
        return np.concatenate([generator.permutation(np.flatnonzero(y == k))[:size] for k, size in sizes.items()])
    known = generator.permutation(np.flatnonzero(y >= 0))
    return known[: int(0.6 * known.size)]


def balanced(y: np.ndarray) -> np.ndarray:
    return (y.size / (2 * np.bincount(y, minlength=2)))[y]


def smallest_leaf(m: int) -> int:
    return int(np.clip(m // 100, 3, 20))


def lightgbm_boosting(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    settings = lightgbm_settings(seed, threads) | {
        "objective": "binary",
        "learning_rate": RATE,
        "num_leaves": LEAVES,
        "min_data_in_leaf": smallest_leaf(y.size),
        "min_sum_hessian_in_leaf": 1e-2,
        "lambda_l2": 1.0,
        "feature_fraction": SHARE,
    }
    return lightgbm_grown(settings, x, y, ROUNDS)


def lightgbm_forest(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    settings = lightgbm_settings(seed, threads) | {
        "objective": "regression",
        "boosting": "rf",
        "extra_trees": True,
        "bagging_freq": 1,
        "bagging_fraction": 0.8,
        "num_leaves": 255,
        "min_data_in_leaf": 2,
        "min_sum_hessian_in_leaf": 0.1,  # 0 and unequal weights: an empty leaf, an error
        "lambda_l2": 0.5,
        "feature_fraction": SHARE,
    }
    return lightgbm_grown(settings, x, y, TREES)


def lightgbm_settings(seed: int, threads: int) -> dict[str, Any]:
    return {"seed": seed, "num_threads": threads, "deterministic": True, "force_col_wise": True, "verbosity": -1}


def lightgbm_grown(settings: dict[str, Any], x: np.ndarray, y: np.ndarray, rounds: int) -> Callable[..., np.ndarray]:
    import lightgbm

    data = lightgbm.Dataset(x, y, weight=balanced(y), params=settings)
    return lightgbm.train(settings, data, rounds).predict


def xgboost_grown(settings: dict[str, Any], x: np.ndarray, y: np.ndarray, rounds: int) -> Callable[..., np.ndarray]:
    import xgboost

    data = xgboost.QuantileDMatrix(x, y, weight=balanced(y), nthread=settings["nthread"])
    model = xgboost.train(settings | {"objective": "binary:logistic", "tree_method": "hist"}, data, rounds)
    return model.inplace_predict


def xgboost_boosting(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    settings = {"seed": seed, "nthread": threads, "eta": RATE, "max_leaves": LEAVES, "max_depth": 0, "lambda": 1.0}
    settings |= {"grow_policy": "lossguide", "colsample_bytree": SHARE, "min_child_weight": smallest_leaf(y.size) / 4}
    return xgboost_grown(settings, x, y, ROUNDS)


def xgboost_forest(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    settings = {"seed": seed, "nthread": threads, "eta": 1.0, "max_depth": 0, "max_leaves": 255, "lambda": 0.5}
    settings |= {"grow_policy": "lossguide", "colsample_bytree": SHARE, "subsample": 0.8, "min_child_weight": 0.5}
    return xgboost_grown(settings | {"num_parallel_tree": TREES}, x, y, 1)


def sklearn_boosting(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        learning_rate=RATE,
        max_iter=ROUNDS,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=smallest_leaf(y.size),
        l2_regularization=1.0,
        max_features=SHARE,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(threads):
        model.fit(x, y, sample_weight=balanced(y))
    return lambda rows: model.decision_function(rows)


def sklearn_forest(x: np.ndarray, y: np.ndarray, seed: int, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.ensemble import ExtraTreesClassifier

    model = ExtraTreesClassifier(
        TREES, min_samples_leaf=2, max_features="sqrt", class_weight="balanced", random_state=seed, n_jobs=threads
    )
    model.fit(x, y)
    return lambda rows: model.predict_proba(rows)[:, 1]


LIBRARIES: dict[str, dict[str, Callable[..., Callable[[np.ndarray], np.ndarray]]]] = {
    "lightgbm": {"boosting": lightgbm_boosting, "forest": lightgbm_forest},
    "xgboost-cpu": {"boosting": xgboost_boosting, "forest": xgboost_forest},
    "scikit-learn": {"boosting": sklearn_boosting, "forest": sklearn_forest},
}
STORAGE = {
    "lightgbm": "text of its own (model_to_string), read by every later release",
    "xgboost-cpu": "JSON or UBJ of its own (save_raw), read by every later release",
    "scikit-learn": "pickle, or arrays of private classes",
}
MODULES = {"lightgbm": "lightgbm", "xgboost-cpu": "xgboost", "scikit-learn": "sklearn"}


def cells(names: list[str], data: Path, splits: int) -> Iterator[tuple[str, str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields set, regime, columns, labels and labelled nodes of each split."""
    for name in names:
        graph = load_dataset(data / SETS[name] if SETS[name].endswith(".npz") else SETS[name], split="random")
        assert graph.y is not None
        columns, y = hop_columns(graph), graph.y.numpy()
        for regime in REGIMES:
            for seed in range(splits):
                yield name, regime, columns, y, labels_of(y, regime, seed)


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def timed(grow: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Returns the seconds of one fit with one and two threads, the fastest of three."""
    return {
        f"{threads} threads": round(min(seconds(lambda t=threads: grow(x, y, 0, t)) for _ in range(3)), 3)
        for threads in (1, 2)
    }


def about(library: str) -> dict[str, Any]:
    """Returns version, installed size with the shared libraries it brings, and how it stores a model."""
    installed = distribution(library)
    files = [Path(str(installed.locate_file(file))) for file in installed.files or ()]
    size = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
    return {"version": installed.version, "installed_bytes": size, "storage": STORAGE[library]}


def kept() -> dict[str, Any]:
    """Returns the results of the last run, to which this one adds its cells, or replaces them."""
    path = record.RESULTS / "trees_library.json"
    return json.loads(path.read_text()) if path.exists() else {"results": {"cells": {}}}


def summary(rows: dict[str, Any], what: str) -> dict[str, float]:
    """Returns the mean over the cells of a measure, by library and kind."""
    found = [row[what] for row in rows.values() if what in row]
    return {key: round(statistics.mean(statistics.mean(row[key]) for row in found), 4) for key in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CALIRARE_DATA", "data")))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--time", action="store_true", help="seconds with one and two threads, on a quiet machine")
    arguments = parser.parse_args()
    there = [name for name in LIBRARIES if importlib.util.find_spec(MODULES[name]) is not None]
    growers = {f"{name} {kind}": grow for name in there for kind, grow in LIBRARIES[name].items()}
    results = kept()["results"] | {"libraries": {library: about(library) for library in there}}
    found: dict[str, Any] = {}
    for name, regime, columns, y, labelled in cells(arguments.sets, arguments.data, arguments.splits):
        test = np.setdiff1d(np.flatnonzero(y >= 0), labelled)
        test = np.random.default_rng(0).permutation(test)[:JUDGED]
        row = found.setdefault(f"{name}, {regime}", {"auprc": {}, "processor_seconds": {}})
        for key, grow in growers.items():
            begin = time.process_time()
            predict = grow(columns[labelled], y[labelled], 0, 1)
            row["processor_seconds"].setdefault(key, []).append(round(time.process_time() - begin, 3))
            score = float(average_precision_score(y[test], predict(columns[test])))
            row["auprc"].setdefault(key, []).append(round(score, 4))
        if arguments.time and (name, regime) == TIMED and "seconds" not in row:
            row["seconds"] = {key: timed(grow, columns[labelled], y[labelled]) for key, grow in growers.items()}
        means = {key: round(statistics.mean(scores), 3) for key, scores in row["auprc"].items()}
        print(f"{name}, {regime}: {means}", flush=True)
        results["cells"] |= found
        results |= {f"mean_{what}": summary(results["cells"], what) for what in ("auprc", "processor_seconds")}
        record.write("trees_library", results)
    print(results["mean_auprc"], results["mean_processor_seconds"], sep="\n")


if __name__ == "__main__":
    main()
