"""Hop columns that keep all words: what they are, and that whatever reads columns of a graph reads these."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from calirare.explain.network import network_voice
from calirare.explain.words import DEGREE, NEIGHBOURS
from calirare.features import FeatureMap, TfIdf
from calirare.graph import Graph, Relation, Split
from calirare.leave_one_out import ALO, OwnLogits, Retrain, leave_one_out
from calirare.models import (
    FoldedNetwork,
    HopColumns,
    HopsTraining,
    KnownGraph,
    NewEdges,
    Spanned,
    Streams,
    TreesDetector,
    TreesTraining,
    columns,
    fold_converged,
    keeps_words,
    logits_on_disk,
    mixture_of,
    streams_of,
)
from calirare.training import class_weights, converge
from calirare_ext import Csr
from tests.calirare.models.test_streaming import on_disk
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

LEVEL = 1e-5  # of logits in float32: sums in another order
N_WORDS = 150


def words_task(n_classes: int = 2, **changes) -> Graph:
    """A rare-class task with counts of words, of which the class shifts a few; node 7 has none, and no one word 149."""
    graph, rng = rare_task(n_classes=n_classes), np.random.default_rng(0)
    rate = 0.05 + 0.3 * (np.arange(N_WORDS) // 8 == graph.y.numpy()[:, None] - 1)
    counts = rng.poisson(rate).astype(np.float32)
    counts[7], counts[:, -1] = 0, 0
    names = tuple(f"word {i}" for i in range(N_WORDS))
    parts = {"x": Csr.from_dense(torch.from_numpy(counts)), "feature_names": names, "trusted": True}
    return dataclasses.replace(graph, **(parts | changes))


def dense(graph: Graph) -> np.ndarray:
    return graph.x.to_dense().double().numpy()


def linear(graph: Graph, read: HopColumns):
    """A linear model at its minimum with three folds."""
    detector, nodes = HopsTraining(n_layers=1, weight_decay=1e-3, columns=read), graph.split.train
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    fitted, _ = detector.fit_to_convergence(graph, nodes, sample_weights=weights, tolerance=1e-5, max_steps=300)
    return fold_converged(detector, graph, fitted.as_dtype(graph, torch.float32), 3)


def test_columns_are_tf_idf_and_its_means_each_hop_divided_by_one_number():
    graph = words_task()
    a, x = graph.adjacency.to_dense().double().numpy(), dense(graph)
    idf = np.log((1 + len(x)) / (1 + (x > 0).sum(0))) + 1
    weighted = x * idf
    below = weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-300)
    wanted = []
    for _ in range(3):
        wanted.append(below / np.sqrt((below**2).sum(1).mean()))
        below = a @ below / np.maximum(a.sum(1, keepdims=True), 1)
    degree = np.log1p(a.sum(1))
    wanted.append(((degree - degree.mean()) / degree.std())[:, None])
    read = HopColumns.fit(graph, 2, words=True)
    assert isinstance(read.own.whole, TfIdf)
    found = read.of(graph).x.double().numpy()
    assert np.abs(found - np.concatenate(wanted, 1)).max() < 8 * np.finfo(np.float32).eps * np.abs(found).max()
    assert read.of(graph).feature_names[N_WORDS] == "neighbours' word 0"
    assert read.n_features == 3 * N_WORDS + 1


def test_a_block_of_zeros_is_zeros_and_scored_nodes_alone_say_how_long_rows_are():
    no_end = torch.empty(0, dtype=torch.int64)
    graph = words_task(adjacency=Csr.from_coo(no_end, no_end, None, (260, 260)))
    found = HopColumns.fit(graph, 1, words=True).of(graph).x
    assert bool(found.isfinite().all())
    assert float(found[:, N_WORDS:].abs().max()) == 0
    scored = torch.arange(260) < 100
    some = Graph(graph.adjacency, graph.x, scored=scored)
    found = HopColumns.fit(some, 1, words=True).of(some).x[scored, :N_WORDS].double()
    assert float(found.square().sum(1).mean()) == pytest.approx(1, abs=1e-6)


def test_words_below_zero_are_read_as_they_are():
    graph = words_task()
    signed = dataclasses.replace(graph, x=Csr.from_dense(graph.x.to_dense() - 2 * (graph.x.to_dense() == 1)))
    read = HopColumns.fit(signed, 0, words=True)
    assert read.own is None
    wanted = dense(signed) / np.sqrt((dense(signed) ** 2).sum(1).mean())
    assert np.abs(read.of(signed).x.numpy() - wanted).max() < 1e-6


def test_few_words_and_columns_of_a_table_are_read_as_ever():
    graph = words_task()
    few = dataclasses.replace(graph, x=Csr.from_dense(graph.x.to_dense()[:, :20]), feature_names=())
    for each in (few, rare_task()):
        assert not keeps_words(each, 2)
        assert HopColumns.fit(each, 2, words=True).same_as(HopColumns.fit(each, 2))


def test_words_are_kept_up_to_so_many_bytes(monkeypatch):
    graph = words_task()
    width = 3 * N_WORDS + 1
    monkeypatch.setattr(columns, "IN_MEMORY", 2 * 4 * 260 * width)
    assert keeps_words(graph, 2)
    monkeypatch.setattr(columns, "IN_MEMORY", 2 * 4 * 260 * width - 1)
    assert not keeps_words(graph, 2)


def test_a_state_gives_the_same_columns_again():
    graph = words_task()
    read = HopColumns.fit(graph, 2, words=True)
    again = HopColumns.from_state(*read.state())
    assert again.same_as(read)
    assert_identical(again.of(graph).x, read.of(graph).x)
    near = HopColumns.fit(graph, 0, like=read, words=True)
    assert near.own is read.own


@pytest.mark.parametrize("hops", [0, 2])
def test_columns_of_some_nodes_at_a_time_are_the_same(hops, monkeypatch):
    graph = words_task(relations=(Relation.of("pays", rare_task(seed=3).adjacency),))
    read, nodes = HopColumns.fit(graph, hops, words=True), torch.tensor([200, 3, 77])
    network, x = linear(graph, read).network, read.of(graph).x
    said = network.logits_of(graph)
    monkeypatch.setattr(columns, "IN_MEMORY", 0)
    assert read.blockwise(graph)
    assert float((read.at(graph, nodes) - x[nodes]).abs().max()) < LEVEL
    assert float((HopColumns.fit(graph, hops, words=True).at(graph, nodes) - x[nodes]).abs().max()) < LEVEL
    assert float((network.logits_of(graph) - said).abs().max()) < LEVEL  # by Horner's scheme


def test_a_shuffled_graph_has_the_same_logits():
    graph, order = words_task(), torch.from_numpy(np.random.default_rng(1).permutation(260))
    place = torch.argsort(order)
    parts = {
        "adjacency": Csr.from_dense(graph.adjacency.to_dense()[order][:, order]),
        "x": Csr.from_dense(graph.x.to_dense()[order]),
        "y": graph.y[order],
        "split": Split(*(place[each] for each in (graph.split.train, graph.split.val, graph.split.test))),
    }
    other = dataclasses.replace(graph, **parts, original_y=None, trusted=True)
    one, two = (linear(each, HopColumns.fit(each, 2, words=True)).network for each in (graph, other))
    assert float((one.logits_of(graph)[order] - two.logits_of(other)).abs().max()) < LEVEL


def test_a_saved_network_says_the_same_bits():
    graph = words_task()
    fit = linear(graph, HopColumns.fit(graph, 2, words=True))
    again = FoldedNetwork.from_state(*fit.state())
    for one, other in zip(fit.all_logits_of(graph), again.all_logits_of(graph), strict=True):
        assert_identical(one, other)


def test_leave_one_out_in_closed_form_is_that_of_retraining():
    graph = words_task()
    fitted = linear(graph, HopColumns.fit(graph, 2, words=True)).network.as_dtype(graph, torch.float64)
    assert OwnLogits(fitted.linearisation).form == "dual"
    closed, truth = (leave_one_out(fitted, graph, how).own.flatten() for how in (ALO(), Retrain()))
    assert float(torch.corrcoef(torch.stack([closed, truth]))[0, 1]) > 0.99
    assert float((closed - truth).norm() / truth.norm()) < 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_model_in_the_coordinates_of_its_labels_is_the_model_on_all_words(n_classes):
    graph = words_task(n_classes)
    nodes = torch.cat([graph.split.train, torch.tensor([7])]).unique()
    words = graph.x.to_dense()
    words[nodes[0]] = words[nodes[1]]  # and node 7 has none: their rows span two directions less
    graph = dataclasses.replace(graph, x=Csr.from_dense(words), trusted=True)
    training = HopsTraining(n_layers=1, weight_decay=1e-3, columns=HopColumns.fit(graph, 0, words=True))
    start = training.start(graph, nodes)
    spanned = Spanned(start)
    assert spanned.small.model.n_features == nodes.numel() - 2 < N_WORDS
    tight = {"tolerance": 1e-9, "max_steps": 300}
    direct, _ = converge(start, graph, **tight)
    small, told = converge(spanned.small, graph, **tight)
    assert told.converged
    own = [OwnLogits(each.linearisation)(1e-3) for each in (direct, small)]
    assert float((own[0] - own[1]).abs().max()) < LEVEL
    whole = spanned.whole(fold_converged(training, graph, small, 3))
    folded = fold_converged(training, graph, direct, 3)
    assert whole.network.weight_decay == 1e-3
    assert (
        float((whole.network.logits_of(graph) - direct.as_dtype(graph, torch.float32).logits_of(graph)).abs().max())
        < LEVEL
    )
    assert float((whole.own_logits - folded.own_logits).abs().max()) < 100 * LEVEL  # of folds' looser minima
    assert_identical(whole.network.field.features, start.field.features)


def test_labels_without_a_word_have_a_model_too():
    graph = words_task()
    words, nodes = graph.x.to_dense(), graph.split.train
    words[nodes] = 0
    graph = dataclasses.replace(graph, x=Csr.from_dense(words), trusted=True)
    training = HopsTraining(n_layers=1, columns=HopColumns.fit(graph, 0, words=True))
    spanned = Spanned(training.start(graph, nodes))
    whole = spanned.whole(fold_converged(training, graph, converge(spanned.small, graph)[0], 3))
    assert float(whole.network.logits_of(graph).diff(dim=1).abs().max()) < LEVEL  # classes weigh alike


def test_shares_are_told_by_the_names_of_words_and_add_up():
    graph, nodes = words_task(), torch.arange(0, 60, 3)
    voice = network_voice(linear(graph, HopColumns.fit(graph, 2, words=True)).network, graph)
    shares, said = voice.shares(nodes), voice.log_odds(nodes)
    assert shares.names[:2] == ("word 0", "word 1")
    assert NEIGHBOURS + "word 0" in shares.names
    assert shares.names[-1] == DEGREE
    assert float((shares.base + shares.values.sum(1) - said).abs().max()) < LEVEL
    edge = torch.tensor([[3, int(graph.adjacency.indices[int(graph.adjacency.indptr[3])])]])
    here, there = (min(edge[0].tolist()), max(edge[0].tolist()))
    dense_a = graph.adjacency.to_dense()
    dense_a[here, there] = dense_a[there, here] = 0
    without = dataclasses.replace(graph, adjacency=Csr.from_dense(dense_a), trusted=True)
    z = voice.fitted.logits_of(without)[3].double()
    assert float(voice.without_edges(3, edge)[0]) == pytest.approx(float(z[1] - z[0]), abs=10 * LEVEL)


def mixture(graph: Graph):
    """Trees on reduced words beside linear models on all of them, near and far."""
    nodes = graph.split.train
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    fits = {"trees": TreesDetector(TreesTraining(rounds=5, folds=3)).fit(graph, nodes, sample_weights=weights)}
    fits["linear"] = linear(graph, far := HopColumns.fit(graph, 2, words=True))
    fits["linear, no edges"] = linear(graph, HopColumns.fit(graph, 0, like=far, words=True))
    return mixture_of(fits, weights)


def test_a_graph_on_disk_is_scored_with_words_and_with_directions(tmp_path):
    graph = words_task()
    features = FeatureMap.fit(graph, "auto")
    fit = mixture(features.transform(graph))
    detector = streams_of(fit, features)
    assert isinstance(detector, Streams)
    assert len(detector.columns) == 1
    found = logits_on_disk(detector, on_disk(graph, tmp_path))
    assert float((found - fit.logits_of(features.transform(graph))).abs().max()) < LEVEL


def test_new_nodes_are_scored_as_in_the_whole_graph():
    graph = words_task()
    fit, x, near = mixture(graph), torch.zeros(2, N_WORDS), np.array([5, 17, 30, 17])
    x[0, [0, 3, 50]], x[1, [2, 100]] = torch.tensor([2.0, 1.0, 1.0]), 1.0
    weights = np.array([1.0, 1.0, 1.0, 1.0], dtype=np.float32)
    found = KnownGraph(fit, graph).logits(x, NewEdges(np.array([0, 0, 1, 1]), near, weights))
    a = torch.zeros(262, 262)
    a[:260, :260] = graph.adjacency.to_dense()
    for new, known in zip([260, 260, 261, 261], near.tolist(), strict=True):
        a[new, known] = a[known, new] = 1
    words = Csr.from_dense(torch.cat([graph.x.to_dense(), x]))
    whole = Graph(Csr.from_dense(a), words, feature_names=graph.feature_names)
    assert float((found - fit.logits_of(whole)[-2:]).abs().max()) < LEVEL
