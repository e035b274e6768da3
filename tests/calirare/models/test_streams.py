"""Trees and mixtures score a graph on disk, a few columns and a block of rows at a time, as they score it in memory."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import torch

from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare.features import FeatureMap
from calirare.graph import Column, Graph, Relation
from calirare.models import (
    GcnTraining,
    LabelPropagation,
    Mixture,
    MlpTraining,
    Streams,
    TreesTraining,
    class_weights,
    fold_network,
    logits_on_disk,
    mixture_of,
    passes,
    streams,
    streams_of,
)
from calirare_ext import Csr
from tests.calirare.models.test_streaming import GRAPHS, on_disk
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 37)  # blocks of 260 nodes, the last one shorter
    monkeypatch.setattr(streams, "BLOCK", 31)
    monkeypatch.setattr(streams, "COLUMNS", 4)  # of 6 features


def trees(graph: Graph, hops: int = 2, **growing):
    """Trees on a graph, and the map of its features."""
    features = FeatureMap.fit(graph, "auto")
    ready = features.own(graph)
    detector = TreesTraining(**({"rounds": 5, "folds": 3, "hops": hops} | growing))
    return detector.fit(ready, ready.split.train), features


def mixture(graph: Graph) -> tuple[Mixture, FeatureMap]:
    """Of trees and perceptrons that read two hops, of a perceptron that reads none, and of a graph convolution."""
    features = FeatureMap.fit(graph, "auto")
    ready, nodes = features.own(graph), graph.split.train
    weights = class_weights(graph.y[nodes], graph.n_classes)[graph.y[nodes]].float()
    growing = TreesTraining(rounds=5, folds=3)
    columns, _ = growing.read(ready, nodes)
    fits = {"trees": dataclasses.replace(growing, columns=columns).fit(ready, nodes, sample_weights=weights)}
    for name, training in {
        "hops": MlpTraining(epochs=8, hidden=4, columns=columns),
        "own": MlpTraining(epochs=8, n_layers=1, hops=0),
        "gcn": GcnTraining(epochs=8, n_layers=3),
    }.items():
        network = training.fit(ready, nodes, sample_weights=weights)
        fits[name] = fold_network(training, ready, network, 3)
    fits["spreading"] = LabelPropagation(folds=3).fit(ready, nodes, sample_weights=weights)
    return mixture_of(fits, weights), features


@pytest.mark.parametrize("change", GRAPHS.values(), ids=list(GRAPHS))
@pytest.mark.parametrize(("kind", "hops"), [("boosting", 2), ("extra", 1), ("boosting", 0)])
def test_logits_of_trees_have_the_bits_of_those_in_memory(kind, hops, change, tmp_path):
    graph = change(rare_task(seed=2))
    fit, features = trees(graph, hops, kind=kind)
    found = logits_on_disk(streams_of(fit, features), on_disk(graph, tmp_path))
    assert_identical(found, fit.logits_of(features.transform(graph)))


def test_training_nodes_are_found_by_their_names_in_blocks_too(tmp_path):
    graph = rare_task(seed=2)
    x = graph.x.clone()
    x[:, 0] = torch.arange(len(x)) % 26
    shop = Column("shop", "categorical", tuple(f"s{i:02}" for i in range(26)))
    graph = dataclasses.replace(
        graph,
        x=x,
        columns=(shop, *(Column(f"x{i}") for i in range(1, x.shape[1]))),
        feature_names=("shop", *(f"x{i}" for i in range(1, x.shape[1]))),
        node_names=np.array([f"n{i}" for i in range(len(x))]),
        feature_normalisation="none",
    )
    nodes = torch.cat([graph.split.train, graph.split.val])
    features = FeatureMap.fit(graph, nodes=nodes)
    assert features.labelled is not None
    fit = TreesTraining(rounds=5, folds=3).fit(features.own(graph), nodes)
    found = logits_on_disk(streams_of(fit, features), on_disk(graph, tmp_path))
    assert_identical(found, fit.logits_of(features.transform(graph)))
    unnamed = dataclasses.replace(graph, node_names=None)
    assert not torch.equal(found, fit.logits_of(features.transform(unnamed)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_mixture_of_streams_is_the_mixture_in_memory(n_classes, tmp_path):
    graph = rare_task(seed=2, n_classes=n_classes)
    fit, features = mixture(graph)
    detector = streams_of(fit, features)
    assert len(detector.columns) == 2
    assert fit.weight_of("spreading") > 0.01
    found = logits_on_disk(detector, on_disk(graph, tmp_path))
    wanted = fit.logits_of(features.transform(graph))
    assert found.shape == wanted.shape == (260, n_classes)
    assert float((found - wanted).abs().max()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [1, 30], ids=["few words", "words reduced to singular directions"])
def test_sparse_features_are_read_by_rows(repeated, tmp_path):
    graph = rare_task(seed=2)
    words = torch.cat([graph.x.relu().roll(i, 0) for i in range(repeated)], 1)
    graph = dataclasses.replace(graph, x=Csr.from_dense(words), trusted=True)
    fit, features = trees(graph)
    assert (fit.columns.own is not None) == (repeated > 1)
    found = logits_on_disk(streams_of(fit, features), on_disk(graph, tmp_path))
    assert float((found - fit.logits_of(features.transform(graph))).abs().max()) < 1e-6


def test_no_matrix_of_all_nodes_is_wider_than_a_few_columns(tmp_path, monkeypatch):
    graph, made = rare_task(seed=2), list[tuple[int, int]]()
    fit, features = trees(graph)
    real = streams.room
    monkeypatch.setattr(streams, "room", lambda *shape: made.append(shape) or real(*shape))
    logits_on_disk(streams_of(fit, features), on_disk(graph, tmp_path))
    assert made == [(260, 4), (260, 2)] * 2  # of each hop


@pytest.mark.parametrize(
    ("made_of", "stage", "done", "again"),
    [(trees, "features", 3, 32), (trees, "hop 2", 9, 7), (mixture, "pass 2", 5, 32), (mixture, "predict", 4, 0)],
    ids=["features", "hop 2", "pass 2", "predict"],
)
def test_it_goes_on_where_it_was_stopped_with_the_same_bits(made_of, stage, done, again, tmp_path, monkeypatch):
    graph, made = rare_task(seed=2), list[int]()
    fit, features = made_of(graph)
    detector, disk, files = streams_of(fit, features), on_disk(graph, tmp_path), BlockFiles(tmp_path / "blocks")
    wanted = logits_on_disk(detector, disk)

    class StoppedError(Exception):
        pass

    def stop(*told):
        if told[:2] == (stage, done):
            raise StoppedError

    with pytest.raises(StoppedError):
        logits_on_disk(detector, disk, files, stop)
    real = streams.neighbour_means
    monkeypatch.setattr(streams, "neighbour_means", lambda a, x: made.append(a.n_rows) or real(a, x))
    assert_identical(logits_on_disk(detector, disk, files), wanted)
    assert len(made) == again  # of 32: 8 blocks, two hops of two parts of the columns


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    graph = rare_task(seed=2)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"0\.00 GB are needed for columns of all nodes"):
        logits_on_disk(streams_of(*trees(graph)), on_disk(graph, tmp_path), BlockFiles(tmp_path / "blocks"))
    assert not list(tmp_path.glob("blocks/*.npy"))


def test_relations_and_other_detectors_say_why_not():
    graph = rare_task(seed=2)
    typed = dataclasses.replace(graph, relations=(Relation.of("pays", graph.adjacency),))
    assert "typed or directed relations" in streams_of(*trees(typed))
    assert "no graph convolution" in streams_of(object(), FeatureMap.fit(graph, "standardize"))


@pytest.mark.slow
def test_members_that_reduce_features_in_two_ways_say_so():
    graph = rare_task(seed=2)
    words = torch.cat([graph.x.relu().roll(i, 0) for i in range(30)], 1)
    graph = dataclasses.replace(graph, x=Csr.from_dense(words), trusted=True)
    (one, features), (other, _) = trees(graph), trees(graph)
    both = mixture_of({"one": one, "other": other}, one.sample_weights)
    assert isinstance(streams_of(both, features), Streams)
    own = other.columns.own
    whole = dataclasses.replace(own.whole, directions=-own.whole.directions)
    columns = dataclasses.replace(other.columns, own=dataclasses.replace(own, whole=whole))
    turned = dataclasses.replace(other, columns=columns)
    assert "more than one way" in streams_of(mixture_of({"one": one, "other": turned}, one.sample_weights), features)


def test_an_empty_graph_has_no_logits(tmp_path):
    graph = rare_task(seed=2)
    none = Csr(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), 0)
    empty = Graph(none, graph.x[:0], trusted=True)
    assert logits_on_disk(streams_of(*trees(graph)), on_disk(empty, tmp_path)).shape == (0, 2)
