"""What the lines say together: means and spreads over splits, and whether the bars are met."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from detection.cells import MEASURES, METHODS, TRUTH
from detection.ours import RECIPES
from detection.peers import CALIBRATED
from detection.sets import SETS
from detection.tasks import REGIMES

NUMBERS = (*MEASURES, "mean_p", "prevalence", "labels", "rare_labels", "test", "cpu_s")
BEHIND = 0.01  # most that our mean AUPRC may be below the best peer's, on any set and regime
Row = dict[str, Any]
Groups = dict[tuple[str, str, str], dict[int, Row]]  # set, regime and method: a line per split


def summary(rows: Iterable[Row]) -> dict[str, Any]:
    """Returns one entry per set, regime and method, and one per bar and recipe of ours.

    Of two lines for one place the later counts, but for its seconds: the smaller number is the one that other programs
    on the machine disturbed less.
    """
    groups: Groups = {}
    for row in rows:
        group = groups.setdefault((row["set"], row["regime"], row["method"]), {})
        before = group.get(row["split"], row)
        group[row["split"]] = row | {"cpu_s": min(before["cpu_s"], row["cpu_s"])}
    keys = [(s, r, m) for s in SETS for r in REGIMES for m in METHODS if (s, r, m) in groups]
    cells = [entry(key, list(groups[key].values())) for key in keys]
    return {"cells": cells, "bars": {recipe: bars(cells, groups, recipe) for recipe in RECIPES}}


def entry(key: tuple[str, str, str], rows: list[Row]) -> dict[str, Any]:
    found = {"set": key[0], "regime": key[1], "method": key[2], "splits": len(rows)}
    for name in NUMBERS:
        values = [row[name] for row in rows]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        found[name] = {"mean": round(statistics.mean(values), 5), "std": round(spread, 5)}
    return found | {"commits": sorted({row["commit"] for row in rows})}


def bars(cells: list[dict[str, Any]], groups: Groups, recipe: str) -> Row:
    """Returns how a recipe stands to every peer on each set and regime, on the splits on which both ran."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        by_place.setdefault((cell["set"], cell["regime"]), []).append(cell["method"])
    places = [place for place, methods in by_place.items() if recipe in methods]
    lost, sharp = [], []
    for place in places:
        peers = [m for m in by_place[place] if m not in RECIPES and m != TRUTH]
        behind = {}
        for m in (m for m in peers if not m.endswith(CALIBRATED)):
            theirs, ours = shared(groups, place, (m, recipe), "auprc")
            behind[m] = theirs - ours
        best = max(behind, key=behind.__getitem__, default=None)
        if best is not None and behind[best] > BEHIND:
            lost.append({"set": place[0], "regime": place[1], "peer": best, "behind": round(behind[best], 4)})
        calibrated = [m for m in peers if m.endswith(CALIBRATED)]
        if calibrated:
            pairs = {k: [shared(groups, place, (m, recipe), k) for m in calibrated] for k in ("brier", "nll")}
            below = {k: all(ours < theirs for theirs, ours in each) for k, each in pairs.items()}
            sharp.append({"set": place[0], "regime": place[1]} | below)
    return {"places": len(places), "means": means(groups, places, recipe), "lost": lost, "probabilities": sharp}


def shared(groups: Groups, place: tuple[str, str], methods: tuple[str, str], name: str) -> tuple[float, float]:
    """Returns the mean of a number by each of two methods over the splits on which both ran; NaN where there is none.

    Splits differ by more than detectors: a mean over one split says nothing beside another over three.
    """
    first, second = (groups[(*place, method)] for method in methods)
    splits = sorted(first.keys() & second.keys())
    if not splits:
        return math.nan, math.nan
    return tuple(statistics.mean(rows[i][name] for i in splits) for rows in (first, second))  # type: ignore[return-value]


def means(groups: Groups, places: list[tuple[str, str]], recipe: str) -> Row:
    """Returns each peer's mean AUPRC over the places and splits where it and the recipe ran, and ours there."""
    found = {}
    for method in METHODS:
        if method in RECIPES or method.endswith(CALIBRATED) or method == TRUTH:
            continue
        pairs = [shared(groups, p, (method, recipe), "auprc") for p in places if (*p, method) in groups]
        pairs = [pair for pair in pairs if not math.isnan(pair[0])]
        if not pairs:
            continue
        theirs, ours = (statistics.mean(values) for values in zip(*pairs, strict=True))
        found[method] = {"places": len(pairs), "peer": round(theirs, 4), "ours": round(ours, 4)}
    return found
