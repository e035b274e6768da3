"""A saved run of many classes on fresh labels: whether its P(class) holds there, and its maps fitted on them anew."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from calirare._util.amounts import amount, listed
from calirare._util.brief import brief
from calirare._util.errors import InputError, cut
from calirare._util.files import parse_json, read_text
from calirare._util.output import fresh_files, fresh_folder
from calirare._util.run_files import RECALIBRATION, check_as_written, listed_files
from calirare._util.torch_state import plain_torch
from calirare.calibration import (
    Calibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    Target,
    cross_fitted_probabilities,
)
from calirare.drift import Drift, Reference
from calirare.graph import Graph, find_name, same_but_labels
from calirare.metrics import brier, nll
from calirare.models import acquainted
from calirare.run.class_judging import RAW, Judged
from calirare.run.folder import CONFIG, LABELS, MODEL, SavedRun, write_json
from calirare.run.model_file import write_model
from calirare.run.outcome import Outcome
from calirare.run.scoring import Say, to_stderr
from calirare.run.summary import WIDTH

LOG = "log.txt"
OF_DETECTOR = ("graph", "agreement", "choice")  # of metrics.json: what a map does not change
LEAST, CLASSES_LEAST = 2, 2  # labels, and classes among them
NAME = 24  # characters of a class in the summary


@dataclass(frozen=True, eq=False)
class RecalibratedClasses:
    """What fresh labels say of a run of many classes, and the run with maps fitted on them.

    Attributes:
        run: with new maps; graphs are held against the fresh one from now on. The detector is the old one.
        graph: name of the fresh graph.
        y: the fresh labels, int64 [m].
        nodes: of the run's own graph, whose labels they are, int64 [m]; None: they are another graph's.
        before: P of each fresh label by the population's map as it was, float64 [m, k].
        after: before calibration ("raw") and for each target, by new maps without the label, each float64 [m, k].
        drift: how the fresh graph differs from the run's own.
        notes: sentences a user should read.
    """

    run: SavedRun
    graph: str
    y: Tensor
    nodes: Tensor | None
    before: Tensor
    after: dict[str, Tensor]
    drift: Drift
    notes: tuple[str, ...] = ()

    __repr__ = brief

    def measures(self) -> dict[str, dict[str, Any]]:
        """Returns log loss, Brier score, accuracy and mean P of each class, of the fresh labels before and after."""
        names, out = self.run.class_names, dict[str, dict[str, Any]]()
        for side, p in (("before", self.before), ("after", self.after["population"])):
            out[side] = {
                "log_loss": float(nll(self.y, p)),
                "brier": float(brier(self.y, p)),
                "accuracy": float((p.argmax(1) == self.y).double().mean()),
                "mean_p": dict(zip(names, p.mean(0).tolist(), strict=True)),
            }
        return out

    def summary(self, width: int = WIDTH) -> str:
        """Returns a few lines for a person."""
        told, names = self.measures(), self.run.class_names
        was, now = told["before"], told["after"]
        head = f"{'class':<{NAME}} {'labels':>8} {'share':>8} {'P before':>9} {'P after':>9}"
        lines = [f"{amount(len(self.y), 'fresh label')} of {amount(len(names), 'class', 'classes')}", head]
        for name, n in zip(names, self._counts(), strict=True):
            means = f"{was['mean_p'][name]:>9.4f} {now['mean_p'][name]:>9.4f}"
            lines.append(f"{cut(name, NAME):<{NAME}} {n:>8,} {n / len(self.y):>8.4f} {means}")
        for key, label in (("log_loss", "log loss"), ("brier", "Brier score"), ("accuracy", "accuracy")):
            lines.append(f"{label:<{NAME + 18}} {was[key]:>9.4f} {now[key]:>9.4f}")
        said = ["P: its mean over the fresh labels; after: each label by maps without it", *self._warnings()]
        return "\n".join([*lines, *(row for each in said for row in textwrap.wrap(each, width))]) + "\n"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""
        counts = self._counts()
        names, m = self.run.class_names, len(self.y)
        return {
            "task": "classes",
            "graph": self.graph,
            "own_graph": self.nodes is not None,
            "labels": m,
            "labels_of": dict(zip(names, counts, strict=True)),
            "shares": {name: n / m for name, n in zip(names, counts, strict=True)},
            **self.measures(),
            "drift": self.drift.to_mapping(),
        }

    def save(self, path: str | Path, *, graph: Graph | None = None, overwrite: bool = False) -> list[Path]:
        """Writes the run into a folder of its own; returns its files.

        Args:
            path: the folder.
            graph: the run's own (`SavedRun.graph`); None: there are no tables and pictures in the folder, which
                scores graphs all the same.
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

    def replace(self, graph: Graph) -> list[Path]:
        """Puts the new maps and all that follows from them into the run's own folder; returns the files written.

        Args:
            graph: the run's own (`SavedRun.graph`).

        Raises:
            InputError: a file cannot be written.
        """
        with fresh_files(self.run.folder, f"recalibrate: {self.run.folder}", own=True) as folder:
            self._write(folder, graph)
            names = sorted(each.name for each in folder.iterdir())
        return [self.run.folder / name for name in names]

    def outcome(self, graph: Graph) -> Outcome:
        """Returns the run's own graph under the new maps.

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

    def _warnings(self) -> Iterator[str]:
        told = self.measures()
        if told["after"]["log_loss"] > told["before"]["log_loss"]:
            yield "note: the new maps do not do better on labels they have not seen: the old ones may be kept"
        yield from (f"note: {note}" for note in self.notes)
        if self.drift.verdict != "ok":
            yield f"drift: {self.drift.sentence}"

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
            f"the maps were fitted anew on {m} of {whose} (calirare recalibrate): what other notes say of the labels "
            "that calibrate is of the training"
        )
        facts = {"graph": self.graph, "labels": len(self.y), "own_graph": self.nodes is not None}
        kept = {name: old[name] for name in OF_DETECTOR if name in old}
        notes = list(dict.fromkeys([anew, *self.notes, *old.get("notes", ())]))
        return outcome.metrics | kept | {"notes": notes, "recalibrated": facts}


def _metrics_of(folder: Path) -> dict[str, Any]:
    """Returns metrics.json of a run; of one that was recalibrated where its graph was gone, which has none, nothing.

    Raises:
        InputError: it is missing or damaged.
    """
    listed = listed_files(folder) or {}
    if RECALIBRATION in listed and "metrics.json" not in listed:
        return {}
    check_as_written(folder, ("metrics.json",))
    return cast(dict[str, Any], parse_json(read_text(folder / "metrics.json")))


@plain_torch()
def recalibrated_classes(saved: SavedRun, graph: Graph, say: Say = to_stderr) -> RecalibratedClasses:
    """Returns a run with its maps fitted on the labels of a graph, and what these say of it before and after.

    The new maps are of the kind that the training fitted, with the same priors; the detector stays as it is.

    Args:
        saved: with a map.
        graph: with labels drawn at random: they stand for its population. Classes go by their names, and some may have
            no label. In the run's own graph, which may have got more labels, those that trained are left out.
        say: takes notes.

    Raises:
        InputError: the run has no map, a label is none of its classes, or labels of two classes that it has not seen
            are missing.
    """
    scorer, names = saved.scorer, saved.class_names
    if not scorer.calibrators:
        raise InputError(
            f"recalibrate: run {saved.folder} has no map, its method is {saved.settings.method}: train with method "
            "jackknife or ts"
        )
    graph = _named_as(graph.to("cpu"), names)
    prepared, own = scorer.prepared(graph, say), same_but_labels(graph, saved.fingerprint)
    trained = scorer.fit.nodes.cpu()
    nodes, y = _labelled(prepared, names, trained if own else trained[:0])
    if own:
        told = amount(len(trained), "label")
        say(f"note: this is the graph the run was trained on: the {told} that trained are left out")
    logits = acquainted(scorer.fit, prepared, say).logits_of(prepared).double()
    fresh, old = logits[nodes], scorer.calibrators
    after = {RAW: torch.softmax(fresh, 1)} | {str(t): cross_fitted_probabilities(c, fresh, y) for t, c in old.items()}
    maps: dict[Target, Calibrator] = {t: type(c)(**c.get_params()).fit(fresh, y) for t, c in old.items()}
    nobody = torch.empty(0, dtype=torch.int64)
    reference = Reference.of(graph, scorer.features, torch.zeros(graph.n_nodes), nobody)
    new = dataclasses.replace(scorer, calibrators=maps, reference=reference)
    return RecalibratedClasses(
        dataclasses.replace(saved, scorer=new),
        graph.name,
        y,
        nodes if own else None,
        old["population"].transform(fresh),
        after,
        scorer.reference.compare(graph, scorer.features, torch.zeros(graph.n_nodes)),
        tuple(dict.fromkeys(_notes(maps, y, names))),
    )


def _named_as(graph: Graph, names: Sequence[str]) -> Graph:
    """Returns a graph whose labels are numbers of a run's classes, which go by their names.

    Raises:
        InputError: a label is none of them.
    """
    if graph.y is None:
        return graph
    places = [find_name(name, names) for name in graph.class_names]
    found = torch.bincount(graph.y[graph.y >= 0], minlength=graph.n_classes)
    every = zip(graph.class_names, found.tolist(), places, strict=True)
    strange = [name for name, n, place in every if n and place is None]
    if strange:
        shown = ", ".join(repr(name) for name in names[:6]) + (", .." if len(names) > 6 else "")
        raise InputError(
            f"recalibrate: graph {graph.name!r}: labels must be of the run's classes {shown}, got {strange[0]!r}: mend "
            "or remove such labels"
        )
    numbers = torch.tensor([-1 if place is None else place for place in places] + [-1], dtype=torch.int64)
    return dataclasses.replace(graph, y=numbers[graph.y], split=None, class_names=tuple(names), trusted=True)


def _labelled(graph: Graph, names: Sequence[str], seen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the labelled nodes that have not been seen, and their labels.

    Raises:
        InputError: there are none of two classes.
    """
    nodes = torch.empty(0, dtype=torch.int64) if graph.y is None else (graph.y >= 0).nonzero().flatten()
    nodes = nodes[~torch.isin(nodes, seen)]
    y = nodes if graph.y is None else graph.y[nodes]
    n = int(y.unique().numel())
    if len(y) < LEAST or n < CLASSES_LEAST:
        raise InputError(
            f"recalibrate: graph {graph.name!r} must have labels of two of the {len(names)} classes at least that the "
            f"run has not seen, got {amount(len(y), 'label')} of {amount(n, 'class', 'classes')}: add labels"
        )
    return nodes, y


def _notes(maps: dict[Target, Calibrator], y: Tensor, names: Sequence[str]) -> Iterator[str]:
    """Yields what fresh labels leave to be known of the maps."""
    there = torch.bincount(y, minlength=len(names))
    none = [name for name, n in zip(names, there.tolist(), strict=True) if not n]
    if none and any(isinstance(each, PriorPlattCalibrator) for each in maps.values()):
        shown = listed(none[:4]) + (", .." if len(none) > 4 else "")
        yield f"no fresh label is of {shown}: how common that is is told by the prior alone"
    yield from (each.note_ for each in maps.values() if isinstance(each, JackknifeCalibrator) and each.note_)
