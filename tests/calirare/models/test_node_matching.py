"""Names that another graph shares with the run's by chance tell nothing of its nodes."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch

import calirare
from calirare._util.blocks import BlockFiles
from calirare.datasets import synthetic_rare
from calirare.graph import GraphOnDisk
from calirare.models import LabelPropagationFit, NeighbourPool, logits_on_disk, node_matching, streams_of
from calirare.models.node_matching import match_nodes
from calirare.run import Scorer
from tests.helpers.command import rough_runs


def accounts(seed, first="a"):
    """A bank's accounts; homophily makes labels nearby count, columns tell much as well."""
    graph = synthetic_rare(600, seed=seed, n_features=6, share=0.2, labels="block", separation=2.0, homophily=0.9)
    names = np.array([f"{first}{i}" for i in range(graph.n_nodes)])
    return dataclasses.replace(graph, node_names=names, split=None)


@cache
def trained():
    with rough_runs():
        return calirare.train(accounts(0), folds=3, hidden=8, epochs=60)


def p_rare(graph):
    notes = []
    return trained().predict(graph, notes.append).p_rare.to_numpy(), [n for n in notes if "names" in n]


@pytest.mark.slow
def test_strangers_of_the_same_names_are_scored_as_strangers():
    same, said = p_rare(accounts(1))
    other, silent = p_rare(accounts(1, "z"))
    assert (same == other).all()
    assert len(said) == 1
    assert "600 of 600 nodes have names of the run's nodes but seem to be other nodes" in said[0]
    assert silent == []


def test_a_new_node_among_strangers_too(capsys):
    graph = accounts(1)
    said = [
        calirare.Scorer.open(trained(), which).score(graph.x[0], [f"{first}3", f"{first}4"]).rare
        for first, which in (("a", graph), ("z", accounts(1, "z")))
    ]
    assert said[0] == said[1]
    assert "seem to be other nodes" in capsys.readouterr().err


def test_the_same_nodes_are_known_again_with_other_edges_and_noise():
    graph = trained().graph
    noise = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(0))
    month = dataclasses.replace(accounts(5), x=graph.x + 0.3 * noise)
    with_names, said = p_rare(month)
    assert said == []
    assert (with_names != p_rare(dataclasses.replace(month, node_names=accounts(5, "z").node_names))[0]).any()


def test_the_own_graph_is_known():
    p, said = p_rare(trained().graph)
    assert said == []
    assert np.allclose(p, trained().to_frame().p_rare, rtol=0, atol=1e-6)


@pytest.mark.parametrize("why", ["few labels", "features that tell nothing"])
def test_what_cannot_be_told_is_said(why, monkeypatch):
    if why == "few labels":
        monkeypatch.setattr(node_matching, "FEWEST", 10_000)
    else:
        monkeypatch.setattr(node_matching, "TELLING", 100.0)
    notes = []
    fit = trained().fit
    assert match_nodes(fit, trained().mapped, notes.append) is fit
    assert len(notes) == 1
    assert "600 of 600 nodes have names of the run's nodes and are taken for the same nodes" in notes[0]


def by_blocks(folder):
    """Logits of a graph on disk, and what is said of names."""
    detector, notes = streams_of(trained().fit, trained().features.elsewhere()), []
    found = logits_on_disk(detector, GraphOnDisk.open(folder), BlockFiles(folder / "blocks"), say=notes.append)
    return found, [note for note in notes if "names" in note]


def test_strangers_on_disk_are_scored_as_strangers(tmp_path):
    scores = {}
    for name, graph in {"same": accounts(1), "other": accounts(1, "z"), "own": trained().graph}.items():
        graph.to_folder(tmp_path / name)
        scores[name] = by_blocks(tmp_path / name)
        ready = Scorer.of(trained()).prepared(graph, lambda note: None)
        want = match_nodes(trained().fit, ready, lambda note: None).logits_of(ready)
        assert torch.allclose(scores[name][0], want, rtol=0, atol=1e-5)
    assert torch.equal(scores["same"][0], scores["other"][0])
    assert [len(scores[name][1]) for name in ("same", "other", "own")] == [1, 0, 0]
    assert "600 of 600 nodes have names of the run's nodes but seem to be other nodes" in scores["same"][1][0]


def test_a_pool_over_neighbours_asks_its_detector():
    pool = NeighbourPool.of(trained().fit, trained().mapped)
    ready = Scorer.of(trained()).prepared(accounts(1), lambda note: None)
    assert match_nodes(pool, trained().mapped, lambda note: None).base is trained().fit
    notes = []
    stranger = match_nodes(pool, ready, notes.append)
    assert len(notes) == 1
    spread = next(m.fitted for m in stranger.base.members if isinstance(m.fitted, LabelPropagationFit))
    assert spread.known.n_nodes == 0
