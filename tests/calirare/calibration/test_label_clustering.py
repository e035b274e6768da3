"""Labels that lie together in the graph are no random sample, and labels drawn at random are not taken for such."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import calirare
from calirare.calibration import LabelClustering, unseen_values
from calirare.graph import Graph, Split
from tests.helpers.command import rough_runs

N, REGIONS = 2000, 10


def linked(rng, kind):
    """Returns edges [m, 2] of a graph."""
    if kind == "star":
        return np.c_[np.zeros(N - 1, int), np.arange(1, N)]
    if kind == "cliques":
        first = np.arange(N) // 5 * 5
        return np.concatenate([np.c_[np.arange(N), first + i] for i in range(5)])
    weight = rng.pareto(1.3, N) + 0.1 if kind == "hubs" else np.ones(N)
    ends = rng.choice(N, (4 * N, 2), p=weight / weight.sum())
    if kind == "regions":  # of each node the number of its region is its last digit
        inside = rng.random(4 * N) < 0.8
        ends[inside, 1] = ends[inside, 1] // REGIONS * REGIONS + ends[inside, 0] % REGIONS
    return ends


def counted(edges, nodes):
    """Returns the ends of edges at labelled nodes and at all others."""
    edges = edges[edges[:, 0] != edges[:, 1]]
    both = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    has = np.zeros(N, bool)
    has[nodes] = True
    start, end = has[both].T
    return LabelClustering(int((start & end).sum()), int(start.sum()), int((~start & end).sum()), int((~start).sum()))


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("kind", ["even", "hubs", "star", "cliques", "regions"])
def test_random_labels_raise_no_alarm(kind, share):
    rng = np.random.default_rng(5)
    edges = linked(rng, kind)
    found = [counted(edges, rng.choice(N, int(share * N), replace=False)) for _ in range(6)]
    assert not [each for each in found if each.doubtful]
    assert {each.sentence() for each in found} == {""}


@pytest.mark.parametrize("labels", [40, 500])
def test_labels_of_some_regions_are_found_out(labels):
    rng = np.random.default_rng(6)
    edges = linked(rng, "regions")
    here = np.flatnonzero(np.arange(N) % REGIONS < 3)
    found = counted(edges, rng.choice(here, labels, replace=False))
    assert found.doubtful
    assert found.sentence().startswith("the labels are not a random sample of the nodes: they are clustered. ")


def test_few_edges_between_labels_say_nothing():
    assert not LabelClustering(18, 40, 1, 4000).doubtful
    assert not LabelClustering(40, 60, 0, 0).doubtful  # all nodes have a label
    assert LabelClustering(40, 60, 1, 4000).doubtful


def graph_labelled_at(nodes):
    """Regions of which three have many rare nodes; labels at some nodes."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, 3)).astype(np.float32)
    odds = 1.5 * x[:, 0] + np.where(np.arange(N) % REGIONS < 3, -1.0, -4.0)
    y = torch.from_numpy((rng.random(N) < 1 / (1 + np.exp(-odds))).astype(np.int64))
    known, train = torch.full((N,), -1), torch.from_numpy(np.sort(nodes))
    known[train] = y[train]
    data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(linked(rng, "regions").T.copy()), y=known)
    graph = Graph.from_data(data, symmetrize=True, duplicates="drop", self_loops="drop").rare(minority=1)
    return graph.with_split(Split(train, train[:0], train[:0])), y


@pytest.mark.slow
def test_a_run_on_labels_of_one_region_is_trusted_less():
    rng = np.random.default_rng(8)
    here = np.flatnonzero(np.arange(N) % REGIONS < 3)
    with rough_runs():
        graph, y = graph_labelled_at(rng.choice(here, 400, replace=False))
        outcome = calirare.train(graph, model="trees")
    p, said = outcome.probabilities("population")[graph.unlabelled, 1], outcome.metrics
    assert float(p.mean()) > 2 * float(y[graph.unlabelled].double().mean())
    assert (said["verdict"]["answer"], said["verdict"]["cause"]) == ("not known", "labels")
    assert "they are clustered" in said["verdict"]["sentence"]


def test_values_that_no_label_has_are_found_in_categories_numbers_and_gaps():
    rng = np.random.default_rng(9)
    branch, age = rng.integers(0, 20, 3000).astype(float), rng.normal(size=3000)
    gaps = np.where(rng.random(3000) < 0.4, np.nan, age)
    for column, named, chosen in ((branch, True, branch < 5), (age, False, age < 0.3), (gaps, False, ~np.isnan(gaps))):
        own = rng.choice(np.flatnonzero(chosen), 200, replace=False)
        found = unseen_values(column[own], np.delete(column, own), named=named)
        assert found.doubtful(1000)
        assert found.share == pytest.approx(np.delete(~chosen, own).mean(), abs=0.02)
        assert found.gap == (column is gaps)
        assert len(found.sentence("a column of a usual name")) < 400
    assert "lack a value of 'age', and no node with one of these labels lacks it" in found.sentence("age")


@pytest.mark.parametrize("labels", [5, 40, 1000])
def test_columns_of_random_labels_are_seen(labels):
    rng = np.random.default_rng(10)
    for values in (2, 20, 500, 5000, 0):
        for _ in range(15):
            column = rng.integers(0, values, 2000).astype(float) if values else rng.standard_cauchy(2000)
            column[rng.random(2000) < 0.1] = np.nan
            found = unseen_values(column[:labels], column[labels:], named=bool(values))
            assert not found.doubtful(1)
