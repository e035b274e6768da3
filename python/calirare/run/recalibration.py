"""A saved run on fresh labels: what these say of its probabilities before and after, and the run with new maps."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.arrays import brief
from calirare._util.errors import cut
from calirare._util.files import parse_json, read_text
from calirare._util.output import fresh_files, fresh_folder
from calirare._util.run_files import RECALIBRATION, check_as_written, listed_files
from calirare._util.torch_state import plain_torch
from calirare.calibration import Target
from calirare.drift import Drift
from calirare.graph import Graph
from calirare.metrics import PopulationCheck, brier, nll
from calirare.run.deciding import Decided
from calirare.run.folder import CONFIG, LABELS, MODEL, SavedRun, write_json
from calirare.run.judging import RAW, Judged
from calirare.run.model_file import write_model
from calirare.run.outcome import Outcome
from calirare.run.summary import WIDTH

LOG = "log.txt"
OF_DETECTOR = ("graph", "agreement", "choice")  # of metrics.json: what a map does not change
NAME = 24  # characters of a class in the summary


@dataclass(frozen=True, eq=False)
class RareRecalibrated:
    """What fresh labels say of a rare class alone.

    Attributes:
        before: mean P(rare) over the share observed, by the maps as they were.
        after: the same by maps fitted on fresh labels, each label by one without it.
        thresholds: of the decision before and after.
        decision: what to expect in the fresh graph.
    """

    before: PopulationCheck
    after: PopulationCheck
    thresholds: tuple[float, float]
    decision: Decided


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """What fresh labels say of a run, and the run with maps fitted on them.

    Attributes:
        run: with new maps, and a new threshold where the decision's rule depends on them; graphs are held against the
            fresh one from now on, since its probabilities are right there. The detector is the old one.
        graph: name of the fresh graph.
        y: the fresh labels, int64 [m].
        nodes: of the run's own graph, whose labels they are, int64 [m]; None: they are another graph's.
        before: P of each fresh label by the population's map as it was, float64 [m, k].
        after: by new maps without the label, for the population and with many classes for each target and before
            calibration ("raw"), each float64 [m, k].
        drift: how the fresh graph differs from the run's own.
        notes: sentences a user should read.
        rare: what they say of a rare class; None where every class is taken as it is.
    """

    run: SavedRun
    graph: str
    y: Tensor
    nodes: Tensor | None
    before: Tensor
    after: dict[str, Tensor]
    drift: Drift
    notes: tuple[str, ...] = ()
    rare: RareRecalibrated | None = None

    __repr__ = brief

    @property
    def labels(self) -> int:
        """Number of fresh labels."""
        return len(self.y)

    @property
    def losses(self) -> tuple[float, float]:
        """Log loss of the fresh labels before and after."""
        return float(nll(self.y, self.before)), float(nll(self.y, self.after["population"]))

    def measures(self) -> dict[str, dict[str, Any]]:
        """Returns log loss, Brier score, accuracy and mean P of each class, of the fresh labels before and after."""
        names, out = self.run.class_names, dict[str, dict[str, Any]]()
        for side, p, loss in zip(
            ("before", "after"), (self.before, self.after["population"]), self.losses, strict=True
        ):
            out[side] = {
                "log_loss": loss,
                "brier": float(brier(self.y, p)),
                "accuracy": float((p.argmax(1) == self.y).double().mean()),
                "mean_p": dict(zip(names, p.mean(0).tolist(), strict=True)),
            }
        return out

    def summary(self, width: int = WIDTH) -> str:
        """Returns a few lines for a person."""
        if self.rare is not None:
            return "\n".join([*self._rare_lines(self.rare), *self._warnings()]) + "\n"
        told, names = self.measures(), self.run.class_names
        was, now = told["before"], told["after"]
        head = f"{'class':<{NAME}} {'labels':>8} {'share':>8} {'P before':>9} {'P after':>9}"
        lines = [f"{amount(len(self.y), 'fresh label')} of {amount(len(names), 'class', 'classes')}", head]
        for name, n in zip(names, self._counts(), strict=True):
            means = f"{was['mean_p'][name]:>9.4f} {now['mean_p'][name]:>9.4f}"
            lines.append(f"{cut(name, NAME):<{NAME}} {n:>8,} {n / len(self.y):>8.4f} {means}")
        for key, label in (("log_loss", "log loss"), ("brier", "Brier score"), ("accuracy", "accuracy")):
            lines.append(f"{label:<{NAME + 18}} {was[key]:>9.4f} {now[key]:>9.4f}")
        said = ["P: its mean over the fresh labels; after: cross-fitted", *self._warnings()]
        return "\n".join([*lines, *(row for each in said for row in textwrap.wrap(each, width))]) + "\n"

    def _rare_lines(self, rare: RareRecalibrated) -> list[str]:
        (was, now), (old, new) = self.losses, rare.thresholds
        kept = f"as it was, {old:.3g}" if old == new else f"{new:.3g}, it was {old:.3g}"
        return [
            f"{amount(self.labels, 'fresh label')}, {rare.before.events:,} of them rare",
            f"before: {rare.before.verdict}: {rare.before.sentence}; log loss {was:.4f}",
            f"after:  {rare.after.verdict}: {rare.after.sentence}; log loss {now:.4f} (cross-fitted)",
            f"threshold of the decision: {kept}",
        ]

    def _warnings(self) -> Iterator[str]:
        was, now = self.losses
        if now > was:
            yield "note: the new calibrators are not better on unseen labels: you may keep the old ones"
        yield from (f"note: {note}" for note in self.notes)
        if self.drift.verdict != "ok":
            yield f"drift: {self.drift.sentence}"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""
        counts, sides = dict(zip(self.run.class_names, self._counts(), strict=True)), self.measures()
        facts = {
            "graph": self.graph,
            "labels": self.labels,
            "drift": self.drift.to_mapping(),
            "own_graph": self.nodes is not None,
            "labels_of": counts,
            "shares": {name: n / self.labels for name, n in counts.items()},
        }
        if self.rare is None:
            return facts | {"task": "classes"} | sides
        checks = zip(sides, (self.rare.before, self.rare.after), self.rare.thresholds, strict=True)
        for side, check, threshold in checks:
            said = {"verdict": check.verdict, "sentence": check.sentence, "threshold": threshold}
            sides[side] |= check.numbers() | said
        return facts | sides | {"decision": self.rare.decision.to_mapping()}

    def save(self, path: str | Path, *, graph: Graph | None = None, overwrite: bool = False) -> list[Path]:
        """Writes the run into a folder of its own; returns its files.

        Args:
            path: the folder.
            graph: the run's own (`SavedRun.graph`), of many classes; None: there are no tables and pictures in the
                folder, which scores graphs all the same.
            overwrite: replace a run that is there.

        Raises:
            InputError: the folder exists and must not be replaced, or cannot be written.
        """
        path, old = Path(path), self.run.folder
        with fresh_folder(path, overwrite=overwrite) as folder:
            for name in (CONFIG, LABELS, LOG):
                if (old / name).is_file():
                    (folder / name).write_bytes((old / name).read_bytes())
            self._write(folder, graph)
            names = sorted(each.name for each in folder.iterdir())
        return [path / name for name in names]

    def replace(self, graph: Graph | None = None) -> list[Path]:
        """Puts the new maps into the run's own folder; returns the files written.

        Args:
            graph: the run's own (`SavedRun.graph`), of many classes, whose tables and pictures follow; None: all else
                stays.

        Raises:
            InputError: a file cannot be written.
        """
        with fresh_files(self.run.folder, f"recalibrate: {self.run.folder}", own=True) as folder:
            self._write(folder, graph)
            names = sorted(each.name for each in folder.iterdir())
        return [self.run.folder / name for name in names]

    def outcome(self, graph: Graph) -> Outcome:
        """Returns the run's own graph of many classes under the new maps.

        It is judged by its labelled test nodes that are not among the fresh labels; where there is none, or the labels
        are another graph's, by the fresh labels, each by maps without it.

        Args:
            graph: the run's own (`SavedRun.graph`).
        """
        run, own = self.run, self._with_labels(graph.to("cpu"))
        mapped, scorer = run.mapped(own), run.scorer
        logits = run.fit.logits_of(mapped)
        found = Outcome(own, run.settings, run.fit, logits, None, scorer.calibrators, None, None, mapped=mapped)
        found = dataclasses.replace(found, features=scorer.features, damping=scorer.damping)
        split, y = own.split, own.y
        assert split is not None
        assert y is not None
        if self.nodes is not None:
            left = split.test[(y[split.test] >= 0) & ~torch.isin(split.test, self.nodes)]
            if left.numel():
                targets: dict[str, Target | None] = {RAW: None} | {str(t): t for t in scorer.calibrators}
                p = {side: found.mapped_logits(logits[left], target) for side, target in targets.items()}
                return dataclasses.replace(found, judge=Judged("test", y[left], p))
        return dataclasses.replace(found, judge=Judged("fresh", self.y, self.after))

    def _with_labels(self, graph: Graph) -> Graph:
        """Returns the run's own graph with the fresh labels that are its own."""
        if self.nodes is None:
            return graph
        assert graph.y is not None
        return dataclasses.replace(graph, y=graph.y.index_copy(0, self.nodes, self.y), trusted=True)

    def _counts(self) -> list[int]:
        return [int(n) for n in torch.bincount(self.y, minlength=len(self.run.class_names))]

    @plain_torch()
    def _write(self, folder: Path, graph: Graph | None) -> None:
        run = self.run
        write_model(run.scorer, run.split, run.fingerprint, run.held_out, folder / MODEL)
        write_json(self.to_mapping(), folder / RECALIBRATION)
        if graph is not None:
            outcome = self.outcome(graph)
            outcome.write_tables(folder, self._metrics(outcome))

    def _metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Returns metrics.json: what the old one says of the detector, and measures of the new maps."""
        old = _metrics_of(self.run.folder)
        m, whose = amount(len(self.y), "fresh label"), "its own graph" if self.nodes is not None else self.graph
        anew = (
            f"the calibrators were fitted again on {m} of {whose} (calirare recalibrate): other notes on calibration "
            "labels are about the training"
        )
        facts = {"graph": self.graph, "labels": len(self.y), "own_graph": self.nodes is not None}
        kept = {name: old[name] for name in OF_DETECTOR if name in old}
        notes = list(dict.fromkeys([anew, *self.notes, *old.get("notes", ())]))
        return outcome.metrics | kept | {"notes": notes, "recalibrated": facts}


def _metrics_of(folder: Path) -> dict[str, Any]:
    """Returns metrics.json of a run; of one that was recalibrated where its graph was gone, which has none, nothing."""
    listed = listed_files(folder) or {}
    if RECALIBRATION in listed and "metrics.json" not in listed:
        return {}
    check_as_written(folder, ("metrics.json",))
    return cast(dict[str, Any], parse_json(read_text(folder / "metrics.json")))
