"""Labels and parts of a split in tables that are only scored: what is not needed refuses nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare import load_dataset
from calirare._util.errors import InputError
from calirare.datasets import read_graph

PARTS = ["train", "train", "test", "", "val", ""]


def tables(folder, labels):
    nodes = pd.DataFrame({"node": range(6), "x": np.arange(6) / 3, "label": labels, "split": PARTS})
    nodes.to_csv(folder / "n.csv", index=False)
    pd.DataFrame({"source": range(5), "target": range(1, 6)}).to_csv(folder / "e.csv", index=False)
    return {"path_or_name": folder / "e.csv", "features": folder / "n.csv"}


@pytest.mark.parametrize("labels", [[""] * 6, ["0.5", "1", "0", "", "1", "0"], ["-3", "1", "0", "", "1", "0"]])
def test_a_table_to_score_is_read_without_them(tmp_path, labels):
    given = tables(tmp_path, labels)
    path = given.pop("path_or_name")
    graph, _ = read_graph(path, **given, need_label=False)
    assert graph.y is None
    assert any(note.startswith("nodes: no label is read, nor needed here: ") for note in graph.notes)
    with pytest.raises(InputError, match=r"must have a label|labels must be names or whole numbers"):
        load_dataset(path, **given)


def test_labels_that_can_be_read_are(tmp_path):
    given = tables(tmp_path, ["1", "0", "0", "", "1", ""])
    graph, _ = read_graph(given.pop("path_or_name"), **given, need_label=False)
    assert graph.y.tolist() == [1, 0, 0, -1, 1, -1]
    assert graph.split.train.tolist() == [0, 1]
