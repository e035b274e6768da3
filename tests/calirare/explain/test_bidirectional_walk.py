"""Walks that meet on the way tell what walks of all steps from one end do, wherever they meet."""

from __future__ import annotations

import pytest
import torch

from calirare.explain import bidirectional_walk
from calirare.explain.bidirectional_walk import BidirectionalWalk
from calirare.models import propagation_step
from tests.calirare.models.test_label_propagation import close, reaching, weighted_task

REACH, STEPS = 0.8, 10
SOURCES = torch.tensor([1, 7, 8, 30])  # 7 has no edge, 8 one


@pytest.fixture(scope="module")
def graph():
    return weighted_task()


@pytest.mark.parametrize(
    ("cheap", "few", "left"),
    [
        pytest.param(-1, 1e9, 10, id="asked, all edges"),
        pytest.param(-1, 0, 10, id="asked, edges of some nodes"),
        pytest.param(400, 4, 8, id="both"),
        pytest.param(10**9, 1, 0, id="sources"),
    ],
)
def test_wherever_they_meet(graph, monkeypatch, cheap, few, left):
    monkeypatch.setattr(bidirectional_walk, "CHEAP", cheap)
    monkeypatch.setattr(bidirectional_walk, "FEW", few)
    monkeypatch.setattr(bidirectional_walk, "TOGETHER", 3)
    walks, asked = (
        BidirectionalWalk(propagation_step(graph), SOURCES, REACH, STEPS),
        torch.tensor([1, 79, 8, 7, 30, 12, 79]),
    )
    want = reaching(graph, REACH)[asked][:, SOURCES]
    got = walks.of(asked)
    assert walks.steps == left
    assert close(got, want)
    assert not close(got / REACH, want)
    walks.steps -= 1
    if left:
        assert not close(walks.of(asked), want)
    assert walks.of(asked[:0]).shape == (0, 4)


@pytest.mark.parametrize(("kept", "walks_on"), [(0, False), (2**28, True)])
def test_sources_walk_on_once_nodes_have_spent_as_much(graph, monkeypatch, kept, walks_on):
    monkeypatch.setattr(bidirectional_walk, "CHEAP", 400)
    monkeypatch.setattr(bidirectional_walk, "FEW", 6)
    monkeypatch.setattr(bidirectional_walk, "TOGETHER", 3)
    monkeypatch.setattr(bidirectional_walk, "NARROW", 1)
    monkeypatch.setattr(bidirectional_walk, "KEPT", kept)
    walks, want = BidirectionalWalk(propagation_step(graph), SOURCES, REACH, STEPS), reaching(graph, REACH)[:, SOURCES]
    left = []
    for node in (12, 79, 1, 12, 8, 30, 7, 12):
        assert close(walks.of(torch.tensor([node])), want[[node]])
        left.append(walks.steps)
    for _ in range(3):  # among all nodes are some with fewer steps along few edges
        assert close(walks.of(torch.arange(80)), want)
    assert left[0] == 8
    assert (walks.steps < 8) is walks_on


def test_memory_of_walks_is_used_again(graph, monkeypatch):
    monkeypatch.setattr(bidirectional_walk, "CHEAP", -1)
    monkeypatch.setattr(bidirectional_walk, "FEW", 1e9)
    monkeypatch.setattr(bidirectional_walk, "TOGETHER", 3)
    walks, rooms = BidirectionalWalk(propagation_step(graph), SOURCES, REACH, STEPS), set()
    taken = walks._room
    monkeypatch.setattr(walks, "_room", lambda *given: [room := taken(*given), rooms.add(room.data_ptr())][0])
    assert close(walks.of(torch.arange(80)), reaching(graph, REACH)[:, SOURCES])
    assert len(rooms) == 2  # of 27 times 10 steps
