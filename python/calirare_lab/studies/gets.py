"""The protocol of GETS (Zhuang et al. 2025, "GETS: Ensemble Temperature Scaling for Calibration in Graph Neural Nets").

A graph convolution of two layers and 16 hidden units (dropout .5, 200 epochs of Adam at .01, weight decay 5e-4) on a
random split, 20 % train, 10 % validate, 70 % test, drawn anew for each seed. Judged on all test nodes: the ECE of the
predicted class in 10 equal-width bins and, because bins hide what they average, NLL and Brier score, which rank.

Track "frozen": trained on the training labels, every map fitted on the validation labels' logits. Track "peers": the
same network under CaGCN and GATS. Track "left-out": trained on training and validation labels, every map fitted on the
logits of all these labels, each from the model without itself; where these disagree with five-fold cross-validation
they are replaced by its logits, as `calirare train` does.

The rules were fixed before the first run: nothing here is chosen by test nodes.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import PriorPlattCalibrator, effective_shares, make_calibrator
from calirare.datasets import data_root, read_graph
from calirare.features import FeatureMap
from calirare.graph import Graph, Split
from calirare.leave_one_out import OwnLogits, choose_damping
from calirare.metrics import accuracy, brier, classwise_ece, ece, nll, noise_floor
from calirare.models import GcnFit, GcnTraining
from calirare.training import fold_of
from calirare_ext import Csr, __version__
from calirare_lab.baselines import GATS, CaGCN

TRAIN, VAL = 0.2, 0.1  # shares of the labelled nodes; the rest is test
BINS, DRAWS, FOLDS = 10, 50, 5
MAPS = ("temperature", "vector", "ets", "matrix", "prior-platt")
TRACKS = ("frozen", "peers", "left-out")
# File, and what becomes of the features: words by row, as published for citation graphs; Computers' as they are.
DATASETS = {"cora": "cora", "citeseer": "citeseer", "computers": "amazon_computers.npz"}
SCALES = {"cora": "row", "citeseer": "row", "computers": "none"}
MEASURES = ("nll", "brier", "ece", "ece_floor", "classwise_ece", "accuracy")
Progress = Callable[[str], None]


def load(dataset: str, seed: int) -> Graph:
    """Returns a data set's largest component (of Computers; the others whole) with mapped features and a fresh split.

    Raises:
        InputError: the data set is unknown or not there.
    """
    if dataset not in DATASETS:
        raise InputError(f"study gets: datasets must be among {', '.join(DATASETS)}, got {dataset!r}")
    name = DATASETS[dataset]
    graph, _ = read_graph(str(data_root() / name) if name.endswith(".npz") else name)
    if dataset == "computers":
        graph = largest_component(graph)
    assert graph.y is not None
    graph = graph.with_split(random_shares(graph.y, seed))
    assert graph.split is not None
    return FeatureMap.fit(graph, SCALES[dataset], nodes=graph.split.train).own(graph)  # type: ignore[arg-type]


def random_shares(y: Tensor, seed: int) -> Split:
    """Returns a random split of the labelled nodes: a fifth trains, a tenth validates, the rest is test."""
    known = (y >= 0).nonzero().flatten().numpy()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(known))
    a, b = round(TRAIN * len(order)), round((TRAIN + VAL) * len(order))
    return Split(order[:a], order[a:b], order[b:], name=f"gets(seed={seed})")


def largest_component(graph: Graph) -> Graph:
    """Returns the graph of the nodes in the largest connected component."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    a = graph.adjacency
    arrays = (a.values.numpy(), a.indices.numpy(), a.indptr.numpy())
    _, part = connected_components(csr_matrix(arrays, shape=a.shape), directed=False)
    kept = torch.from_numpy(np.flatnonzero(part == np.bincount(part).argmax()))
    place = torch.full((graph.n_nodes,), -1, dtype=torch.int64)
    place[kept] = torch.arange(kept.numel())
    rows = a.select_rows(kept)
    inside = Csr.from_coo(rows.rows(), place[rows.indices.long()], rows.values, (kept.numel(), kept.numel()))
    x = graph.x.select_rows(kept) if isinstance(graph.x, Csr) else graph.x[kept]
    assert graph.y is not None
    return dataclasses.replace(graph, adjacency=inside, x=x, y=graph.y[kept], split=None)


def run_cell(dataset: str, seed: int, track: str) -> list[dict[str, Any]]:
    """Returns a row of measures per map of one track, on one split of one data set."""
    graph = load(dataset, seed)
    split, y = graph.split, graph.y
    assert split is not None
    assert y is not None
    nodes = split.train if track != "left-out" else torch.cat([split.train, split.val])
    started = time.process_time()
    detector = GcnTraining(seed=seed)
    ones = torch.ones(nodes.numel())
    fitted = detector.fit(graph, nodes, sample_weights=ones)
    logits = fitted.logits_of(graph).double()
    facts: dict[str, Any] = {"dataset": dataset, "seed": seed, "track": track, "version": __version__}
    if track == "peers":
        found = {
            "cagcn": CaGCN(seed=seed).fit(graph, logits, split.val, y[split.val]).transform(logits),
            "gats": GATS(split.train, seed=seed).fit(graph, logits, split.val, y[split.val]).transform(logits),
        }
    else:
        known, labels = logits[split.val], y[split.val]
        if track == "left-out":
            known, labels = _left_out(fitted, graph, detector, facts), fitted.targets
        found = {"uncalibrated": torch.softmax(logits, 1)}
        for name in MAPS:
            made = make_calibrator(name)
            if isinstance(made, PriorPlattCalibrator):
                made = PriorPlattCalibrator(trained_shares=effective_shares(fitted.targets, None, graph.n_classes))
            found[name] = made.fit(known, labels).transform(logits)
    facts["cpu_seconds"] = round(time.process_time() - started, 1)
    return [facts | {"map": name} | _judge(y[split.test], p[split.test]) for name, p in found.items()]


def _left_out(fitted: GcnFit, graph: Graph, detector: GcnTraining, facts: dict[str, Any]) -> Tensor:
    """Returns each label's logits without it; the facts get the damping and the verdict."""
    ones = torch.ones_like(fitted.sample_weights)
    fold = fold_of(fitted.targets, FOLDS, detector.seed)
    _, held_out = detector.without_folds(graph, fitted.nodes, fold, ones)
    own = OwnLogits(fitted.linearisation)
    every = torch.ones(len(ones), dtype=torch.bool)
    agreement = choose_damping(own, fitted.weight_decay, held_out, every, ones)
    facts |= {"damping": agreement.damping, "verdict": agreement.verdict, "loo_nll": agreement.loo_at_weight_decay}
    facts["held_out_nll"] = agreement.held_out
    return held_out.double() if agreement.verdict == "do not trust" else own(agreement.damping)


def _judge(labels: Tensor, p: Tensor) -> dict[str, float]:
    """Returns every measure on the test nodes."""
    floor = noise_floor(lambda drawn, q: ece(drawn, q, BINS), p, n_draws=DRAWS)
    values = {
        "nll": nll(labels, p),
        "brier": brier(labels, p),
        "ece": ece(labels, p, BINS),
        "ece_floor": floor.mean,
        "classwise_ece": classwise_ece(labels, p, BINS),
        "accuracy": accuracy(labels.numpy(), p.argmax(1).numpy()),
    }
    return {name: round(float(value), 6) for name, value in values.items()}


def run(path: Path, datasets: Sequence[str], tracks: Sequence[str], seeds: int, progress: Progress) -> list[Path]:
    """Runs the cells that a file does not hold yet and adds each, a row per map, as it is done.

    Args:
        path: JSONL; what it holds is kept.
        datasets: of `DATASETS`.
        tracks: of `TRACKS`.
        seeds: 0 .. seeds - 1.
        progress: called with a line per cell.

    Returns:
        The path.

    Raises:
        InputError: a name is unknown, or the file cannot be read or written.
    """
    for what, names, known in (("datasets", datasets, DATASETS), ("tracks", tracks, TRACKS)):
        if unknown := [name for name in names if name not in known]:
            raise InputError(f"study gets: {what} must be among {', '.join(known)}, got {', '.join(unknown)}")
    there = {(row["dataset"], row["seed"], row["track"]) for row in read(path)}
    cells = [(d, seed, t) for seed in range(seeds) for d in datasets for t in tracks]
    for number, cell in enumerate(cells, 1):
        if cell in there:
            continue
        rows = run_cell(*cell)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        progress(f"{number}/{len(cells)} {cell[0]}, seed {cell[1]}, {cell[2]}: {rows[0]['cpu_seconds']} s")
    return [path]


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a results file; none where there is no file. An InputError names a line that is no row."""
    if not path.exists():
        return []
    rows = list[dict[str, Any]]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append({name: row[name] for name in ("dataset", "seed", "track", "map")} | row)
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f"study gets: line {number} of {path} is no row of results ({error}): delete it") from None
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Returns mean and standard deviation (n - 1) of each measure over seeds, by (data set, track, map)."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["track"], row["map"]), []).append(row)
    out: dict[tuple[str, str, str], dict[str, Any]] = {}
    for key, some in groups.items():
        out[key] = {"seeds": len({row["seed"] for row in some})}
        for name in MEASURES:
            values = np.array([row[name] for row in some])
            spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
            out[key][name] = (float(values.mean()), spread)
    return out
