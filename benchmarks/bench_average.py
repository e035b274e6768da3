"""Other ways of averaging detectors than `auto` takes, and other members, on development sets.

    python benchmarks/bench_average.py [--regimes scarce shot forty] [--sets threshold ..]

None of the sets, classes or seeds is one of bench_detection.py, whose test nodes choose nothing. `auto` is trained once
on each set; every way makes another average of what its detectors say. "scarce" is 20 rare labels and 80 others,
"shot" and "forty" as in detection.tasks. Differences from `auto` are means over sets: AUPRC, NLL of the average with
classes of equal weight, and (of "shot" and "forty", whose labels tell the prevalence) Brier score and NLL of P(rare)
behind the map that every run has. Writes results/average.json, one entry per regime, and the table of
docs/research/detection.md; --page writes the table alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import record
import torch
from detection.columns import mean_of_neighbours
from detection.sets import named, npz, simulated
from detection.tasks import REGIMES, Draw, Task, draw
from multilabel_page import rule
from sklearn.metrics import average_precision_score
from torch import Tensor

import calirare
from calirare.calibration import PriorPlattCalibrator, effective_shares
from calirare.datasets import synthetic_rare
from calirare.models import HopColumns, Mixture, TreesTraining
from calirare.models import trees as tree_training
from calirare.models.mixture import SMALLEST_P, calibrated_probabilities, pooled_probabilities, stacking_weights
from calirare.models.tree_growth import settings_of

PAGE = record.ROOT / "docs" / "research" / "detection.md"
N_NODES, N_COLUMNS = 6000, 24
FORMER = {"lambda_l2": 1.0, "max_bin": 127}  # of boosted trees before their labels weighed alike; then classes did


def thresholds(seed: int) -> Task:
    """Heavy-tailed columns; what is rare follows thresholds of a node's own ranks and of its neighbours' means."""
    graph = synthetic_rare(N_NODES, seed=seed, n_features=N_COLUMNS, mean_degree=12.0, homophily=0.4, separation=0.0)
    rng = np.random.default_rng(seed)
    x = np.exp(rng.normal(size=(N_NODES, N_COLUMNS)) * rng.uniform(0.5, 2, N_COLUMNS)).astype(np.float32)
    r = x.argsort(0).argsort(0) / N_NODES
    near = mean_of_neighbours(graph) @ r
    score = 3.0 * ((r[:, 0] > 0.7) & (r[:, 1] < 0.4)) + 2.0 * ((r[:, 2] > 0.8) | (r[:, 3] < 0.1))
    score += 2 * r[:, 4] * (r[:, 5] > 0.5) + 20 * (near[:, 6] - 0.5) * (r[:, 7] > 0.3) + 1.5 * (near[:, 8] > 0.55)
    odds = 2 * (score - np.quantile(score, 0.93))
    y = torch.from_numpy((rng.random(N_NODES) < 1 / (1 + np.exp(-odds))).astype(np.int64))
    return Task(dataclasses.replace(graph, x=torch.from_numpy(x), y=y, posterior=None, name=f"thresholds {seed}"))


SETS: dict[str, Callable[[], Task]] = {
    "graph": partial(simulated, "g", 11, labels="posterior", separation=0.0, mean_degree=10.0, share=0.06),
    "blocks": partial(simulated, "b", 12, labels="block", separation=2.0, homophily=0.6, mean_degree=6.0, share=0.08),
    "noise": partial(simulated, "n", 13, labels="block", separation=3.0, homophily=0.0, mean_degree=10.0, share=0.05),
    "thresholds": partial(thresholds, 21),
    "thresholds, other seed": partial(thresholds, 22),
    "citeseer": partial(named, "citeseer"),
    "cora, class 0": partial(npz, "cora.npz", "cora, class 0", 0, "row"),
    "digits": partial(named, "digits"),
}


@dataclass(frozen=True)
class Said:
    """What one detector says, probabilities in a balanced world: of labels without each, of test nodes, by folds.

    NaN where it has nothing to say.
    """

    own: Tensor
    test: Tensor
    folds: Tensor | None = None

    @property
    def bagged(self) -> Tensor:
        """The mean of the detector on all labels and those without each fold."""
        return self.test if self.folds is None else torch.cat([self.test[None], self.folds]).nanmean(0)


Members = dict[str, Said]


class Cell:
    """`auto` on one draw, and the members that other averages are made of."""

    def __init__(self, drawn: Draw) -> None:
        outcome = calirare.train(drawn.seen, seed=drawn.seed)
        assert isinstance(outcome.fit, Mixture)
        self.fit, self.graph, self.drawn = outcome.fit, outcome.mapped, drawn
        self.targets, self.weights = self.fit.targets, self.fit.sample_weights.double()
        self.shares = effective_shares(self.targets, self.weights, 2)
        self.test = torch.from_numpy(drawn.test)
        self.members = {m.name: self.said(m.fitted, folds=True) for m in self.fit.members}

    def said(self, fitted: Any, folds: bool = False) -> Said:
        own = fitted.own_logits.double()
        heard = ~own.isnan().any(1)
        shares = effective_shares(self.targets, fitted.sample_weights, 2)
        mapping = PriorPlattCalibrator(target="balanced", trained_shares=shares)
        mapping.fit(own[heard], self.targets[heard])
        test, without = fitted.all_logits_of(self.graph, self.test)
        p = calibrated_probabilities(mapping, without.double().flatten(0, 1)).view(without.shape) if folds else None
        return Said(calibrated_probabilities(mapping, own), calibrated_probabilities(mapping, test.double()), p)

    def trees(self, hops: int, seed: int, weights: Tensor | None = None, **settings: Any) -> Said:
        """Returns what other boosted trees say; `weights`: of the labels, None: they weigh alike."""
        columns = HopColumns.fit(self.graph, hops, self.drawn.seed)
        detector = TreesTraining(folds=int(self.fit.fold.max()) + 1, seed=self.drawn.seed, columns=columns)
        given = settings | {"seed": self.drawn.seed + seed}
        with mock.patch.object(tree_training, "settings_of", lambda *a, **k: settings_of(*a, **k | given)):
            return self.said(detector.fit(self.graph, self.fit.nodes, sample_weights=weights))

    def average(self, members: Members, pseudo_labels: float = 4.0, bagged: tuple[str, ...] = ()) -> tuple[Tensor, ...]:
        """Returns the logarithms of the average, of labels and of test nodes: as `auto` makes it, or with a change."""
        right = torch.cat([m.own.gather(1, self.targets[:, None]) for m in members.values()], 1)
        right = torch.where(right.isnan(), right.nanmean(1, keepdim=True), right)
        weights = stacking_weights(right, self.weights / self.weights.mean(), pseudo_labels).tolist()
        test = [m.bagged if name in bagged else m.test for name, m in members.items()]
        pairs = ([m.own for m in members.values()], test)
        return tuple(pooled_probabilities(p, weights).clamp(min=SMALLEST_P).log() for p in pairs)

    def of_log_odds(self, members: Members) -> tuple[Tensor, ...]:
        """Returns the same of averaged logarithms, their weights by maximum likelihood under the same prior."""
        said = [torch.stack(p) for p in zip(*((m.own, m.test) for m in members.values()), strict=True)]
        pairs = [torch.where(p.isnan(), p.nanmean(0), p).clamp(min=SMALLEST_P).log() for p in said]
        free = torch.zeros(len(members), dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            logits = torch.einsum("j,jik->ik", free.softmax(0), pairs[0])
            losses = torch.nn.functional.cross_entropy(logits, self.targets, reduction="none")
            value = self.weights @ losses / self.weights.mean() - 4 / len(members) * free.log_softmax(0).sum()
            value.backward()
            return value

        optimiser.step(loss)  # type: ignore[arg-type]
        weights = free.detach().softmax(0)
        return tuple(torch.einsum("j,jik->ik", weights, p).log_softmax(1) for p in pairs)

    def ways(self) -> dict[str, tuple[Tensor, ...]]:
        """Returns every average, that of `auto` first."""
        now, trees = self.members, {"trees", "forest"}
        boosted = {
            "other seed": self.trees(2, 1),
            "random thresholds": self.trees(2, 0, extra_trees=True),
        }
        former = self.trees(2, 0, self.fit.sample_weights, **FORMER)
        alone = self.trees(0, 0)
        others = {f"trees with {name}": now | {"trees": said} for name, said in boosted.items()}
        return {
            "auto": self.average(now),
            "prior worth 12 labels": self.average(now, 12.0),
            "prior worth 1 label": self.average(now, 1.0),
            "with the folds' detectors": self.average(now, bagged=tuple(now)),
            "with the folds' trees": self.average(now, bagged=tuple(trees)),
            "of log-odds": self.of_log_odds(now),
            **{name: self.average(members) for name, members in others.items()},
            "trees as they were": self.average(now | {"trees": former}),
            "and trees without edges": self.average(now | {"trees, no edges": alone}),
            "without forest": self.average({name: m for name, m in now.items() if name != "forest"}),
            "trees alone": self.average({"trees": now["trees"]}),
            "trees alone, as they were": self.average({"trees": former}),
        }

    def measured(self, own: Tensor, test: Tensor, y: np.ndarray) -> dict[str, float]:
        """Returns the measures of an average at the test nodes, whose classes are y."""
        p, shares = test.softmax(1)[:, 1].numpy(), np.bincount(y) / len(y)
        losses = -test[np.arange(len(y)), y].numpy()
        found = {"auprc": average_precision_score(y, p), "balanced_nll": float((losses / shares[y]).mean() / 2)}
        assert self.drawn.seen.split is not None
        n_val = self.drawn.seen.split.val.numel()
        if n_val:
            spoken = PriorPlattCalibrator(trained_shares=self.shares, form_sd=0.5).fit(
                own[-n_val:], self.targets[-n_val:]
            )
            p = spoken.transform(test)[:, 1].numpy()
            found |= {"brier": float(((p - y) ** 2).mean()), "nll": float(-np.log(np.where(y == 1, p, 1 - p)).mean())}
        return found


def differences(cells: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Returns each way's mean difference from `auto` over sets, its standard error and on how many it is better."""
    out: dict[str, Any] = {
        "auto": {k: round(statistics.mean(c["auto"][k] for c in cells), 5) for k in cells[0]["auto"]}
    }
    for way in list(cells[0])[1:]:
        out[way] = {}
        for name in cells[0][way]:
            gaps = [c[way][name] - c["auto"][name] for c in cells]
            better = sum(gap > 0 if name == "auprc" else gap < 0 for gap in gaps)
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
            out[way][name] = [round(statistics.mean(gaps), 5), round(error, 5), better]
    return out


def table(results: dict[str, Any]) -> list[str]:
    """Returns the page's table: each way's differences from `auto`, mean and standard error."""
    words = {"auprc": "AUPRC", "nll": "NLL"}
    columns = [(regime, n) for regime in results for n in results[regime]["differences"]["auto"] if n in words]
    lines = ["| | " + " | ".join(f"{regime}, {words[name]}" for regime, name in columns) + " |", rule(1 + len(columns))]
    for way in list(dict.fromkeys(way for found in results.values() for way in found["differences"]))[1:]:
        found = [results[regime]["differences"].get(way, {}).get(name) for regime, name in columns]
        shown = ["" if each is None else f"{each[0]:+.4f} ± {each[1]:.4f}" for each in found]
        lines.append(f"| {way} | " + " | ".join(shown) + " |")
    return lines


def put_table() -> None:
    results = json.loads((record.RESULTS / "average.json").read_text(encoding="utf-8"))["results"]
    text = "\n".join(table(results))
    record.put_on_page(PAGE, "<!-- averages:begin -->", "<!-- averages:end -->", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        put_table()
        return
    path = record.RESULTS / "average.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else {}
    for regime in options.regimes:
        cells = {}
        for name in options.sets:
            task = SETS[name]()
            cell = Cell(draw(task, regime, 0))
            y = task.y[cell.drawn.test]
            cells[name] = {way: cell.measured(*pair, y) for way, pair in cell.ways().items()}
            print(regime, name, {way: round(found["auprc"], 4) for way, found in cells[name].items()}, flush=True)
        results[regime] = {"sets": list(cells), "differences": differences(list(cells.values()))}
        record.write("average", results)
    put_table()


if __name__ == "__main__":
    main()
