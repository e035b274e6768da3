"""One cell of the record: a network on one draw, and every map of one track.

Track "frozen": trained on the training labels, every map fitted on the validation labels' logits. Track "peers": the
same network under CaGCN and GATS. Track "left-out": trained on training and validation labels, every map fitted on the
logits of all these labels, each from the model without itself in closed form; where these disagree with five-fold
cross-validation they are replaced by its logits, as `calirare train` does. Track "folds": the same network, every map
fitted on the logits of those five folds, each label's from the network without its fold, and the peers too.

Track "anything": whatever `calirare train --task classes` makes of training and validation labels by default, its
detector chosen and averaged by the losses of left-out labels.

Attention has no track "left-out": the closed form takes minutes, and `calirare train` leaves its labels out by folds.

Nothing here is chosen by test nodes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from calirare.calibration import FORM_SD, PriorPlattCalibrator, effective_shares
from calirare.graph import Graph
from calirare.leave_one_out import OwnLogits, choose_damping
from calirare.models import GcnFit, evidence, log_shares, own_evidence, pool_weights, pooled
from calirare.run import train
from calirare_ext import __version__
from calirare_lab.baselines import GATS, CaGCN, PostHoc, post_hoc
from calirare_lab.studies.record.data import load, raw
from calirare_lab.studies.record.measures import judge
from calirare_lab.studies.record.networks import Network, Trained, fit, fit_stopped, held_out
from calirare_lab.studies.record.protocol import Cell, Protocol

FOLDS = 5
DEFAULT = "default"  # the map of `calirare train`
OURS = "neighbours"  # the map of "prior-slopes" on logits of a node, its neighbours, theirs and so on
MAPS = ("temperature", "vector", "ets", "matrix", "prior-platt", "prior-slopes")
TRACKS = ("frozen", "peers", "left-out", "folds", "anything")


def run_cell(protocol: Protocol, cell: Cell) -> list[dict[str, Any]]:
    """Returns a row of measures per map of one track, on one draw of one data set."""
    anything = cell.track == "anything"
    graph = (raw if anything else load)(protocol, cell.dataset, cell.seed)
    assert graph.split is not None
    assert graph.y is not None
    started = time.process_time()
    draw = protocol.draw(cell.seed)
    facts: dict[str, Any] = {"dataset": cell.dataset, "network": cell.network, "seed": cell.seed, "draw": draw}
    facts["track"] = cell.track
    if anything:
        found = _by_default(graph, draw["start"], facts)
    elif cell.track in ("left-out", "folds"):
        found = _all_labels(protocol, _network(protocol, cell, draw["start"]), graph, facts)
    else:
        trained, facts["epochs"] = _base(protocol, _network(protocol, cell, draw["start"]), graph)
        found = _frozen(cell.track, trained, graph, draw["start"])
    facts |= {"version": __version__, "cpu_seconds": round(time.process_time() - started, 1)}
    labels, test = graph.y[graph.split.test], graph.split.test
    return [facts | {"map": name} | judge(labels, p[test], protocol.bins) for name, p in found.items()]


def _by_default(graph: Graph, seed: int, facts: dict[str, Any]) -> dict[str, Tensor]:
    """Returns what the default of `calirare train --task classes` makes of all labels; the facts get its members."""
    outcome = train(graph, task="classes", seed=seed)
    assert outcome.choice is not None
    facts["weights"] = {row.name: round(row.weight, 3) for row in outcome.choice.rows}
    return {"uncalibrated": torch.softmax(outcome.logits.double(), 1), DEFAULT: outcome.probabilities("population")}


def _network(protocol: Protocol, cell: Cell, start: int) -> Network:
    """Returns the settings of a cell's network."""
    network: Network = protocol.gcn if cell.network == "gcn" else protocol.gat
    decay = protocol.weight_decays.get(cell.dataset, network.weight_decay)
    return replace(network, seed=start, weight_decay=decay)


def _base(protocol: Protocol, network: Network, graph: Graph) -> tuple[Trained, int]:
    """Returns the network on the training labels, and its epochs."""
    assert graph.split is not None
    if protocol.stopped:
        return fit_stopped(network, graph)
    return fit(network, graph, graph.split.train), network.epochs


def _frozen(track: str, trained: Trained, graph: Graph, seed: int) -> dict[str, Tensor]:
    """Returns what the maps of a track make of logits that stay as they are, fitted on the validation labels."""
    assert graph.split is not None
    assert graph.y is not None
    logits, val = trained.logits_of(graph).double(), graph.split.val
    if track == "peers":
        return _node_wise(graph, logits, logits, val, graph.split.train, seed)
    asked = _with_neighbours(graph, logits, logits[None], torch.zeros_like(val), val, trained.targets)
    return _mapped(logits, logits[val], graph.y[val], trained.targets) | asked


def _all_labels(protocol: Protocol, network: Network, graph: Graph, facts: dict[str, Any]) -> dict[str, Tensor]:
    """Returns what the maps of a track make of a network on training and validation labels."""
    assert graph.split is not None
    nodes = torch.cat([graph.split.train, graph.split.val])
    if protocol.stopped:  # trained for as many epochs as the validation labels chose
        network = replace(network, epochs=fit_stopped(network, graph)[1])
    facts["epochs"] = network.epochs
    trained = fit(network, graph, nodes)
    folds = held_out(network, graph, trained, FOLDS)
    logits, folded = trained.logits_of(graph).double(), folds.own
    if facts["track"] == "left-out":
        assert isinstance(trained, GcnFit)
        return _mapped(logits, _own_logits(trained, folded, facts), trained.targets, trained.targets)
    told = logits.clone()
    told[nodes] = folded
    # Each label calibrates as if it were none: the distance to a label, which GATS reads, is left out.
    peers = _node_wise(graph, told, logits, nodes, torch.empty(0, dtype=torch.int64), network.seed)
    asked = _with_neighbours(graph, logits, folds.every, folds.fold, nodes, trained.targets)
    return _mapped(logits, folded, trained.targets, trained.targets) | asked | peers


def _with_neighbours(
    graph: Graph, logits: Tensor, without: Tensor, fold: Tensor, nodes: Tensor, trained_on: Tensor
) -> dict[str, Tensor]:
    """Returns what our map makes of all logits, its labels at some nodes; arguments as of `own_evidence`."""
    assert graph.y is not None
    shares = log_shares(trained_on, None, logits.shape[1])
    own = own_evidence(without, fold, nodes, graph.adjacency, shares)
    weights = pool_weights(own, graph.y[nodes])
    mapping = _map("prior-slopes", trained_on, logits.shape[1]).fit(pooled(weights, own, shares), graph.y[nodes])
    return {OURS: mapping.transform(pooled(weights, evidence(logits, graph.adjacency, shares), shares))}


def _own_logits(trained: GcnFit, folded: Tensor, facts: dict[str, Any]) -> Tensor:
    """Returns each label's logits without it; the facts get the damping and the verdict."""
    ones = torch.ones(len(folded), dtype=torch.float64)
    own = OwnLogits(trained.linearisation)
    agreement = choose_damping(own, trained.weight_decay, folded, ones.bool(), ones)
    facts |= {"damping": agreement.damping, "verdict": agreement.verdict, "loo_nll": agreement.loo_at_weight_decay}
    facts["held_out_nll"] = agreement.held_out
    return folded if agreement.verdict == "do not trust" else own(agreement.damping)


def _mapped(logits: Tensor, known: Tensor, labels: Tensor, trained_on: Tensor) -> dict[str, Tensor]:
    """Returns what maps fitted on known logits [m, k] make of all logits [n, k]."""
    found = {"uncalibrated": torch.softmax(logits, 1)}
    for name in MAPS:
        found[name] = _map(name, trained_on, logits.shape[1]).fit(known, labels).transform(logits)
    return found


def _map(name: str, trained_on: Tensor, k: int) -> PostHoc:
    """Returns a map of that name, of a network trained on labels of those classes, int64 [m]."""
    if not name.startswith("prior"):
        return post_hoc(name)
    form = FORM_SD if name == "prior-slopes" else None
    return PriorPlattCalibrator(trained_shares=effective_shares(trained_on, None, k), form_sd=form)


def _node_wise(graph: Graph, told: Tensor, logits: Tensor, nodes: Tensor, near: Tensor, seed: int) -> dict[str, Tensor]:
    """Returns what CaGCN and GATS make of all logits, fitted on some nodes' of `told`, distances from `near`."""
    assert graph.y is not None
    peers = {"cagcn": CaGCN(seed=seed), "gats": GATS(near, seed=seed)}
    return {name: peer.fit(told, graph.y, graph, nodes).transform(logits) for name, peer in peers.items()}
