"""Simulated graphs have the moments and probabilities of their docstring; the digits are those embedded."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from calirare._util.errors import InputError
from calirare.datasets import digits, load_dataset, synthetic_rare
from calirare.datasets.embedded import nearest_neighbours
from calirare.graph.validation import check_adjacency, check_features


def logit(p):
    return np.log(p) - np.log1p(-p)


@pytest.mark.parametrize("labels", ["block", "posterior"])
@pytest.mark.parametrize(("n_nodes", "mean_degree", "share"), [(10, 1, 0.3), (500, 4, 0.02), (3000, 16, 0.5)])
def test_what_is_built_unchecked_passes_every_check(labels, n_nodes, mean_degree, share):
    graph = synthetic_rare(n_nodes, share=share, mean_degree=mean_degree, n_features=5, labels=labels, seed=3)
    check_adjacency(graph.adjacency, "synthetic")
    check_features(graph.x, n_nodes, "synthetic")
    assert not bool((graph.adjacency.rows() == graph.adjacency.indices).any())
    assert set(graph.adjacency.values.tolist()) <= {1.0}
    assert set(graph.y.tolist()) == {0, 1}


def test_the_seed_decides_everything():
    first, again, other = (synthetic_rare(2000, n_features=8, seed=seed) for seed in (5, 5, 6))
    for part in ("x", "y", "posterior"):
        assert torch.equal(getattr(first, part), getattr(again, part))
        assert not torch.equal(getattr(first, part), getattr(other, part))
    assert torch.equal(first.adjacency.indices, again.adjacency.indices)


def test_the_share_is_met_exactly_by_blocks():
    for share in (0.001, 0.1, 0.9):
        assert int(synthetic_rare(5000, share=share, n_features=1).y.sum()) == round(5000 * share)
    assert int(synthetic_rare(100, share=1e-6, n_features=1).y.sum()) == 1
    assert synthetic_rare(1000, share=0.1).minority_share == 0.1


def test_edges_follow_the_block_model():
    """Given one end, the other lies in the same block with probability h + (1 - h) * the block's share of all ends."""
    graph = synthetic_rare(40_000, share=0.25, mean_degree=12, n_features=1, homophily=0.6, seed=1)
    degree = graph.adjacency.indptr.diff().double()
    assert abs(float(degree.mean()) - 12) < 0.04 * 12
    same = graph.y[graph.adjacency.rows()] == graph.y[graph.adjacency.indices.long()]
    for block in (0, 1):
        mine = graph.y == block
        share_of_ends = float(degree[mine].sum() / degree.sum())
        found = float(same[mine[graph.adjacency.rows()]].double().mean())
        # About 120,000 edges per block: a standard deviation below .0015; repeated edges bias hubs a little.
        assert abs(found - (0.6 + 0.4 * share_of_ends)) < 0.01
        assert abs(float(degree[mine].mean()) - 12) < 0.05 * 12


def test_one_feature_gives_the_posterior_of_two_normals():
    share, separation = 0.2, 1.5
    graph = synthetic_rare(4000, share=share, n_features=1, separation=separation, seed=2)
    x = graph.x[:, 0].double().numpy()
    sign = np.sign(x[graph.y == 1].mean() - x[graph.y == 0].mean())
    rare, rest = (norm.pdf(x, loc=side * sign * separation / 2) for side in (1, -1))
    want = share * rare / (share * rare + (1 - share) * rest)
    # The features are stored in float32: a relative rounding of 2^-24 each, times the slope.
    bound = 2**-22 * separation * (1 + np.abs(x)) + 1e-12
    assert (np.abs(logit(graph.posterior.numpy()) - logit(want)) < bound).all()


@pytest.mark.parametrize("labels", ["block", "posterior"])
@pytest.mark.parametrize("seed", range(3))
def test_labels_agree_with_the_posterior(labels, seed):
    """Among nodes of like posterior the share of rare ones is their mean posterior, up to five standard deviations."""
    graph = synthetic_rare(40_000, share=0.15, n_features=4, labels=labels, seed=seed)
    p, y = graph.posterior.numpy(), graph.y.numpy()
    for part in np.array_split(np.argsort(p), 10):
        deviation = np.sqrt((p[part] * (1 - p[part])).sum()) + 1
        assert abs(y[part].sum() - p[part].sum()) < 5 * deviation
    wrong = 1 / (1 + np.exp(-0.7 * logit(p)))
    top = np.argsort(p)[-4000:]
    assert abs(y[top].sum() - wrong[top].sum()) > 5 * np.sqrt((wrong[top] * (1 - wrong[top])).sum())


def test_drawn_labels_have_log_odds_linear_in_the_neighbourhood_mean():
    n = 400
    graph = synthetic_rare(n, share=0.3, n_features=3, labels="posterior", seed=1)
    a = graph.adjacency.to_dense().double().numpy() + np.eye(n)
    mean = (a @ graph.x.double().numpy()) / a.sum(1, keepdims=True)
    design = np.column_stack([mean, np.ones(n)])
    target = logit(graph.posterior.numpy())
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    assert np.abs(design @ solution - target).max() < 1e-4
    assert abs(target.std() - 3.0) < 1e-6
    assert abs(float(graph.posterior.mean()) - 0.3) < 1e-12


def test_drawn_labels_are_independent_given_the_posterior():
    """Residuals of neighbours do not correlate, as they would if edges told more than the posterior."""
    graph = synthetic_rare(40_000, share=0.3, n_features=2, labels="posterior", seed=8)
    p, y = graph.posterior.numpy(), graph.y.numpy()
    z = (y - p) / np.sqrt(p * (1 - p))
    rows, cols = graph.adjacency.rows().numpy(), graph.adjacency.indices.numpy()
    assert abs(np.mean(z[rows] * z[cols])) < 0.03
    block = synthetic_rare(40_000, share=0.3, n_features=2, labels="block", seed=8)
    p, y = block.posterior.numpy(), block.y.numpy()
    z = (y - p) / np.sqrt(p * (1 - p))
    rows, cols = block.adjacency.rows().numpy(), block.adjacency.indices.numpy()
    assert np.mean(z[rows] * z[cols]) > 0.15


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_nodes": 9},
        {"share": 0.0},
        {"share": float("nan")},
        {"mean_degree": 0.99},
        {"n_features": 0},
        {"degree_exponent": 2},
        {"homophily": 1.1},
        {"separation": -1},
        {"labels": "both"},
        {"seed": -1},
    ],
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=f"synthetic_rare: {next(iter(wrong))} must be .*, got "):
        synthetic_rare(**({"n_nodes": 100} | wrong))


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
    graph = load_dataset("digits", rare_class=1, label_rate=40)
    assert graph.class_names == ("rest", "1")
    assert graph.split.train.numel() == 400
    assert graph.split.name.endswith("shrunk to 465 val and 932 test nodes of 500 and 1000")
    with pytest.raises(InputError, match="class 8 has 174: lower label_rate"):
        load_dataset("digits", label_rate=175)
    with pytest.raises(InputError, match="there is no class 10"):
        load_dataset("digits", rare_class=10)
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
    assert load_dataset("digits", symmetrize=False, nodes=None).n_nodes == 1797


@pytest.mark.parametrize("k", [0, -1, 1797, 10**9])
def test_k_must_leave_a_node_over(k):
    with pytest.raises(InputError, match=f"k must be from 1 to 1796, one less than the nodes, got {k}"):
        digits(k)
