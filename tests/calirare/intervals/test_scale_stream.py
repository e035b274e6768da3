"""Evaluation in blocks, in memory and in files, against the whole at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import calirare
from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare.graph import convolution as propagation_module
from calirare.graph import propagation
from calirare.graph.graph import Graph
from calirare.leave_one_out import Streaming, jackknife
from calirare.leave_one_out import streaming as stream
from calirare.leave_one_out.streaming import pieces
from calirare.models import GcnTraining, fit
from calirare_ext import Csr
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

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


@pytest.mark.parametrize("most", [0, 1, 40, 10**6])
def test_pieces_are_rows_with_the_columns_they_touch(most):
    a = propagation(rare_task()).a_hat
    start, touched_most = 17, 0
    for piece, touched in pieces(a, slice(17, 60), most):
        stop = start + piece.n_rows
        dense = torch.zeros(piece.n_rows, a.n_cols)
        dense[:, touched] = piece.to_dense()
        assert_identical(dense, a.to_dense()[start:stop])
        assert bool((piece.to_dense() != 0).any(0).all()), "no column is there in vain"
        if piece.n_rows > 1:
            touched_most = max(touched_most, touched.numel())
        start = stop
    assert start == 60
    assert touched_most <= most
    none = Csr(torch.zeros(4, dtype=torch.int64), a.indices[:0], a.values[:0], a.n_cols)
    assert [(piece.shape, len(touched)) for piece, touched in pieces(none, slice(0, 3), most)] == [((3, 0), 0)]


@pytest.mark.slow
@pytest.mark.parametrize("room", [1e-9, 1.0])
def test_messages_that_lie_elsewhere_come_by_the_rows_that_are_touched(
    whole, small_is_large, monkeypatch, tmp_path, room
):
    """A GPU must never hold all of what was too large for it; with little room one node's rows at a time."""
    graph, trained, _ = whole
    monkeypatch.setattr(Streaming, "_fits", lambda self, job: False)
    near = jackknife(trained, graph, evaluator=Streaming(copy_of(graph), tmp_path / "near", block=20))
    monkeypatch.setattr(stream, "IN_MEMORY", room)
    monkeypatch.setattr(Streaming, "_elsewhere", lambda self, sent: True)
    fetched, original = [], Streaming._ends

    def counted(self, job, a, sent, base):
        assert a.n_cols == sent.shape[0] == base.shape[0]
        fetched.append((a.n_rows, sent.shape[0]))
        return original(self, job, a, sent, base)

    monkeypatch.setattr(Streaming, "_ends", counted)
    far = jackknife(trained, graph, evaluator=Streaming(copy_of(graph), tmp_path / "far", block=20))
    for name in ("lower", "upper", "uncertainty", "confidence", "ice"):
        assert_identical(getattr(far, name), getattr(near, name), name)
    a = propagation(graph).a_hat
    size = 20 if room == 1.0 else 1
    expected = [(size, len(a.indices[a.indptr[i] : a.indptr[i + size]].unique())) for i in range(0, 260, size)]
    assert fetched == expected
    assert max(rows for _, rows in fetched) < graph.n_nodes


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("block", [7, 1000])
def test_blocks_give_what_the_whole_gives(whole, small_is_large, monkeypatch, tmp_path, in_files, block):
    graph, trained, expected = whole
    monkeypatch.setattr(stream, "IN_MEMORY", 0.0 if in_files else 1.0)
    seen = []
    evaluator = Streaming(
        copy_of(graph), tmp_path / "blocks" if in_files else None, block=block, report=lambda *a: seen.append(a)
    )
    result = jackknife(trained, graph, evaluator=evaluator)
    for name in ("lower", "upper", "uncertainty", "confidence", "ice"):
        difference = (getattr(result, name) - getattr(expected, name)).abs()
        assert float(difference.max()) < LEVEL, name
    assert torch.equal(result.nodes, expected.nodes)
    blocks = -(-graph.n_nodes // block)
    assert seen[-1] == ("intervals", blocks, blocks)
    assert (tmp_path / "blocks").exists() == in_files
    evaluator.finish()
    assert not (tmp_path / "blocks").exists()


def test_a_stopped_job_resumes_from_its_finished_blocks(whole, small_is_large, monkeypatch, tmp_path):
    graph, trained, _ = whole
    monkeypatch.setattr(stream, "IN_MEMORY", 0.0)
    straight = Streaming(copy_of(graph), tmp_path / "straight", block=20)
    expected = jackknife(trained, graph, evaluator=straight)

    class StopError(Exception):
        pass

    def stop(stage, done, total):
        if (stage, done) == ("intervals", 5):
            raise StopError

    folder = tmp_path / "blocks"
    with pytest.raises(StopError):
        jackknife(trained, graph, evaluator=Streaming(copy_of(graph), folder, block=20, report=stop))
    files = BlockFiles(folder)
    assert (files.count("messages"), files.count("intervals")) == (13, 5)
    computed = []
    original = Streaming._intervals
    monkeypatch.setattr(Streaming, "_messages", lambda *a: pytest.fail("messages were made again"))
    monkeypatch.setattr(Streaming, "_intervals", lambda self, *a: (computed.append(a[1]), original(self, *a))[1])
    again = Streaming(copy_of(graph), folder, block=20)
    result = jackknife(trained, graph, evaluator=again)
    assert again.resumed
    assert [rows.start for rows in computed] == list(range(100, 260, 20))
    assert_identical(result.lower, expected.lower)
    assert_identical(result.upper, expected.upper)


def zeroed(folder):
    path = folder / "sent.npy"
    content = path.read_bytes()
    path.write_bytes(content[:128] + bytes(len(content) - 128))


DAMAGES = {
    "removed": lambda folder: (folder / "sent.npy").unlink(),
    "zeroed": zeroed,
    "another": lambda folder: np.save(folder / "sent.npy", np.ones((3, 2))),
    "marks": lambda folder: [mark.write_text("") for mark in folder.glob("*.done")],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_blocks_are_made_again(damage, whole, small_is_large, monkeypatch, tmp_path):
    graph, trained, _ = whole
    monkeypatch.setattr(stream, "IN_MEMORY", 0.0)
    folder = tmp_path / "blocks"
    expected = jackknife(trained, graph, evaluator=Streaming(copy_of(graph), folder, block=20))
    for mark in list(folder.glob("intervals-*.done"))[7:]:
        mark.unlink()
    DAMAGES[damage](folder)
    again = Streaming(copy_of(graph), folder, block=20)
    result = jackknife(trained, graph, evaluator=again)
    assert again.resumed == (damage != "marks")
    assert_identical(result.lower, expected.lower)
    assert_identical(result.upper, expected.upper)
    assert_identical(result.confidence, expected.confidence)


@pytest.mark.slow
def test_blocks_of_another_graph_or_job_are_not_taken(whole, small_is_large, monkeypatch, tmp_path):
    """The network sees its labels' neighbourhood alone: elsewhere another graph may have other features."""
    graph, trained, _ = whole
    monkeypatch.setattr(stream, "IN_MEMORY", 0.0)
    folder = tmp_path / "blocks"
    jackknife(trained, graph, evaluator=Streaming(copy_of(graph), folder))
    x = graph.x.clone()
    x[200:] += 1
    other = dataclasses.replace(graph, x=x)
    evaluator = Streaming(other, folder)
    result = jackknife(trained, other, evaluator=evaluator)
    assert not evaluator.resumed
    narrow = Streaming(other, folder)
    jackknife(trained, other, coverage=0.5, evaluator=narrow)
    assert not narrow.resumed, "nor those of another coverage"
    expected = jackknife(trained, other, evaluator=Streaming(other, tmp_path / "new"))
    assert_identical(result.lower, expected.lower)
    assert not torch.equal(result.lower, jackknife(trained, graph, evaluator=Streaming(copy_of(graph))).lower)


def test_a_folder_of_something_else_stays(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(calirare._util.errors.InputError, match="something else"):
        BlockFiles(tmp_path).start("key")
    assert (tmp_path / "mine.txt").exists()


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


def test_a_block_must_hold_a_node_and_messages_must_fit(small_is_large, whole):
    graph, trained = copy_of(whole[0]), whole[1]
    for block in (0, -3):
        with pytest.raises(ValueError, match=f"Streaming: block must be at least 1, got {block}"):
            Streaming(graph, block=block)
    with pytest.raises(InputError, match=r"0\.00 GB are allowed: give Streaming a folder"):
        jackknife(trained, graph, evaluator=Streaming(graph, memory_limit=1000))
