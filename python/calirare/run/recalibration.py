"""A saved run on fresh labels: whether its P(rare) holds there, and its maps fitted on them anew."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.brief import brief
from calirare._util.errors import InputError
from calirare._util.output import fresh_files, fresh_folder
from calirare._util.run_files import RECALIBRATION
from calirare.calibration import NO_DOUBT, PriorPlattCalibrator, Target, cross_fitted_probabilities
from calirare.calibration.decisions import Labelled
from calirare.drift import Drift, Reference
from calirare.graph import Graph, same_but_labels
from calirare.metrics import PopulationCheck, population_check
from calirare.models import acquainted
from calirare.run.deciding import Decided, decided
from calirare.run.folder import CONFIG, LABELS, MODEL, SavedRun, write_json
from calirare.run.model_file import write_model
from calirare.run.probabilities import p_rare
from calirare.run.scoring import Say, to_stderr


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """What fresh labels say of a run, and the run with maps fitted on them.

    Attributes:
        run: with new maps, and a new threshold where the decision's rule depends on them; graphs are held against the
            fresh one from now on, since P(rare) is right there. Nothing else is new.
        graph: name of the fresh graph.
        labels: number of fresh labels.
        before: mean P(rare) over the share observed, by the maps as they were.
        after: the same by maps fitted on fresh labels, each label by one without it.
        losses: log loss of the fresh labels before and after.
        thresholds: of the decision before and after.
        decision: what to expect in the fresh graph.
        drift: how it differs from the run's own.
    """

    run: SavedRun
    graph: str
    labels: int
    before: PopulationCheck
    after: PopulationCheck
    losses: tuple[float, float]
    thresholds: tuple[float, float]
    decision: Decided
    drift: Drift

    __repr__ = brief

    def summary(self) -> str:
        """Returns a few lines for a person."""
        (was, now), (old, new) = self.losses, self.thresholds
        kept = f"as it was, {old:.3g}" if old == new else f"{new:.3g}, it was {old:.3g}"
        lines = [
            f"{amount(self.labels, 'fresh label')}, {self.before.events:,} of them rare",
            f"before: {self.before.verdict}: {self.before.sentence}; log loss {was:.4f}",
            f"after:  {self.after.verdict}: {self.after.sentence}; log loss {now:.4f} (each label by a map without it)",
            f"threshold of the decision: {kept}",
        ]
        if now > was:
            lines.append("note: the new map does not do better on labels it has not seen: the old one may be kept")
        if self.drift.verdict != "ok":
            lines.append(f"drift: {self.drift.sentence}")
        return "\n".join(lines) + "\n"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""

        def told(check: PopulationCheck) -> dict[str, Any]:
            return check.numbers() | {"verdict": check.verdict, "sentence": check.sentence}

        return {
            "graph": self.graph,
            "labels": self.labels,
            "before": told(self.before) | {"log_loss": self.losses[0], "threshold": self.thresholds[0]},
            "after": told(self.after) | {"log_loss": self.losses[1], "threshold": self.thresholds[1]},
            "decision": self.decision.to_mapping(),
            "drift": self.drift.to_mapping(),
        }

    def save(self, path: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Writes the run into a folder of its own that scores graphs as the old one; returns its files.

        Args:
            path: the folder.
            overwrite: replace a run that is there.

        Raises:
            InputError: the folder exists and must not be replaced, or cannot be written.
        """
        path = Path(path)
        with fresh_folder(path, overwrite=overwrite) as folder:
            kept = [name for name in (CONFIG, LABELS) if (self.run.folder / name).is_file()]
            for name in kept:
                (folder / name).write_bytes((self.run.folder / name).read_bytes())
            self._write(folder)
        return [path / name for name in (*kept, MODEL, RECALIBRATION)]

    def replace(self) -> list[Path]:
        """Puts the new maps into the run's own folder, where all else stays; returns the files written.

        Raises:
            InputError: a file cannot be written.
        """
        with fresh_files(self.run.folder, f"recalibrate: {self.run.folder}", own=True) as folder:
            self._write(folder)
        return [self.run.folder / name for name in (MODEL, RECALIBRATION)]

    def _write(self, folder: Path) -> None:
        run = self.run
        write_model(run.scorer, run.split, run.fingerprint, run.held_out, folder / MODEL)
        write_json(self.to_mapping(), folder / RECALIBRATION)


def recalibrated(run: SavedRun, graph: Graph, say: Say = to_stderr) -> Recalibrated:
    """Returns a run with its maps fitted on the labels of another graph, and what these say of it before and after.

    Args:
        run: with maps that have a prior, of two classes.
        graph: with labels drawn at random: they stand for its population. In the run's own graph, which may have got
            more labels, those that trained are left out.
        say: takes notes.

    Raises:
        InputError: the run has other maps, or there are no labels of both classes that it has not seen.
    """
    scorer, graph = run.scorer, graph.to("cpu")
    old = {target: each for target, each in scorer.calibrators.items() if isinstance(each, PriorPlattCalibrator)}
    if "population" not in old or len(scorer.class_names) != 2:
        raise InputError(
            "recalibrate: the run must be of two classes, method jackknife and map prior: train such a run"
        )
    prepared = scorer.prepared(graph, say)
    seen = scorer.fit.nodes.cpu() if same_but_labels(graph, run.fingerprint) else torch.empty(0, dtype=torch.int64)
    nodes, labels = _labelled(prepared, scorer.class_names[1], seen, scorer.settings.positive_only)
    if seen.numel():
        trained = amount(seen.numel(), "label")
        say(f"note: this is the graph the run was trained on: the {trained} that trained are left out")
    logits = acquainted(scorer.fit, prepared, say).logits_of(prepared).double()
    fresh = logits[nodes]
    before, own = p_rare(fresh, scorer.calibrators), cross_fitted_probabilities(old["population"], fresh, labels)[:, 1]
    maps: dict[Target, PriorPlattCalibrator] = {
        target: PriorPlattCalibrator(**each.get_params()).fit(fresh, labels) for target, each in old.items()
    }
    known = Labelled(own.cpu().numpy(), labels.cpu().numpy())
    decision = decided(scorer.settings.decision, prepared, logits, dict(maps), known, int(labels.sum()))
    now = p_rare(logits, dict(maps))
    new = dataclasses.replace(
        scorer,
        calibrators=dict(maps),
        threshold=decision.threshold,
        doubt=NO_DOUBT,
        reference=Reference.of(graph, scorer.features, now, torch.arange(graph.n_nodes)),
    )
    return Recalibrated(
        dataclasses.replace(run, scorer=new),
        graph.name,
        len(labels),
        population_check(labels, before),
        population_check(labels, own),
        (_log_loss(before, labels), _log_loss(own, labels)),
        (scorer.threshold, decision.threshold),
        decision,
        scorer.reference.compare(graph, scorer.features, p_rare(logits, scorer.calibrators)),
    )


def _labelled(graph: Graph, rare: str, seen: Tensor, drawn: bool) -> tuple[Tensor, Tensor]:
    """Returns the labelled nodes that have not been seen, and their labels.

    Args:
        graph: with labels.
        rare: name of the rare class.
        seen: nodes that trained, none in another graph than the run's own.
        drawn: whether nodes without a label were among those, as the rest.

    Raises:
        InputError: there are none of one of the classes.
    """
    nodes = torch.empty(0, dtype=torch.int64) if graph.y is None else (graph.y >= 0).nonzero().flatten()
    nodes = nodes[~torch.isin(nodes, seen.to(nodes.device))]
    labels = nodes if graph.y is None else graph.y[nodes]
    if not bool((labels == 1).any()) or not bool((labels == 0).any()):
        got = f"{amount(len(labels), 'label')}, {int((labels == 1).sum())} of them {rare!r}"
        if seen.numel() and drawn:
            raise InputError(
                f"recalibrate: graph {graph.name!r}: labels must be of nodes that did not train, but with labels "
                f"positive-only those without one did too, drawn at random ({seen.numel():,} in all), which leaves "
                f"{got}: give another graph's labels (--graph), or train with --labels all"
            )
        left = " (of nodes that did not train)" if seen.numel() else ""
        raise InputError(
            f"recalibrate: graph {graph.name!r} must have labels of {rare!r} and of other nodes that the run has not "
            f"seen, got {got}{left}: add labels"
        )
    return nodes, labels


def _log_loss(p: Tensor, labels: Tensor) -> float:
    tiny = torch.finfo(torch.float64).tiny
    return float(-torch.where(labels == 1, p, 1 - p).clamp(min=tiny).log().mean())
