"""The two protocols of graph calibration, in numbers: splits, networks, how they are trained, bins.

GETS (Zhuang et al. 2025, "GETS: Ensemble Temperature Scaling for Calibration in Graph Neural Networks"): a random
split, 20 % train, 10 % validate, 70 % test, drawn anew for each of ten seeds; 200 epochs; 10 bins.

GATS (Hsu, Shen, Tomani and Cremers 2022, "What Makes Graph Neural Networks Miscalibrated?"): 15 % of each class in
three folds, of which two train and one validates, and 85 % of the others test; five such splits, each of the three
folds once in the place of validation, five initialisations; training is stopped by the validation nodes; 15 bins.

A third one is for choosing among maps, on graphs that are none of the record's: 400 labels train, 100 validate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from calirare.graph import Split
from calirare.models import GcnTraining
from calirare_lab.baselines import GatTraining
from calirare_lab.studies.record.networks import SingleAttentionTraining

NETWORKS = ("gcn", "gat")
CHOSEN = "auto"  # in the place of a network, where the detector is what `calirare train` takes by default
FOLD, FOLDS, TEST = 0.05, 3, 0.85  # GATS: share of a class in a fold, folds, share of the others that test
TRAIN, VAL = 0.2, 0.1  # GETS: shares of the labelled nodes; the rest is test
SPLITS, STARTS = 5, 5  # GATS: splits and initialisations
FEW = (400, 100)  # labels that train and validate where maps are chosen
STOPPED_AFTER = 2000  # GATS: epochs at most
ALMOST_NONE = 1e-6  # GATS trains Computers without weight decay; a leave-one-out formula needs some
Draw = Callable[[int], dict[str, int]]


@dataclass(frozen=True)
class Protocol:
    """How the cells of a record are made.

    Attributes:
        name: "gets" or "gats".
        bins: of every ECE.
        draws: number of draws of the full protocol; a draw is a split and a start of the network.
        draw: what a draw's number stands for, by name: split, fold (GATS alone) and start.
        split: the split of labels y [n] (-1: none) that a draw stands for.
        datasets: their names.
        stopped: whether validation nodes stop training; else every epoch is taken.
        largest: data sets of which the largest component is taken.
        scales: of the features by data set, see `FeatureMap`.
        gcn: settings of the graph convolution.
        gat: settings of the attention network.
        weight_decays: by data set, where they are others.
    """

    name: str
    bins: int
    draws: int
    draw: Draw
    split: Callable[[Tensor, dict[str, int]], Split]
    datasets: tuple[str, ...]
    stopped: bool
    gcn: GcnTraining
    gat: GatTraining
    largest: frozenset[str] = frozenset()
    scales: dict[str, str] = field(default_factory=dict)
    weight_decays: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """What is run at once: one network on one draw of one data set, and every map of one track.

    Attributes:
        dataset: of the protocol's.
        network: of `NETWORKS`, or `CHOSEN`.
        seed: the draw's number, from 0.
        track: of `TRACKS`.
    """

    dataset: str
    network: str
    seed: int
    track: str


def random_shares(y: Tensor, draw: dict[str, int]) -> Split:
    """Returns a random split of the labelled nodes: a fifth trains, a tenth validates, the rest is test."""
    order = _shuffled(y, draw)
    a, b = round(TRAIN * len(order)), round((TRAIN + VAL) * len(order))
    return Split(order[:a], order[a:b], order[b:], name=f"gets(seed={draw['split']})")


def few_labels(y: Tensor, draw: dict[str, int]) -> Split:
    """Returns a random split of the labelled nodes: 400 train, 100 validate, the rest is test."""
    order, (a, b) = _shuffled(y, draw), FEW
    return Split(order[:a], order[a : a + b], order[a + b :], name=f"few(seed={draw['split']})")


def _shuffled(y: Tensor, draw: dict[str, int]) -> Tensor:
    known = (y >= 0).nonzero().flatten().numpy()
    return torch.from_numpy(np.random.default_rng(draw["split"]).permutation(known))


def stratified_folds(y: Tensor, draw: dict[str, int]) -> Split:
    """Returns a split of GATS: of each class two folds train, one validates, and 85 % of its other nodes test."""
    generator = np.random.default_rng(draw["split"])
    folds, test = list[np.ndarray](), list[np.ndarray]()
    for k in range(int(y.max()) + 1):
        order = generator.permutation((y == k).nonzero().flatten().numpy())
        taken = int(FOLDS * FOLD * len(order) + 1e-9)  # .15 is a little less in binary
        folds.append(order[:taken])
        test.append(order[taken : taken + int(TEST * (len(order) - taken) + 1e-9)])
    drawn = torch.from_numpy(np.concatenate(folds))
    fold = torch.arange(len(drawn)) % FOLDS
    val = fold == draw["fold"]
    name = f"gats(split={draw['split']}, fold={draw['fold']})"
    return Split(drawn[~val], drawn[val], torch.from_numpy(np.concatenate(test)), name=name)


def _one_number(seed: int) -> dict[str, int]:
    return {"split": seed, "start": seed}


def _three_numbers(seed: int) -> dict[str, int]:
    """Returns split, fold and start of a draw: the first five have a split each, the first 15 a fold each."""
    return {"split": seed % SPLITS, "fold": seed // SPLITS % FOLDS, "start": seed // (SPLITS * FOLDS)}


RECORD = ("cora", "citeseer", "computers")
GETS_PROTOCOL = Protocol(
    "gets",
    bins=10,
    draws=10,
    draw=_one_number,
    split=random_shares,
    datasets=RECORD,
    stopped=False,
    gcn=GcnTraining(),
    gat=SingleAttentionTraining(learning_rate=0.01, hidden=16, heads=2, dropout=0.5),
    largest=frozenset({"computers"}),
    scales={"computers": "none"},
)
GATS_PROTOCOL = Protocol(
    "gats",
    bins=15,
    draws=SPLITS * FOLDS * STARTS,
    draw=_three_numbers,
    split=stratified_folds,
    datasets=RECORD,
    stopped=True,
    gcn=GcnTraining(hidden=64, epochs=STOPPED_AFTER),
    gat=GatTraining(learning_rate=0.01, dropout=0.5, epochs=STOPPED_AFTER),
    weight_decays={"computers": ALMOST_NONE},
)
RULES_PROTOCOL = replace(
    GETS_PROTOCOL,
    name="rules",
    draws=6,
    split=few_labels,
    datasets=("dblp", "facebook", "digits"),
    scales={"facebook": "none", "digits": "none"},
)
PROTOCOLS = {protocol.name: protocol for protocol in (GETS_PROTOCOL, GATS_PROTOCOL)}
