"""The embedded digits, against scikit-learn's own nearest neighbours."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from calirare._util.errors import InputError
from calirare.datasets import digits, load_dataset
from calirare.datasets.embedded import nearest_neighbours


@pytest.mark.slow
def test_the_graph_is_that_of_the_nearest_neighbours():
    """Ties may fall either way in scikit-learn, so the distances are compared, not the neighbours."""
    pixels = load_digits().data
    k = 10
    found = nearest_neighbours(pixels.astype(np.int64), k).reshape(-1, k, 2)
    assert np.array_equal(found[:, :, 0], np.repeat(np.arange(1797)[:, None], k, 1))
    assert (found[:, :, 1] != found[:, :, 0]).all()
    ours = np.sort(((pixels[:, None] - pixels[found[:, :, 1]]) ** 2).sum(2), axis=1)
    theirs, _ = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(pixels).kneighbors()
    # Square roots of whole numbers: rounding their squares gives the numbers back.
    assert np.array_equal(ours, np.rint(theirs**2))


def test_ties_go_to_the_lower_number():
    points = np.array([[0], [1], [-1], [2], [-2]])
    assert nearest_neighbours(points, 1).tolist() == [[0, 1], [1, 0], [2, 0], [3, 1], [4, 2]]
    assert nearest_neighbours(points, 3)[:3].tolist() == [[0, 1], [0, 2], [0, 3]]


def test_two_images_are_joined_where_either_is_near_the_other():
    graph = digits(3)
    directed = torch.zeros(1797, 1797)
    edges = torch.from_numpy(nearest_neighbours((graph.x * 16).long().numpy(), 3))
    directed[edges[:, 0], edges[:, 1]] = 1
    assert torch.equal(graph.adjacency.to_dense(), torch.maximum(directed, directed.T))


def test_the_task_by_default():
    graph = load_dataset("digits")
    assert (graph.n_nodes, graph.n_edges, graph.n_features) == (1797, 24678, 64)
    assert torch.bincount(graph.original_y).tolist() == np.bincount(load_digits().target).tolist()
    assert int(graph.y.sum()) == 174
    assert (float(graph.x.min()), float(graph.x.max())) == (0, 1)
    assert [graph.split.train.numel(), graph.split.val.numel(), graph.split.test.numel()] == [200, 500, 1000]
    assert graph.split.name == "random(label_rate=20, seed=0)"
    again = load_dataset("digits", seed=1)
    assert torch.equal(again.adjacency.indices, graph.adjacency.indices)
    assert not torch.equal(again.split.train, graph.split.train)


@pytest.mark.slow
def test_another_digit_and_label_rate():
    graph = load_dataset("digits", minority=1, label_rate=40)
    assert graph.class_names == ("rest", "1")
    assert graph.split.train.numel() == 400
    assert graph.split.name.endswith("shrunk to 465 val and 932 test nodes of 500 and 1000")
    with pytest.raises(InputError, match="class 8 has 174: lower label_rate"):
        load_dataset("digits", label_rate=175)
    with pytest.raises(InputError, match="there is no class 10"):
        load_dataset("digits", minority=10)
    with pytest.raises(InputError, match="digits has no public split"):
        load_dataset("digits", split="public")
    with pytest.raises(InputError, match="split must be one of public, random, share, all, time, got 'half'"):
        load_dataset("digits", split="half")
    with pytest.raises(
        InputError, match="symmetrize must be left out for the data set digits, it is for the user's own"
    ):
        load_dataset("digits", symmetrize=True)
    with pytest.raises(InputError, match="label must be left out for the data set digits, it is for edge tables"):
        load_dataset("digits", label="y")
    assert load_dataset("digits", symmetrize=False, features=None).n_nodes == 1797


@pytest.mark.parametrize("k", [0, -1, 1797, 10**9])
def test_k_must_leave_a_node_over(k):
    with pytest.raises(InputError, match=f"k must be from 1 to 1796, one less than the nodes, got {k}"):
        digits(k)
