"""Ours against the best rival of each cell of the calibration record, draw by draw.

Ours is one map, named before: Platt scaling with a prior and a slope for each class, on what a node and its neighbours
say; in track C, where a detector is
free, it is the default of `calirare train`, and every rival of track B on either network is one, on the draws that all
of them have. The rival is whichever has the lowest mean on the same draws, chosen anew for each measure: in the rival's
favour. Draws of one split have the same test nodes, so they count as one: their differences are averaged before the t
test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

from calirare_lab.studies.record import CHOSEN, DEFAULT, NETWORKS, OURS

RIVALS = ("temperature", "vector", "ets", "cagcn", "gats")
RANKED = ("nll", "brier", "ece")
# Track: where ours stands, and where its rivals do.
SIDES = {"A": ("frozen", ("frozen", "peers")), "B": ("folds", ("folds",))}
Rival = tuple[str, str]  # network, map
Values = dict[int, dict[str, Any]]  # rows by draw


def whole_draws(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of draws that the tracks of one table's side have, so that their means may be compared.

    By data set and network, for "frozen" and "peers"; a track that is not there at all takes no draw away.
    """
    seeds: dict[tuple[str, str, str], dict[str, set[int]]] = {}
    for row in rows:
        seeds.setdefault(_labels(row), {}).setdefault(row["track"], set()).add(row["seed"])
    whole = {cell: set.intersection(*tracks.values()) for cell, tracks in seeds.items()}
    return [row for row in rows if row["seed"] in whole[_labels(row)]]


def _labels(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["dataset"], row["network"], "frozen" if row["track"] == "peers" else row["track"]


def pairs(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a comparison for each data set, network, track and measure of which there are two draws or more."""
    found = list[dict[str, Any]]()
    for dataset, network in dict.fromkeys((row["dataset"], row["network"]) for row in rows):
        some = [row for row in rows if row["dataset"] == dataset]
        for track, ours, rivals in _sides(some, network):
            whole = {rival: values for rival, values in rivals.items() if ours and set(ours) <= set(values)}
            if len(ours) < 2 or not whole:
                continue
            where = {"dataset": dataset, "network": network, "track": track}
            found += [where | _compared(ours, whole, measure) for measure in RANKED]
    return found


def _sides(rows: Sequence[dict[str, Any]], network: str) -> Iterator[tuple[str, Values, dict[Rival, Values]]]:
    """Yields each track of a network with ours and its rivals, from the rows of one data set."""
    if network == CHOSEN:
        every = [(each, name) for each in NETWORKS for name in RIVALS]
        rivals = {(each, name): _by_draw(rows, each, ("folds",), name) for each, name in every}
        ours, run = _by_draw(rows, network, ("anything",), DEFAULT), [values for values in rivals.values() if values]
        yield "C", {seed: row for seed, row in ours.items() if all(seed in values for values in run)}, rivals
        return
    for track, (own, others) in SIDES.items():
        rivals = {(network, name): _by_draw(rows, network, others, name) for name in RIVALS}
        yield track, _by_draw(rows, network, (own,), OURS), rivals


def _by_draw(rows: Sequence[dict[str, Any]], network: str, tracks: Sequence[str], name: str) -> Values:
    some = [row for row in rows if (row["network"], row["map"]) == (network, name)]
    return {row["seed"]: row for row in some if row["track"] in tracks}


def _compared(ours: Values, rivals: dict[Rival, Values], measure: str) -> dict[str, Any]:
    """Returns the best rival's name, both means, their mean difference and what a paired t test says of it."""
    means = {name: float(np.mean([values[seed][measure] for seed in ours])) for name, values in rivals.items()}
    rival = min(means, key=means.__getitem__)
    by_split: dict[int, list[float]] = {}
    for seed, row in ours.items():
        by_split.setdefault(row["draw"]["split"], []).append(row[measure] - rivals[rival][seed][measure])
    units = [float(np.mean(values)) for values in by_split.values()]
    p = float(ttest_1samp(units, 0.0).pvalue) if len(units) > 1 else None
    mean = float(np.mean([row[measure] for row in ours.values()]))
    counts = {"seeds": len(ours), "units": len(units), "p": p}
    return {
        "measure": measure,
        "rival": rival[1],
        "rival_network": rival[0],
        "ours": mean,
        "theirs": means[rival],
        "difference": mean - means[rival],
    } | counts
