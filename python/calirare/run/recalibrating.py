"""A saved run's calibrators fitted again on fresh labels; the detector stays as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from calirare._util.amounts import amount, listed
from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.calibration import (
    NO_DOUBT,
    Calibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    Target,
    cross_fitted_probabilities,
)
from calirare.calibration.decisions import Labelled
from calirare.drift import Reference
from calirare.graph import Graph, find_name, same_but_labels
from calirare.metrics import population_check
from calirare.models import match_nodes
from calirare.run.deciding import decided
from calirare.run.folder import SavedRun
from calirare.run.judging import RAW
from calirare.run.probabilities import p_rare
from calirare.run.recalibration import RareRecalibrated, Recalibrated
from calirare.run.scoring import Say, to_stderr

LEAST, CLASSES_LEAST = 2, 2  # labels, and classes among them


@plain_torch()
def recalibrated(saved: SavedRun, graph: Graph, say: Say = to_stderr) -> Recalibrated:
    """Returns a run with its maps fitted on the labels of a graph, and what these say of it before and after.

    The new maps are of the kind that the training fitted, with the same priors; the detector stays as it is.

    Args:
        saved: with maps; of a rare class with maps that have a prior.
        graph: with labels drawn at random: they stand for its population. With many classes these go by their names,
            and some may have no label. In the run's own graph, which may have got more labels, those that trained are
            left out.
        say: takes notes.

    Raises:
        InputError: the run has other maps or none, a label is none of its classes, or labels of two classes that it
            has not seen are missing.
    """
    scorer, many, graph = saved.scorer, saved.settings.many, graph.to("cpu")
    _check_maps(saved)
    if many:
        graph = _by_class_name(graph, saved.class_names)
    prepared, own = scorer.prepared(graph, say), same_but_labels(graph, saved.fingerprint)
    trained = scorer.fit.nodes.cpu()
    nodes, y = _labelled(prepared, saved, trained if own else trained[:0])
    if own:
        n = amount(len(trained), "label")
        say(f"note: this is the graph the run was trained on: the {n} that trained are left out")
    logits = match_nodes(scorer.fit, prepared, say).logits_of(prepared).double()
    fresh, old = logits[nodes], scorer.calibrators
    maps: dict[Target, Calibrator] = {
        t: (type(c) if many else PriorPlattCalibrator)(**c.get_params()).fit(fresh, y) for t, c in old.items()
    }
    before = old["population"].transform(fresh)
    judging = old if many else {"population": old["population"]}
    after = {str(t): cross_fitted_probabilities(c, fresh, y) for t, c in judging.items()}
    rare, threshold = None, scorer.threshold
    if not many:
        own_p = after["population"][:, 1]
        known = Labelled(own_p.cpu().numpy(), y.cpu().numpy())
        decision = decided(scorer.settings.decision, prepared, logits, maps, known, int(y.sum()))
        checks = population_check(y, before[:, 1]), population_check(y, own_p)
        threshold = decision.threshold
        rare = RareRecalibrated(*checks, (scorer.threshold, threshold), decision)
    p, place = torch.zeros(len(logits)), torch.arange(0)  # of a rare class a reference holds P(rare) of every node
    drift = scorer.reference.compare(graph, scorer.features, p if many else p_rare(logits, old))
    if not many:
        p, place = p_rare(logits, maps), torch.arange(graph.n_nodes)
    reference = Reference.of(graph, scorer.features, p, place)
    new = dataclasses.replace(
        scorer,
        calibrators=maps,
        reference=reference,
        threshold=threshold,
        doubt=scorer.doubt if many else NO_DOUBT,
    )
    return Recalibrated(
        dataclasses.replace(saved, scorer=new),
        graph.name,
        y,
        nodes if own else None,
        before,
        after | ({RAW: torch.softmax(fresh, 1)} if many else {}),
        drift,
        tuple(dict.fromkeys(_notes(maps, y, saved.class_names))) if many else (),
        rare,
    )


def _check_maps(saved: SavedRun) -> None:
    """Raises an InputError where a run has no map, or of a rare class none with a prior."""
    maps = saved.scorer.calibrators
    if saved.settings.many and not maps:
        raise InputError(
            f"recalibrate: run {saved.folder} has no calibrator, its method is {saved.settings.method}: train with "
            "method jackknife or ts"
        )
    prior = isinstance(maps.get("population"), PriorPlattCalibrator) and len(saved.class_names) == 2
    if not saved.settings.many and not prior:
        raise InputError(
            "recalibrate: the run must be of two classes, method jackknife and map prior: train such a run"
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


def _labelled(graph: Graph, saved: SavedRun, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the labelled nodes that have not been seen, and their labels."""
    nodes = torch.empty(0, dtype=torch.int64) if graph.y is None else (graph.y >= 0).nonzero().flatten()
    nodes = nodes[~torch.isin(nodes, seen.to(nodes.device))]
    y, names = nodes if graph.y is None else graph.y[nodes], saved.class_names
    n = int(y.unique().numel())
    if len(y) >= LEAST and n >= CLASSES_LEAST:
        return nodes, y
    many, labels = saved.settings.many, amount(len(y), "label")
    got = (
        f"{labels} of {amount(n, 'class', 'classes')}"
        if many
        else f"{labels}, {int((y == 1).sum())} of them {names[1]!r}"
    )
    if seen.numel() and saved.settings.positive_only:
        raise InputError(
            f"recalibrate: graph {graph.name!r}: labels must be of nodes that did not train, but with labels "
            f"positive-only those without one did too, drawn at random ({seen.numel():,} in all), which leaves "
            f"{got}: give another graph's labels (--graph), or train with --labels all"
        )
    what = f"two of the {len(names)} classes at least" if many else f"{names[1]!r} and of other nodes"
    raise InputError(
        f"recalibrate: graph {graph.name!r} must have labels of {what} that the run has not seen, got {got}: add labels"
    )


def _notes(maps: dict[Target, Calibrator], y: Tensor, names: Sequence[str]) -> Iterator[str]:
    """Yields what fresh labels leave to be known of the maps."""
    there = torch.bincount(y, minlength=len(names))
    none = [name for name, n in zip(names, there.tolist(), strict=True) if not n]
    if none and any(isinstance(each, PriorPlattCalibrator) for each in maps.values()):
        shown = listed(none[:4]) + (", .." if len(none) > 4 else "")
        yield f"no fresh label is of {shown}: only the prior says how common that is"
    yield from (each.note_ for each in maps.values() if isinstance(each, JackknifeCalibrator) and each.note_)
