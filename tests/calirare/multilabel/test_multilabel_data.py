from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets.places import data_root
from calirare.multilabel.data import PUBLISHED, hold_out, load_multilabel
from calirare.multilabel.graphs import save_multilabel, simulated_graph
from calirare.multilabel.images import load_images
from tests.helpers.multilabel import small_data, write_images, write_npz

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


def test_a_given_validation_part_is_kept(tmp_path):
    path = write_npz(tmp_path / "a.npz", train_idx=np.arange(20), val_idx=np.arange(20, 25))
    assert load_multilabel(path).split.val.tolist() == list(range(20, 25))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": None}, "y is missing"),
        ({"Y": np.full((40, 2), 2)}, "y must hold 0 or 1"),
        ({"Y": np.zeros((39, 2))}, "one row for each of the 40 rows"),
        ({"X": np.full((40, 3), np.nan)}, "finite"),
        ({"X": np.array([["a"] * 3] * 40)}, "x must hold numbers"),
        ({"test_idx": np.arange(20, 40)}, "node 20 stands in|a node must stand in one part"),
        ({"test_idx": np.arange(40, 45)}, "must name rows below 40"),
        ({"train_idx": np.arange(2)}, "at least 4 rows where val_idx is not given, .* validate, got 2"),
        ({"train_idx": np.arange(3)}, "at least 4 rows where val_idx is not given"),
        ({"train_idx": np.arange(1), "val_idx": np.arange(5, 9)}, "the train part must hold at least 2 rows, got 1"),
        ({"label_names": np.array(["one"])}, "must name 2 labels"),
        ({"label_names": np.array(["one", "one"])}, "must differ, got 'one' for labels 0 and 1: rename one"),
        ({"indptr": np.zeros(41, int), "indices": np.zeros(3, int)}, "indptr|indices"),
        ({"indptr": np.zeros(5, int), "indices": np.zeros(0, int)}, "adjacency must be 40 x 40"),
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


@pytest.mark.parametrize(("n", "held"), [(2, 1), (3, 1), (4, 2), (10, 2), (100, 20)])
def test_hold_out_sizes(n, held):
    stay, out = hold_out(torch.arange(n), 0)
    assert len(out) == held
    assert sorted(stay.tolist() + out.tolist()) == list(range(n))


def test_simulated_graph_is_what_it_says_and_survives_the_file(tmp_path):
    data = simulated_graph(600, n_labels=4, share=0.1, seed=2)
    np.testing.assert_allclose(data.y.double().mean(0).numpy(), [0.05, 0.1, 0.15, 0.2], rtol=0, atol=1 / 600)
    assert bool((data.y.sum(1) > 1).any())
    # nodes that share a label are neighbours far more often than others
    rows, cols = data.adjacency.rows(), data.adjacency.indices.long()
    both = (data.y[:, None] & data.y[None]).any(2)
    linked = torch.zeros(600, 600, dtype=torch.bool)
    linked[rows, cols] = True
    assert float(linked[both].double().mean()) > 3 * float(linked[~both].double().mean())
    save_multilabel(data, tmp_path / "graph.npz")
    again = load_multilabel(tmp_path / "graph.npz")
    assert torch.equal(again.x, data.x)
    assert torch.equal(again.y, data.y)
    assert torch.equal(again.adjacency.indices, data.adjacency.indices)
    assert torch.equal(again.split.val, data.split.val)
    assert again.label_names == data.label_names
    same = simulated_graph(600, n_labels=4, share=0.1, seed=2)
    assert torch.equal(same.x, data.x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_nodes": 10}, "n_nodes must be at least 50"),
        ({"n_labels": 0}, "n_labels must be at least 1"),
        ({"share": 0.9}, "shares must lie in"),
    ],
)
def test_bad_simulated_graphs_are_named(options, message):
    with pytest.raises(InputError, match=message):
        simulated_graph(**options)


def test_a_one_sided_graph_is_refused(tmp_path):
    indptr = np.concatenate([[0], np.ones(40, int)])
    path = write_npz(tmp_path / "bad.npz", indptr=indptr, indices=np.array([1]))
    with pytest.raises(InputError, match=r"symmetric|direction"):
        load_multilabel(path)


def test_images_are_read_with_their_table(tmp_path):
    table = write_images(tmp_path / "images", split=True)
    data = load_images(tmp_path / "images", table, size=16)
    assert data.x.shape == (60, 3, 16, 16)
    assert 0 <= float(data.x.min()) < float(data.x.max()) <= 1
    assert data.label_names == ("red", "blue")
    assert [len(part) for part in (data.split.train, data.split.val, data.split.test)] == [20, 20, 20]
    blue = data.y[:, 1]
    assert float(data.x[blue, 2, :, 13].mean()) > 0.7 > float(data.x[~blue, 2, :, 13].mean())
    scaled = data.standardised().x[data.split.train]
    assert float(scaled.mean((0, 2, 3)).abs().max()) < 1e-5


def test_images_without_split_are_split_by_the_seed(tmp_path):
    table = write_images(tmp_path / "images")
    parts = [load_images(tmp_path / "images", table, size=8, seed=seed).split for seed in (0, 0, 1)]
    assert [len(parts[0].test), len(parts[0].val), len(parts[0].train)] == [12, 10, 38]
    assert torch.equal(parts[0].test, parts[1].test)
    assert not torch.equal(parts[0].test, parts[2].test)


def test_precomputed_features_replace_the_pixels(tmp_path):
    table = write_images(tmp_path / "images")
    with table.open() as file:
        files = [row["file"] for row in csv.DictReader(file)]
    features = np.random.default_rng(0).normal(size=(60, 7))
    np.savez(tmp_path / "f.npz", files=np.array(files[::-1]), features=features[::-1])
    data = load_images(tmp_path / "images", table, features=tmp_path / "f.npz")
    np.testing.assert_array_equal(data.x.numpy(), features.astype(np.float32))
    np.savez(tmp_path / "f.npz", files=np.array(files[1:]), features=features[1:])
    with pytest.raises(InputError, match=r"0\.jpg is missing"):
        load_images(tmp_path / "images", table, features=tmp_path / "f.npz")
    np.savez(tmp_path / "f.npz", files=np.array(files), features=features[1:])
    with pytest.raises(InputError, match="one row per entry of files"):
        load_images(tmp_path / "images", table, features=tmp_path / "f.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got the columns none and 0 rows"),
        ("name,a\n1.png,0\n", "must have a column `file`"),
        ("file\n1.png\n", "a column of 0/1 per label"),
        ("file,a\n1.png,2\n", "row 2 must have a file and 0 or 1 for each label, got '2' for 'a'"),
        ("file,a\n1.png\n", "row 2 must have a file and 0 or 1"),
        ("file,a\n1.png,0,1\n", "no more cells than columns"),
        ("file,split,a\n0.jpg,fit,0\n", "split must be train, val or test, got 'fit'"),
        ("file,a\nnone.png,0\n", "none.png: the image is missing or cannot be read"),
        ("file,a\nlabels.csv,0\n", "the image is missing or cannot be read"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, message):
    write_images(tmp_path / "images", n=2)
    table = tmp_path / "bad.csv"
    table.write_text(text)
    (tmp_path / "images" / "labels.csv").write_text("no image")
    with pytest.raises(InputError, match=message):
        load_images(tmp_path / "images", table, size=8)


def test_missing_folder_and_table_are_named(tmp_path):
    with pytest.raises(InputError, match="no such folder of images"):
        load_images(tmp_path / "none", tmp_path / "none.csv")
    with pytest.raises(InputError, match="no such table of labels"):
        load_images(tmp_path, tmp_path / "none.csv")
