"""Data that the lab makes for `calirare multilabel train`: simulated graphs and folders of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare_lab.multilabel.graphs import simulated_graph
from calirare_lab.multilabel.images import load_images
from calirare_multilabel.data import load_multilabel, save_multilabel
from tests.helpers.multilabel import write_images


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got the columns none and 0 rows"),
        ("name,a\n1.png,0\n", "must have a column `file`"),
        ("file,a\n1.png,2\n", "row 2 must have a file and 0 or 1 for each label, got '2' for 'a'"),
        ("file,split,a\n0.jpg,fit,0\n", "split must be train, val or test, got 'fit'"),
        ("file,a\nnone.png,0\n", "none.png: the image is missing or cannot be read"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, message):
    write_images(tmp_path / "images", n=2)
    table = tmp_path / "bad.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=message):
        load_images(tmp_path / "images", table, size=8)
