"""Public splits enlarged to a higher label rate."""

import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Split
from calirare_lab.published import raise_label_rate

Y = torch.cat([torch.zeros(1500), torch.ones(440), torch.full((60,), 2)]).long()


def test_training_nodes_are_added_and_val_and_test_stay():
    split = Split.random(Y, 20, 100, 200)
    more = raise_label_rate(split, Y, 30, seed=5)
    assert torch.bincount(Y[more.train]).tolist() == [30, 30, 30]
    assert torch.isin(split.train, more.train).all()
    assert torch.equal(more.val, split.val)
    assert torch.equal(more.test, split.test)
    assert torch.equal(more.train, raise_label_rate(split, Y, 30, seed=5).train)
    assert not torch.equal(more.train, raise_label_rate(split, Y, 30, seed=6).train)
    assert raise_label_rate(split, Y, 20) is split
    assert more.name.endswith("with random nodes added (label_rate=30, seed=5)")


def test_the_label_rate_cannot_fall_or_outrun_a_class():
    split = Split.random(Y, 20)
    with pytest.raises(InputError, match="got 10, but class 0 has 20: take split='random'"):
        raise_label_rate(split, Y, 10)
    with pytest.raises(InputError, match="class 2 has"):
        raise_label_rate(split, Y, 60)
