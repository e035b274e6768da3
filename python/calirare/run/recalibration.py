"""A saved run's calibrators fitted again on fresh labels, and what these say of its probabilities before and after."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calirare._util.amounts import amount, listed
from calirare._util.arrays import brief
from calirare._util.errors import InputError, cut
from calirare._util.output import fresh_files, fresh_folder
from calirare._util.run_files import RECALIBRATION
from calirare._util.torch_state import plain_torch
from calirare.calibration import (
    Calibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    Target,
    cross_fitted_probabilities,
)
from calirare.calibration.decisions import Labelled
from calirare.drift import Drift, Reference
from calirare.graph import Graph, find_name, same_but_labels
from calirare.leave_one_out import OwnLogits
from calirare.metrics import brier, nll
from calirare.models import match_nodes
from calirare.run.deciding import Decided, decided
from calirare.run.folder import CONFIG, HISTORY, LABELS, MODEL, SavedRun, write_json
from calirare.run.model_file import write_model
from calirare.run.probabilities import log_loss_change, p_rare
from calirare.run.scoring import Say, to_stderr
from calirare.run.summary import WIDTH
from calirare.run.verdict import Circumstances, Evidence, Source, Verdict, verdict_of

LOG = "log.txt"
NAME = 24  # characters of a class in the summary


@dataclass(frozen=True, eq=False)
class RareRecalibrated:
    """What fresh labels show of a rare class.

    Attributes:
        before: the verdict on the calibrators as they were.
        after: that on calibrators fitted on fresh labels, each label by one without it.
        thresholds: of the decision before and after.
        decision: what to expect in the fresh graph.
    """

    before: Verdict
    after: Verdict
    thresholds: tuple[float, float]
    decision: Decided


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """What fresh labels show of a run, and the run with calibrators fitted on them.

    Attributes:
        run: with new calibrators, and a new threshold where the decision's rule depends on them. Graphs are compared
            with the fresh one from now on, since its probabilities are right there. The detector is the old one.
        graph: name of the fresh graph.
        own_graph: whether it is the run's own.
        y: the fresh labels, with `with_own` those of the run too, int64 [m].
        before: P of each fresh label by the population's calibrator as it was, float64 [m, k].
        after: by a new one without the label, likewise.
        drift: how the fresh graph differs from the run's own.
        notes: sentences a user should read.
        rare: what they show of a rare class; None where every class is taken as it is.
        of_run: how many labels are those of the run.
    """

    run: SavedRun
    graph: str
    own_graph: bool
    y: Tensor
    before: Tensor
    after: Tensor
    drift: Drift
    notes: tuple[str, ...] = ()
    rare: RareRecalibrated | None = None
    of_run: int = 0

    __repr__ = brief

    @property
    def labels(self) -> int:
        """Number of fresh labels."""
        return len(self.y)

    @property
    def losses(self) -> tuple[float, float]:
        """Log loss of the fresh labels before and after."""
        return float(nll(self.y, self.before)), float(nll(self.y, self.after))

    @property
    def change(self) -> dict[str, Any]:
        """How the log loss of the fresh labels changed."""
        return log_loss_change(self.y, self.before, self.after)

    def measures(self) -> dict[str, dict[str, Any]]:
        """Returns log loss, Brier score, accuracy and mean P of each class, of the fresh labels before and after."""
        return {
            side: {
                "log_loss": float(nll(self.y, p)),
                "brier": float(brier(self.y, p)),
                "accuracy": float((p.argmax(1) == self.y).double().mean()),
                "mean_p": dict(zip(self.run.class_names, p.mean(0).tolist(), strict=True)),
            }
            for side, p in (("before", self.before), ("after", self.after))
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns a few lines for a person."""
        first = [self.warning] if self.warning else []
        if self.rare is not None:
            return "\n".join([*first, *self._rare_lines(self.rare), *self._warnings()]) + "\n"
        was, now = self.measures().values()
        counts = self._counts()
        head = f"{'class':<{NAME}} {'labels':>8} {'rate':>8} {'P before':>9} {'P after':>9}"
        lines = [*first, f"{self._labels} of {amount(len(counts), 'class', 'classes')}", head]
        for name, n in counts.items():
            means = f"{was['mean_p'][name]:>9.4f} {now['mean_p'][name]:>9.4f}"
            lines.append(f"{cut(name, NAME):<{NAME}} {n:>8,} {n / self.labels:>8.4f} {means}")
        for key, label in (("log_loss", "log loss"), ("brier", "Brier score"), ("accuracy", "accuracy")):
            lines.append(f"{label:<{NAME + 18}} {was[key]:>9.4f} {now[key]:>9.4f}")
        notes = [
            self.change["sentence"],
            "P: mean over these labels; after: each label by a calibrator without it",
            *self._warnings(),
        ]
        return "\n".join([*lines, *(row for each in notes for row in textwrap.wrap(each, width))]) + "\n"

    @property
    def _labels(self) -> str:
        fresh = amount(self.labels - self.of_run, "fresh label")
        return f"{fresh} and {amount(self.of_run, 'label')} of the run" if self.of_run else fresh

    def _rare_lines(self, rare: RareRecalibrated) -> list[str]:
        (was, now), (old, new) = self.losses, rare.thresholds
        old_cut, cut = map(self.run.settings.decision.rule.cut, (old, new))
        kept = f"{cut}, as before" if old == new else f"{cut}, before {old_cut}"
        return [
            f"{self._labels}, {int(self.y.sum()):,} of them rare",
            f"before: {rare.before.sentence}; log loss {was:.4f}",
            f"after:  {rare.after.sentence}; log loss {now:.4f} (cross-fitted)",
            self.change["sentence"],
            f"threshold of the decision: {kept}",
        ]

    @property
    def warning(self) -> str:
        """That the log loss on unseen labels is clearly larger than before; empty where it is not."""
        (was, now), worse = self.losses, self.change["answer"] == "worse"
        return f"worse: log loss {now:.4f} on unseen labels, before {was:.4f}. Keep the old run" if worse else ""

    def _warnings(self) -> Iterator[str]:
        yield from (f"note: {note}" for note in self.notes)
        if self.drift.verdict != "ok":
            yield f"drift: {self.drift.sentence}"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""
        counts, sides = self._counts(), self.measures()
        facts: dict[str, Any] = {
            "warning": self.warning,
            "change": self.change,
            "graph": self.graph,
            "labels": self.labels,
            "labels_of_run": self.of_run,
            "drift": self.drift.to_mapping(),
            "own_graph": self.own_graph,
            "labels_of": counts,
            "shares": {name: n / self.labels for name, n in counts.items()},
        }
        if self.rare is None:
            return facts | {"task": "classes"} | sides
        checks = zip(sides.values(), (self.rare.before, self.rare.after), self.rare.thresholds, strict=True)
        for side, verdict, threshold in checks:
            side |= {"verdict": verdict.to_mapping(), "threshold": threshold}
        return facts | sides | {"decision": self.rare.decision.to_mapping()}

    def _counts(self) -> dict[str, int]:
        names = self.run.class_names
        return dict(zip(names, torch.bincount(self.y, minlength=len(names)).tolist(), strict=True))

    @plain_torch()
    def save(self, path: str | Path | None = None, *, overwrite: bool = False) -> list[Path]:
        """Writes the run into a folder of its own, without tables and pictures; returns the files written.

        Args:
            path: the folder; None: the run's own, where the new calibrators replace the old ones and all else stays.
            overwrite: replace a run that is in the folder.

        Raises:
            InputError: the folder exists and must not be replaced, or cannot be written.
        """
        run, own = self.run, self.run.folder
        where = own if path is None else Path(path)
        with (
            fresh_files(own, f"recalibrate: {own}", own=True)
            if path is None
            else fresh_folder(where, overwrite=overwrite)
        ) as folder:
            for name in (CONFIG, LABELS, LOG, HISTORY) if path is not None else ():
                if (own / name).is_file():
                    (folder / name).write_bytes((own / name).read_bytes())
            write_model(run.scorer, run.split, run.fingerprint, run.held_out, folder / MODEL)
            write_json(self.to_mapping(), folder / RECALIBRATION)
            names = sorted(each.name for each in folder.iterdir())
        return [where / name for name in names]


@plain_torch()
def recalibrated(saved: SavedRun, graph: Graph, say: Say = to_stderr, *, with_own: bool = False) -> Recalibrated:
    """Returns a run with its calibrators fitted on the labels of a graph, and what these show before and after.

    The new calibrators are of the kind that the training fitted, with the same priors; the detector stays as it is.

    Args:
        saved: with calibrators; of a rare class with ones that have a prior.
        graph: with labels drawn at random: they stand for its population. With many classes these go by their names,
            and some may have no label. In the run's own graph, which may have got more labels, those that trained are
            left out.
        say: takes notes.
        with_own: labels that calibrated calibrate again, by logits without them; a label of the run's own graph may be
            another there.

    Raises:
        InputError: the run has other calibrators or none, a label is none of its classes, or labels of two classes that
            it has not seen are missing.
    """
    scorer, many, graph = saved.scorer, saved.settings.many, graph.to("cpu")
    if fault := without_calibrators(saved):
        raise InputError(fault)
    if many:
        graph = _by_class_name(graph, saved.class_names)
    prepared, own = scorer.prepared(graph, say), same_but_labels(graph, saved.fingerprint)
    trained = scorer.fit.nodes.cpu()
    logits = match_nodes(scorer.fit, prepared, say).logits_of(prepared).double()
    seen = _own_labels(saved, prepared if own else None) if with_own else (logits[:0], trained[:0])
    nodes, y = _labelled(prepared, saved, trained if own else trained[:0], seen[1])
    if own and not with_own:
        n = amount(len(trained), "label")
        say(f"note: this is the graph the run was trained on: the {n} that trained are left out")
    fresh, old = torch.cat([logits[nodes], seen[0]]), scorer.calibrators
    maps: dict[Target, Calibrator] = {
        t: (type(c) if many else PriorPlattCalibrator)(**c.get_params()).fit(fresh, y) for t, c in old.items()
    }
    before, after = old["population"].transform(fresh), cross_fitted_probabilities(old["population"], fresh, y)
    if len(seen[1]) > 1:  # the old calibrators have seen these
        before[len(nodes) :] = cross_fitted_probabilities(old["population"], *seen)
    rare, threshold, verdict, notes = None, scorer.threshold, scorer.verdict, tuple[str, ...]()
    # Of a rare class a reference holds P(rare) of every node.
    p, new_p, place = torch.zeros(len(logits)), torch.zeros(len(logits)), torch.arange(0)
    if many:
        notes = tuple(dict.fromkeys(_notes(maps, y, saved.class_names)))
    else:
        known = Labelled(after[:, 1].cpu().numpy(), y.cpu().numpy())
        decision = decided(scorer.settings.decision, prepared, logits, maps, known, int(y.sum()))
        source: Source = "out-of-fold predictions" if with_own and own else "fresh labels"
        there = len(y) if own else len(nodes)  # labels of the run say little of another graph
        rows = (Evidence.of(source, y[:there].numpy(), p[:there, 1].numpy()) for p in (before, after))
        was, verdict = (verdict_of(each, Circumstances()) for each in rows)
        threshold = decision.threshold
        rare = RareRecalibrated(was, verdict, (scorer.threshold, threshold), decision)
        p, new_p, place = p_rare(logits, old), p_rare(logits, maps), torch.arange(graph.n_nodes)
    later, compared = nodes if own and graph.time is not None else None, graph
    if later is not None:  # the oldest nodes have no past
        scored = torch.zeros(graph.n_nodes, dtype=torch.bool).index_fill(0, later, True)
        compared = dataclasses.replace(graph, y=None, original_y=None, scored=scored, split=None, trusted=True)
    drift = scorer.reference.compare(compared, scorer.features, p)
    reference = Reference.of(graph, scorer.features, new_p, place, later)
    new = dataclasses.replace(scorer, calibrators=maps, reference=reference, threshold=threshold, verdict=verdict)
    run, of_run = dataclasses.replace(saved, scorer=new), len(seen[1])
    return Recalibrated(run, graph.name, own, y, before, after, drift, notes, rare, of_run)


def _own_labels(saved: SavedRun, graph: Graph | None) -> tuple[Tensor, Tensor]:
    """Returns logits of the labels that calibrated a run by models without them, and the labels, as in its graph."""
    fitted, network, used = saved.fit, saved.fit.closed_form, saved.scorer.calibration_nodes
    if fitted.folded is not None:
        logits = fitted.folded.own_logits.double()
    else:
        assert network is not None
        logits = OwnLogits(network.linearisation)(saved.scorer.damping)
    y = fitted.targets.cpu() if graph is None or graph.y is None else graph.y[fitted.nodes]
    kept = torch.isfinite(logits).all(1) & (y >= 0)
    kept = kept if used is None else kept & used
    return logits[kept], y[kept]


def without_calibrators(saved: SavedRun) -> str:
    """Returns that a run has no calibrator, or of a rare class none with a prior, and what helps; else nothing."""
    maps = saved.scorer.calibrators
    prior = isinstance(maps.get("population"), PriorPlattCalibrator) and len(saved.class_names) == 2
    if bool(maps) if saved.settings.many else prior:
        return ""
    what = "calibrator" if saved.settings.many else "calibrator with a prior for two classes"
    return (
        f"recalibrate: run {saved.folder} has no {what}, it was trained with --method {saved.settings.method} "
        f"--map {saved.settings.calibration.map}: train with --method jackknife --map prior"
    )


def _by_class_name(graph: Graph, names: Sequence[str]) -> Graph:
    """Returns a graph whose labels are numbers of a run's classes, which go by their names."""
    if graph.y is None:
        return graph
    places = [find_name(name, names) for name in graph.class_names]
    found = torch.bincount(graph.y[graph.y >= 0], minlength=graph.n_classes)
    every = zip(graph.class_names, found.tolist(), places, strict=True)
    strange = [name for name, n, place in every if n and place is None]
    if strange:
        shown = ", ".join(repr(name) for name in names[:6]) + (", .." if len(names) > 6 else "")
        raise InputError(
            f"recalibrate: graph {graph.name!r}: labels must be of the run's classes {shown}, got {strange[0]!r}: fix "
            "or remove such labels"
        )
    numbers = torch.tensor([-1 if place is None else place for place in places] + [-1], dtype=torch.int64)
    return dataclasses.replace(graph, y=numbers[graph.y], split=None, class_names=tuple(names), trusted=True)


def _labelled(graph: Graph, saved: SavedRun, seen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the labelled nodes not seen, and their labels before some of the run, of two classes at least."""
    nodes = torch.empty(0, dtype=torch.int64) if graph.y is None else (graph.y >= 0).nonzero().flatten()
    nodes = nodes[~torch.isin(nodes, seen.to(nodes.device))]
    y = torch.cat([nodes if graph.y is None else graph.y[nodes], own])
    n = int(y.unique().numel())
    if n >= 2:
        return nodes, y
    got = f"{amount(len(y), 'label')} of {amount(n, 'class', 'classes')}"
    if seen.numel() and saved.settings.positive_only:
        raise InputError(
            f"recalibrate: graph {graph.name!r}: labels must be of nodes that did not train. Positive-only training "
            f"also used {seen.numel():,} random nodes without a label, which leaves {got}. Give another graph with "
            "labels (--graph), or train without --positive-only"
        )
    raise InputError(
        f"recalibrate: graph {graph.name!r} must have labels of at least two classes that the run has not seen, got "
        f"{got}: add labels"
    )


def _notes(maps: dict[Target, Calibrator], y: Tensor, names: Sequence[str]) -> Iterator[str]:
    """Yields what fresh labels leave open of the calibrators."""
    there = torch.bincount(y, minlength=len(names))
    none = [name for name, n in zip(names, there.tolist(), strict=True) if not n]
    if none and any(isinstance(each, PriorPlattCalibrator) for each in maps.values()):
        shown = listed(none[:4]) + (", .." if len(none) > 4 else "")
        yield f"no fresh label is {shown}: only the prior says how common that class is"
    yield from (each.note_ for each in maps.values() if isinstance(each, JackknifeCalibrator) and each.note_)
