"""The published graphs against the statistics published with them; each test skips where its files are not."""

from pathlib import Path

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare_ext import Csr
from calirare_lab.published import CATALOGUE, data_root, data_roots
from calirare_lab.published.catalogue import find
from calirare_multilabel.data import cache_folder

# nodes, directed edges, features, non-zero features (None: dense), nodes per class, rare class, its share in per cent,
# isolated nodes, split sizes. CiteSeer's first class is without the 15 nodes that have no label.
PUBLISHED = {
    "cora": (2708, 10556, 1433, 49216, [351, 217, 418, 818, 426, 298, 180], 0, 12.96, 0, (140, 500, 1000)),
    "citeseer": (3327, 9104, 3703, 105165, [249, 590, 668, 701, 596, 508], 5, 15.27, 48, (120, 500, 1000)),
    "pubmed": (19717, 88648, 500, 988031, [4103, 7739, 7875], 0, 20.81, 0, (60, 500, 1000)),
    "dblp": (17716, 105734, 1639, 92192, [7920, 5645, 1982, 2169], 2, 11.19, 0, None),
    "facebook": (22470, 341646, 128, None, [6495, 3327, 5768, 6880], 1, 14.81, 0, None),
    "facebook_bag": (22470, 341646, 4714, 314583, [6495, 3327, 5768, 6880], 1, 14.81, 0, None),
}


def need(name):
    if find(CATALOGUE[name], data_roots()) is None:
        pytest.skip(f"{name} was not found in {', '.join(map(str, data_roots()))}")


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_graph_has_its_statistics(name):
    need(name)
    nodes, edges, features, nonzero, sizes, minority, share, isolated, split = PUBLISHED[name]
    graph = load_dataset(name)
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.minority) == (nodes, edges, features, minority)
    labelled = graph.original_y[graph.original_y >= 0]
    assert torch.bincount(labelled).tolist() == sizes
    assert round(100 * int((graph.y == 1).sum()) / nodes, 2) == share
    assert int((graph.adjacency.indptr.diff() == 0).sum()) == isolated
    assert isinstance(graph.x, Csr) == (nonzero is not None)
    if nonzero is not None:
        assert graph.x.nnz == nonzero
        assert graph.name == "pubmed" or set(graph.x.values.unique().tolist()) == {1.0}
    parts = (graph.split.train, graph.split.val, graph.split.test)
    if split:
        assert tuple(part.numel() for part in parts) == split
        assert graph.split.name == "public"
    else:
        assert [part.numel() for part in parts] == [20 * len(sizes), 500, 1000]
        assert graph.split.name == "random(label_rate=20, seed=0)"
    assert torch.bincount(graph.original_y[graph.split.train]).tolist() == [20] * len(sizes)


def test_citeseer_has_15_nodes_without_a_label_and_none_is_drawn():
    """The paper counts them in the rare class: (508 + 15) of 3,327 are its 15.72 %."""
    need("citeseer")
    graph = load_dataset("citeseer")
    assert graph.unlabelled.numel() == 15
    assert graph.y[graph.unlabelled].tolist() == graph.original_y[graph.unlabelled].tolist() == [-1] * 15
    assert round(100 * (508 + 15) / 3327, 2) == 15.72
    assert graph.minority_share == 508 / 3312
    for drawn in (load_dataset("citeseer", label_rate=40), load_dataset("citeseer", split="random", label_rate=240)):
        every = torch.cat([drawn.split.train, drawn.split.val, drawn.split.test])
        assert not np.isin(graph.unlabelled, every).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Cora", "CiteSeer"])
def test_planetoid_agrees_with_pytorch_geometric(name, tmp_path):
    """The same raw files read by PyTorch Geometric, on a copy because it writes beside them."""
    import shutil

    planetoid = pytest.importorskip("torch_geometric.datasets").Planetoid
    raw = data_root() / "planetoid" / name / "raw"
    if not raw.is_dir():
        pytest.skip(f"{raw} is not there")
    (tmp_path / name / "raw").mkdir(parents=True)
    for path in raw.iterdir():
        shutil.copyfile(path, tmp_path / name / "raw" / path.name)
    theirs = planetoid(str(tmp_path), name)[0]
    ours = load_dataset(name.lower())
    assert torch.equal(torch.stack([ours.adjacency.indices.long(), ours.adjacency.rows()]), theirs.edge_index)
    assert torch.equal(ours.x.to_dense(), theirs.x)
    labelled = ours.original_y >= 0
    assert torch.equal(ours.original_y[labelled], theirs.y[labelled])
    for mask, theirs_mask in zip(
        ours.split.masks(ours.n_nodes), (theirs.train_mask, theirs.val_mask, theirs.test_mask), strict=True
    ):
        assert torch.equal(mask, theirs_mask)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "digits"])
def test_a_data_set_that_is_not_there_says_what_to_put_where(name, tmp_path):
    with pytest.raises(InputError, match=rf"{name} was not found in {tmp_path}: put .* set CALIRARE_DATA"):
        load_dataset(name, tmp_path)


def test_sources_are_pinned_and_checked():
    for files in (entry.sources for entry in CATALOGUE.values()):
        for file in files:
            assert file.url.startswith("https://")
            assert len([part for part in file.url.split("/") if len(part) == 40]) == 1, "the commit"
            assert len(file.sha256) == 64
            assert file.n_bytes > 0
            assert not Path(file.target).is_absolute()


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CALIRARE_DATA", raising=False)
    assert cache_folder() == tmp_path / "cache" / "calirare"
    assert data_roots()[-1] == cache_folder()
    monkeypatch.setenv("CALIRARE_DATA", str(tmp_path))
    assert data_roots() == (tmp_path, cache_folder())
    assert data_root() == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    assert data_roots(other) == (other,)
    monkeypatch.setenv("CALIRARE_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"CALIRARE_DATA must be an existing folder, got .*none"):
        data_roots()
    with pytest.raises(InputError, match="root must be an existing folder"):
        load_dataset("cora", tmp_path / "none")
