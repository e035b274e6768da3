"""Splits: sizes per class before merging, determinism, disjointness, and what cannot be drawn."""

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import splits
from calirare.graph.splits import Split, split_note

Y = torch.from_numpy(np.random.default_rng(7).permutation(np.repeat([0, 1, 2, -1], [400, 1500, 60, 40])))
NONE = torch.tensor([], dtype=torch.long)


@pytest.mark.parametrize("label_rate", [1, 20, 40])
def test_every_original_class_gets_the_same_number(label_rate):
    split = Split.random(Y, label_rate)
    assert torch.bincount(Y[split.train]).tolist() == [label_rate] * 3
    assert (split.val.numel(), split.test.numel()) == (500, 1000)
    every = torch.cat([split.train, split.val, split.test])
    assert every.unique().numel() == every.numel()
    assert bool((Y[every] >= 0).all())
    assert split.name == f"random(label_rate={label_rate}, seed=0)"


def test_the_seed_decides():
    first, again, other = Split.random(Y, seed=3), Split.random(Y, seed=3), Split.random(Y, seed=4)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(first, part), getattr(again, part))
        assert not torch.equal(getattr(first, part), getattr(other, part))


def test_val_and_test_follow_the_population():
    """Over many seeds the share of class 1 among the test nodes is its share among the nodes left by training."""
    shares = [float((Y[Split.random(Y, seed=seed).test] == 1).double().mean()) for seed in range(40)]
    left = 1480 / (380 + 1480 + 40)
    # The mean of 40 draws of 1,000 nodes without replacement has a standard deviation below .0024; five of them.
    assert abs(np.mean(shares) - left) < 0.012


def test_a_class_smaller_than_the_label_rate_is_named():
    with pytest.raises(
        InputError, match=r"at least 61 nodes free to train on, but class 2 \(rare\) has 60: lower label_rate"
    ):
        Split.random(Y, 61, class_names=("a", "b", "rare"))


def test_nothing_is_drawn_of_a_class_that_does_not_occur():
    gap = torch.where(Y == 1, 3, Y)
    split = Split.random(gap, 20, 100, 200, seed=1)
    assert torch.bincount(gap[split.train]).tolist() == [20, 0, 20, 20]
    dense = torch.tensor([0, -1, 1, 2, -1])[gap]  # the last for -1
    want = Split.random(dense, 20, 100, 200, seed=1)
    assert torch.equal(split.train, want.train), "the numbers of the classes change no draw"
    with pytest.raises(InputError, match="class 2 has 60: lower label_rate"):
        Split.random(gap, 61)


def test_splits_where_every_class_occurs_are_those_of_earlier_versions():
    train, val = [61, 242, 264, 702, 1063, 1219, 1434, 1587, 1819], [128, 463, 1009, 1077]
    split = Split.random(Y, 3, 4, 5, seed=11)
    assert split.train.tolist() == train
    assert split.val.tolist() == val


def test_a_small_graph_shrinks_in_proportion_and_says_so():
    y = torch.arange(120) % 2
    split = Split.random(y, 10)
    assert (split.train.numel(), split.val.numel(), split.test.numel()) == (20, 33, 67)
    assert split.name == "random(label_rate=10, seed=0), shrunk to 33 val and 67 test nodes of 500 and 1000"


@pytest.mark.parametrize("wrong", [{"label_rate": 0}, {"n_val": -1}, {"n_test": -1}, {"seed": -1}])
def test_numbers_must_be_in_range(wrong):
    with pytest.raises(InputError, match=f"Split.random: {next(iter(wrong))} must be >="):
        Split.random(Y, **wrong)


def test_a_node_stands_in_one_part_once():
    with pytest.raises(InputError, match=r"node 3 stands in train and test \(1 such\)"):
        Split(torch.tensor([1, 3]), NONE, torch.tensor([3, 5]))
    with pytest.raises(InputError, match="node 1 stands in val"):
        Split(NONE, torch.tensor([1, 1]), NONE)
    with pytest.raises(InputError, match="node ids must be >= 0, got -2"):
        Split(torch.tensor([-2]), NONE, NONE)
    with pytest.raises(InputError, match="val must be a vector"):
        Split(NONE, torch.zeros(1, 1, dtype=torch.long), NONE)
    with pytest.raises(TypeError, match="test must be int64, got int32"):
        Split(NONE, NONE, torch.zeros(1, dtype=torch.int32))


def test_masks_and_ids_are_the_same_split():
    split = Split(torch.tensor([4, 1]), torch.tensor([0]), torch.tensor([3]))
    assert split.train.tolist() == [1, 4]
    masks = split.masks(6)
    assert masks[0].tolist() == [False, True, False, False, True, False]
    back = Split.from_masks(*masks)
    assert [getattr(back, part).tolist() for part in ("train", "val", "test")] == [[1, 4], [0], [3]]
    with pytest.raises(InputError, match=r"train_mask must be a bool vector, got bool of .*choose one of several"):
        Split.from_masks(torch.ones(6, 10, dtype=torch.bool), *masks[1:])
    with pytest.raises(InputError, match="val_mask must have one entry per node, got 5 for 6 nodes"):
        Split.from_masks(masks[0], masks[1][:5], masks[2])


def test_a_share_of_every_class_tests_and_no_label_lies_idle(monkeypatch):
    y = torch.tensor([0] * 101 + [1] * 7 + [2] + [-1] * 50)
    split = Split.share(y, seed=3)
    assert split.val.numel() == 0
    assert torch.bincount(y[split.test], minlength=3).tolist() == [25, 1, 0]
    assert torch.bincount(y[split.train], minlength=3).tolist() == [76, 6, 1]
    assert split.name == "share(test=0.25, seed=3)"
    assert Split.share(y, seed=3).test.tolist() == split.test.tolist() != Split.share(y, seed=4).test.tolist()
    monkeypatch.setattr(splits, "N_TRAIN", 20)
    few = Split.share(y)
    assert torch.bincount(y[few.train], minlength=3).tolist() == [18, 1, 1]
    assert few.test.numel() == 109 - 20
    assert few.name == "share(test=0.25, n_train=20, seed=0)"
    for wrong in ({"test_share": 1.0}, {"seed": -1}):
        with pytest.raises(InputError, match=f"Split.share: {next(iter(wrong))} must"):
            Split.share(y, **wrong)


@pytest.mark.parametrize(("test_share", "n_rare", "said"), [(0.0, 39, True), (0.0, 40, False), (0.25, 39, False)])
def test_it_is_said_where_too_few_labels_are_rare_to_test(test_share, n_rare, said):
    split = Split.share(torch.tensor([0] * 50 + [1] * n_rare), test_share=test_share)
    assert bool(split_note(split, n_rare)) == said
    assert not split_note(Split(split.train, split.val, split.val), n_rare), "a split of the user's own"
