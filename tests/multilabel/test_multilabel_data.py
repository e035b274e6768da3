from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare_multilabel.data import PUBLISHED, data_root, load_multilabel
from tests.helpers.multilabel import small_data, write_npz

# rows, features, labels, train, test, cardinality: the publisher's table
FACTS = {
    "emotions": (593, 72, 6, 391, 202, 1.868),
    "scene": (2407, 294, 6, 1211, 1196, 1.074),
    "yeast": (2417, 103, 14, 1500, 917, 4.237),
    "enron": (1702, 1001, 53, 1123, 579, 3.378),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets_have_the_published_statistics(name):
    try:
        path = data_root() / "multilabel" / f"{name}.npz"
    except InputError:
        path = None
    if path is None or not path.is_file():
        pytest.skip(f"{name} is not here: set CALIRARE_DATA")
    data = load_multilabel(name, seed=3)
    rows, width, labels, train, test, cardinality = FACTS[name]
    assert data.x.shape == (rows, width)
    assert data.y.shape == (rows, labels)
    assert len(data.split.train) + len(data.split.val) == train
    assert len(data.split.val) == round(0.2 * train)
    assert data.split.test.tolist() == list(range(train, train + test))
    assert float(data.y.double().sum(1).mean()) == pytest.approx(cardinality, abs=5e-4, rel=0)


def test_validation_rows_depend_on_the_seed_and_test_rows_do_not(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    one, same, other = (load_multilabel(path, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.split.val, same.split.val)
    assert not torch.equal(one.split.val, other.split.val)
    assert torch.equal(one.split.test, other.split.test)
    assert sorted(one.split.train.tolist() + one.split.val.tolist()) == list(range(25))
    assert one.label_names == ("one", "two")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": np.full((40, 2), 2)}, "y must hold 0 or 1"),
        ({"Y": np.zeros((39, 2))}, "one row for each of the 40 rows"),
        ({"X": np.array([["a"] * 3] * 40)}, "x must hold numbers"),
        ({"test_idx": np.arange(20, 40)}, "node 20 stands in|a node must stand in one part"),
        ({"train_idx": np.arange(2)}, "at least 4 rows where val_idx is not given, .* validate, got 2"),
        ({"label_names": np.array(["one", "one"])}, "must differ, got 'one' for labels 0 and 1: rename one"),
        ({"indptr": np.zeros(41, int), "indices": np.zeros(3, int)}, "indptr|indices"),
        ({"indptr": np.concatenate([[0], np.ones(40, int)]), "indices": np.array([1])}, "symmetric|direction"),
    ],
)
def test_bad_files_are_named(tmp_path, changes, message):
    path = write_npz(tmp_path / "bad.npz", **changes)
    with pytest.raises(InputError, match=message) as error:
        load_multilabel(path)
    assert "\n" not in str(error.value)


def test_missing_and_unknown_data_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_multilabel(tmp_path / "none.npz")
    with pytest.raises(InputError, match="must be one of emotions, scene, yeast, enron"):
        load_multilabel("mnist")
    with pytest.raises(InputError, match="CALIRARE_DATA"):
        load_multilabel("emotions", root=tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match="damaged"):
        load_multilabel(tmp_path / "broken.npz")


def test_features_are_standardised_by_the_training_rows_alone():
    data = small_data()
    x = data.x.clone()
    x[:, 4] = 3.0
    x[data.split.test] += 100
    scaled = small_data(x=x).standardised()
    train = scaled.x[scaled.split.train].double()
    assert float(train.mean(0).abs().max()) < 1e-6
    np.testing.assert_allclose(train[:, :4].std(0, correction=0).numpy(), 1, rtol=1e-6, atol=0)
    assert train[:, 4].tolist() == [0.0] * len(train)
    before = x[data.split.train].double()
    expected = (x[data.split.test, 0].double() - before[:, 0].mean()) / before[:, 0].std(correction=0)
    np.testing.assert_allclose(scaled.x[data.split.test, 0].numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_of_nodes_do_not_wrap(tmp_path):
    n = 8
    indices = np.array([1, 0]) + np.array([2**32, 0])
    indptr = np.array([0, 1, 2] + [2] * (n - 2))
    rows = {"train_idx": np.arange(5), "test_idx": np.arange(5, n), "X": np.ones((n, 2)), "Y": np.eye(n, 2)}
    np.savez(tmp_path / "m.npz", indptr=indptr, indices=indices, **rows)
    with pytest.raises(InputError, match="indices must be from 0 to 7, got 0 to 4294967297"):
        load_multilabel(tmp_path / "m.npz")
