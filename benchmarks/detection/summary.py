"""What the lines say together: means and spreads over splits, and whether the bars are met."""

from __future__ import annotations

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


def summary(rows: Iterable[Row]) -> dict[str, Any]:
    """Returns one entry per set, regime and method, and one per bar and recipe of ours.

    Of two lines for one place the later counts, but for its seconds: the smaller number is the one that other programs
    on the machine disturbed less.
    """
    groups: dict[tuple[str, str, str], dict[int, Row]] = {}
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


def bars(cells: list[dict[str, Any]], groups: dict[tuple[str, str, str], dict[int, Row]], recipe: str) -> Row:
    """Returns how a recipe stands to every peer on the sets and regimes where all have the same splits."""
    by_place: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for cell in cells:
        by_place.setdefault((cell["set"], cell["regime"]), {})[cell["method"]] = cell
    places = [place for place, methods in by_place.items() if recipe in methods]
    own = [by_place[place][recipe] for place in places]
    lost, sharp = [], []
    for place, mine in zip(places, own, strict=True):
        peers = {m: c for m, c in by_place[place].items() if m not in RECIPES and m != TRUTH}
        plain = {m: c for m, c in peers.items() if not m.endswith(CALIBRATED)}
        calibrated = [c for m, c in peers.items() if m.endswith(CALIBRATED)]
        if plain:
            best = max(plain, key=lambda m: plain[m]["auprc"]["mean"])
            behind = plain[best]["auprc"]["mean"] - mine["auprc"]["mean"]
            if behind > BEHIND:
                lost.append({"set": place[0], "regime": place[1], "peer": best, "behind": round(behind, 4)})
        if calibrated:
            below = {k: all(mine[k]["mean"] < c[k]["mean"] for c in calibrated) for k in ("brier", "nll")}
            sharp.append({"set": place[0], "regime": place[1]} | below)
    return {"places": len(places), "means": means(by_place, places, recipe), "lost": lost, "probabilities": sharp}


def means(by_place: dict[tuple[str, str], dict[str, Any]], places: list[tuple[str, str]], recipe: str) -> Row:
    """Returns each peer's mean AUPRC over the places where it and the recipe have results, with the recipe's there."""
    found = {}
    for method in METHODS:
        shared = [place for place in places if method in by_place[place]]
        if method in RECIPES or method.endswith(CALIBRATED) or method == TRUTH or not shared:
            continue
        both = [statistics.mean(by_place[place][m]["auprc"]["mean"] for place in shared) for m in (method, recipe)]
        found[method] = {"places": len(shared), "peer": round(both[0], 4), "ours": round(both[1], 4)}
    return found
