"""A saved run with labels that are new, others or forgotten: trained again, and what that changed."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.explain import Explainer, difference, two_columns
from calirare.graph import Graph
from calirare.run.changes import Foreseen, Side, Updated
from calirare.run.data import Report
from calirare.run.data_settings import Labels
from calirare.run.folder import SavedRun
from calirare.run.outcome import Outcome
from calirare.run.retrain import retrain
from calirare.run.split_assignment import changes_of

POSITIVE_ONLY = (
    "update: the run's labels are positive-only, where labels of the rest count as none: put the new ones into the "
    "data and train again (calirare train --labels positive-only; with labels of both classes without it)"
)
FORESEEN, TOGETHER = 2000, 500  # nodes, those that moved most, that the closed form speaks of; of these in a pass


def update(
    saved: SavedRun, graph: Graph, fresh: Labels, *, chosen: bool = True, report: Report | None = None
) -> Updated:
    """Returns a run trained again with some labels in the place of its own, from scratch and with its settings.

    Args:
        saved: the run.
        graph: its own graph (`SavedRun.graph`).
        fresh: the labels that change; unknown ones are forgotten.
        chosen: whether nodes that get a first label were chosen for it, by their P(rare) or `Outcome.next_labels`; then
            P(rare) is calibrated on the labels of before alone, where these were a random sample.
        report: called as stages proceed.

    Raises:
        InputError: no label changes, or the labels that are left cannot train a detector.
    """
    if saved.settings.positive_only:
        raise InputError(POSITIVE_ONLY)
    graph = graph.to("cpu")
    changed = changes_of(graph, fresh)
    again = retrain(saved.settings, graph, changed, chosen=chosen, report=report)
    outcome = again.outcome
    outcome.notes += again.notes
    before = Side(saved.scorer.probabilities(saved.mapped(graph)), graph, saved.fit.nodes.cpu())
    after = Side(outcome.for_tables(), outcome.graph, outcome.fit.nodes.cpu())
    foreseen = None if saved.settings.many else _foreseen(saved, graph, changed, before, outcome)
    return Updated(outcome, again.labels, changed, before, after, foreseen)


def _foreseen(saved: SavedRun, graph: Graph, changed: Labels, before: Side, outcome: Outcome) -> Foreseen | None:
    """Returns what the old run in closed form says the labels would change; None where it cannot."""
    try:
        explainer = saved.explainer(graph)
    except InputError:
        return None
    p, scored = before.found.rare.cpu(), graph.scored_nodes.cpu()
    moved = (outcome.for_tables().rare.cpu() - p).abs()[scored]
    nodes = scored[torch.argsort(moved, descending=True, stable=True)[:FORESEEN]]
    parts = [_effects(explainer, saved.fit.nodes.cpu(), changed, some) for some in nodes.split(TOGETHER)]
    each, together = torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts])
    base, mapped = (
        difference(explainer.model.logits(nodes)),
        outcome.graph if outcome.mapped is None else outcome.mapped,
    )
    now = difference(outcome.fit.logits_of(mapped, nodes.to(mapped.device))).cpu()
    effects, after = (explainer.context.probabilities(two_columns(base + x))[..., 1] for x in (each, together))
    return Foreseen(nodes, effects - p[nodes], after, (together, now - base))


def _effects(explainer: Explainer, trained: Tensor, changed: Labels, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the change of the log-odds of nodes by each label, [b, n], and by all, [n]: new ones are added up."""
    model = explainer.model
    base = difference(model.logits(nodes))
    each = base.new_zeros(changed.nodes.numel(), nodes.numel())
    together = torch.zeros_like(base)
    places = {node: place for place, node in enumerate(trained.tolist())}
    gone = torch.tensor([node in places for node in changed.nodes.tolist()])
    if bool(gone.any()):
        sets = [torch.tensor([places[node]]) for node in changed.nodes[gone].tolist()]
        out = difference(model.without_labels(nodes, [*sets, torch.cat(sets)])) - base
        each[gone] += out[:-1]
        together += out[-1]
    come = changed.y >= 0
    if bool(come.any()):
        fresh, y = changed.nodes[come], changed.y[come]
        added = difference(model.with_each_label(nodes, fresh)[y, torch.arange(len(y))]) - base
        each[come] += added
        together += added.sum(0)
    return each, together
