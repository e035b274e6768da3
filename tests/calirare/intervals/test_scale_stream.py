"""Evaluation in blocks, in memory and in a file, against the whole at once; blocks that are kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import calirare
from calirare._util import array_files
from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare.graph import convolution as propagation_module
from calirare.graph.graph import Graph
from calirare.leave_one_out import Streaming, jackknife
from calirare.leave_one_out import streaming as stream
from calirare.models import GcnTraining, fit
from tests.helpers.tasks import rare_task

LEVEL = 2e-5  # of probabilities and logits near 1 in float32: sums in another order


@pytest.fixture
def small_is_large(monkeypatch):
    """Every graph counts as large, so that a test need not wait for one."""
    monkeypatch.setattr(propagation_module, "LARGE", 1)


def copy_of(graph: Graph) -> Graph:
    return dataclasses.replace(graph)


@pytest.fixture(scope="module")
def whole():
    graph = rare_task()
    assert graph.split is not None
    trained = fit(graph, graph.split.train, GcnTraining(epochs=30))
    return graph, trained, jackknife(trained, graph)


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("block", [7, 1000])
def test_blocks_give_what_the_whole_gives(whole, small_is_large, monkeypatch, in_files, block):
    graph, trained, expected = whole
    monkeypatch.setattr(array_files, "SMALL", 0)
    monkeypatch.setattr(array_files, "IN_MEMORY", 0.0 if in_files else 1.0)
    seen, released, original = [], [], stream.release
    monkeypatch.setattr(stream, "release", lambda matrix: released.append(original(matrix)))
    evaluator = Streaming(copy_of(graph), block=block, report=lambda *a: seen.append(a))
    result = jackknife(trained, graph, evaluator=evaluator)
    for name in ("lower", "upper", "uncertainty", "confidence", "ice"):
        difference = (getattr(result, name) - getattr(expected, name)).abs()
        assert float(difference.max()) < LEVEL, name
    assert torch.equal(result.nodes, expected.nodes)
    blocks = -(-graph.n_nodes // block)
    assert seen[-1] == ("intervals", blocks, blocks)
    assert any(released) == in_files, "messages lie in a file where memory is short"


def test_a_folder_of_something_else_stays(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="something else"):
        BlockFiles(tmp_path).start("key")
    assert (tmp_path / "mine.txt").exists()


def zeroed(path):
    content = path.read_bytes()
    path.write_bytes(content[:128] + bytes(len(content) - 128))


DAMAGES = {
    "removed": lambda path: path.unlink(),
    "zeroed": zeroed,
    "another": lambda path: np.save(path, np.ones((3, 2))),
    "marks": lambda path: [mark.write_text("") for mark in path.parent.glob("*.done")],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_blocks_are_made_again(damage, tmp_path):
    files, blocks = BlockFiles(tmp_path / "blocks"), [(0, 2), (2, 4)]
    assert not files.start("key")
    files.create("z", 4, 3)
    for first, last in blocks:
        files.keep("z", first, torch.ones(last - first, 3))
    assert files.start("key")
    assert files.left("z", blocks) == []
    DAMAGES[damage](files.folder / "z.npy")
    assert not files.start("key")
    assert files.left("z", blocks) == blocks


@pytest.mark.slow
@pytest.mark.parametrize(("method", "hops"), [("jackknife", 1), ("ts", 2)])
def test_a_large_graph_streams_through_the_whole_pipeline(small_is_large, monkeypatch, method, hops):
    outcome = calirare.train(rare_task(), preset="paper", epochs=12, folds=2, method=method, hops=hops)
    monkeypatch.setattr(propagation_module, "LARGE", 10**9)
    expected = calirare.train(rare_task(), preset="paper", epochs=12, folds=2, method=method, hops=hops)
    assert outcome.model.hops == expected.model.hops
    assert outcome.logits.shape == expected.logits.shape
    assert float((outcome.logits - expected.logits).abs().max()) < LEVEL
    assert float((outcome.jackknife.upper - expected.jackknife.upper).abs().max()) < LEVEL
    assert outcome.jackknife.eice == pytest.approx(expected.jackknife.eice, abs=LEVEL)
    for target, fitted in outcome.calibrators.items():
        one, other = fitted.transform(outcome.logits), expected.calibrators[target].transform(expected.logits)
        assert float((one - other).abs().max()) < LEVEL


def test_a_small_graph_cannot_be_streamed():
    with pytest.raises(ValueError, match="large"):
        Streaming(rare_task())


def test_a_block_must_hold_a_node(small_is_large, whole):
    for block in (0, -3):
        with pytest.raises(ValueError, match=f"Streaming: block must be at least 1, got {block}"):
            Streaming(copy_of(whole[0]), block=block)
