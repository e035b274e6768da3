"""`calirare recalibrate` of runs of many classes: maps fitted on fresh labels, with which all of a run agrees."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

import calirare
from calirare._util.run_files import seal
from calirare.calibration import PriorPlattCalibrator
from calirare.metrics import nll
from calirare.run import SavedRun, recalibrated
from tests.helpers.classes import NAMES, SHARES, SHIFTED, blocks, file_of, without_pictures
from tests.helpers.command import assert_refused, call, succeed

P = [f"p_{name}" for name in NAMES]
TABLES = {"metrics.json", "predictions.csv", "predictions.parquet", "review.csv", "reliability.png", "classes.png"}
FAST = ("--task", "classes", "--model", "gcn", "--epochs", "60", "--folds", "0")


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with without_pictures():
        yield


@pytest.fixture(scope="module")
def own() -> calirare.Graph:
    """The graph of the run: every third node has no label."""
    graph = blocks(900)
    return dataclasses.replace(graph, y=torch.where(torch.arange(900) % 3 == 0, -1, graph.y))


@pytest.fixture(scope="module")
def run(own, tmp_path_factory) -> Path:
    """A run of many classes. Read only."""
    folder = tmp_path_factory.mktemp("classes")
    succeed("train", "--dataset", file_of(own, folder, "own"), *FAST, "--out", folder / "run")
    return folder / "run"


def probabilities(saved: SavedRun, graph: calirare.Graph) -> torch.Tensor:
    return torch.tensor(saved.predict(graph, str)[P].to_numpy())


def losses(old: SavedRun, new: SavedRun, graph: calirare.Graph, fresh: int) -> tuple[float, float]:
    """Log loss of the nodes after the first `fresh`, which no map has seen, before and after."""
    was, now = (float(nll(graph.y[fresh:], probabilities(saved, graph)[fresh:])) for saved in (old, new))
    return was, now


def told(folder: Path, name: str = "recalibration.json") -> dict:
    return json.loads((folder / name).read_text())


def test_shares_that_have_shifted_are_mended_and_all_agrees(run, own, tmp_path):
    graph = blocks(2000, SHIFTED, seed=1)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    fresh = file_of(graph, tmp_path, "fresh", y=torch.where(torch.arange(2000) < 400, graph.y, -1))
    said = succeed("recalibrate", "--run", run, "--graph", fresh, "--out", tmp_path / "new")
    assert said.out.startswith("400 fresh labels of 4 classes\n")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    old, new = calirare.load(run), calirare.load(tmp_path / "new")
    was, now = losses(old, new, graph, 400)
    assert now < was - 0.3
    mean, truth = probabilities(new, graph)[400:].mean(0), torch.bincount(graph.y[400:]) / 1600
    assert float((mean - truth).abs().max()) < 0.05
    assert float((probabilities(old, graph)[400:].mean(0) - truth).abs().max()) > 0.2, "or there is nothing to mend"
    facts = told(tmp_path / "new")
    assert facts["labels_of"] == dict(zip(NAMES, torch.bincount(graph.y[:400]).tolist(), strict=True))
    assert (facts["labels"], facts["own_graph"], facts["graph"]) == (400, False, "fresh")
    assert facts["after"]["log_loss"] < facts["before"]["log_loss"]
    assert facts["before"]["log_loss"] == pytest.approx(float(nll(graph.y[:400], probabilities(old, graph)[:400])))
    assert torch.equal(old.fit.logits_of(old.mapped(own)), new.fit.logits_of(new.mapped(own)))
    assert new.predict(graph, lambda note: pytest.fail(note)) is not None
    assert not TABLES & {path.name for path in (tmp_path / "new").iterdir()}
    assert "it has no metrics.json, as it was recalibrated" in call("report", "--run", tmp_path / "new").err


def test_a_sharpness_that_is_wrong_is_mended_by_a_map_of_the_same_kind(run):
    graph, saved = blocks(2000, seed=2), calirare.load(run)
    good = saved.scorer.calibrators
    wrong = {t: PriorPlattCalibrator.from_state(c.state()) for t, c in good.items()}
    for each in wrong.values():
        each.theta_[0] += math.log(4)
    scorer = dataclasses.replace(saved.scorer, calibrators=wrong)
    sharp = dataclasses.replace(saved, scorer=scorer)
    fresh = dataclasses.replace(graph, y=torch.where(torch.arange(2000) < 400, graph.y, -1))
    found = recalibrated(sharp, fresh, str)
    was, now = losses(sharp, found.run, graph, 400)
    assert now < was - 0.1
    assert now < losses(saved, found.run, graph, 400)[0] + 0.02, "as good as the map of before"
    for target, each in found.run.scorer.calibrators.items():
        assert type(each) is type(good[target]) is PriorPlattCalibrator
        assert each.get_params() == good[target].get_params()
        assert 0.5 < each.scale_ / good[target].scale_ < 2


def test_other_maps_stay_of_their_kind(own, tmp_path):
    labelled, how = file_of(own, tmp_path, "own"), ("--method", "ts", "--split", "random")
    succeed("train", "--dataset", labelled, *FAST, *how, "--label-rate", 20, "--out", tmp_path / "run")
    fresh = file_of(blocks(600, SHARES, seed=3, labelled=200), tmp_path, "fresh")
    succeed("recalibrate", "--run", tmp_path / "run", "--graph", fresh, "--out", tmp_path / "new")
    old, new = (calirare.load(tmp_path / name).scorer.calibrators for name in ("run", "new"))
    assert {t: (type(c), c.get_params()) for t, c in new.items()} == {
        t: (type(c), c.get_params()) for t, c in old.items()
    }
    assert all(new[t].state() != old[t].state() for t in new)


def table_of(nodes: list[int], graph: calirare.Graph, path: Path) -> Path:
    pd.DataFrame({"node": nodes, "label": [NAMES[c] for c in graph.y[nodes].tolist()]}).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_labels_of_the_run_s_own_nodes_in_place(run, own, tmp_path):
    folder, truth = shutil.copytree(run, tmp_path / "run"), blocks(900)
    saved = calirare.load(run)
    nodes = list(range(0, 600, 3)) + saved.fit.nodes.tolist()[:5] + saved.split.test.tolist()[:30]
    labels = table_of(nodes, truth, tmp_path / "new.csv")
    said = succeed("recalibrate", "--run", folder, "--labels", labels, "--overwrite")
    assert said.out.startswith("230 fresh labels of 4 classes\n")
    assert f"the {len(saved.fit.nodes)} labels that trained are left out" in " ".join(said.err.split())
    changed = {path.name for path in folder.iterdir() if path.read_bytes() != _or_nothing(run / path.name)}
    assert changed == {"model.safetensors", "recalibration.json", "files.json"}
    assert "tables and pictures of" in said.out
    facts = told(folder)
    assert (facts["own_graph"], facts["labels"]) == (True, 230)
    succeed("report", "--run", folder)
    page = " ".join((folder / "report.html").read_text().split())
    assert "The run was recalibrated on fresh labels." in page
    assert "Groups of fewer than" in page, "slices are there"
    note = call("update", "--run", folder, "--labels", labels, "--out", tmp_path / "two").err
    assert "so P(class) moves by that too: recalibrate the new run again" in " ".join(note.split())


def _or_nothing(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_classes_go_by_their_names(run):
    saved, graph = calirare.load(run), blocks(800, seed=4)
    y = torch.where((graph.y == 3) | (torch.arange(800) > 400), -1, graph.y)
    plain = dataclasses.replace(graph, y=y)
    others = (NAMES[2], NAMES[0], NAMES[1])  # of a table without the last, in another order
    turned = dataclasses.replace(graph, y=torch.tensor([1, 2, 0, -1, -1])[y], class_names=others)
    first, second = recalibrated(saved, plain, str), recalibrated(saved, turned, str)
    assert first.to_mapping() == second.to_mapping()
    assert torch.equal(probabilities(first.run, graph), probabilities(second.run, graph))
    assert any("no fresh label is 'rare, one':" in note for note in second.notes)


def test_a_run_is_recalibrated_again_without_its_graph(run, tmp_path):
    moved, fresh = shutil.copytree(run.parent, tmp_path / "moved") / "run", tmp_path / "fresh.npz"
    blocks(600, seed=5, labelled=200).to_npz(fresh)
    config = (moved / "config.yaml").read_text().replace(str(run.parent / "own.npz"), str(tmp_path / "gone.npz"))
    (moved / "config.yaml").write_text(config)
    seal(moved)
    for old, new in ((moved, "new"), (tmp_path / "new", "again")):
        succeed("recalibrate", "--run", old, "--graph", fresh, "--out", tmp_path / new)
    succeed("predict", "--run", tmp_path / "again", "--graph", fresh, "--out", tmp_path / "p.csv")


def test_what_cannot_tell_is_refused(run, own, tmp_path):
    def refused(*how: object) -> str:
        return assert_refused(call("recalibrate", "--run", run, *how, "--out", tmp_path / "new"))

    graph = blocks(300, seed=6)
    strange = file_of(graph, tmp_path, "strange", class_names=(*NAMES[:3], "else"))
    assert "labels must be of the run's classes 'plain', 'plain_there'" in refused("--graph", strange)
    one = file_of(graph, tmp_path, "one", y=torch.where(graph.y == 0, 0, -1))
    assert f"got {int((graph.y == 0).sum())} labels of 1 class: add labels" in refused("--graph", one)
    assert "got 0 labels of 0 classes" in refused("--graph", file_of(graph, tmp_path, "none", y=None, class_names=()))
    labels = table_of([0, 3, 6], blocks(900), tmp_path / "new.csv")
    assert "say where fresh labels are: --graph PATH" in refused()
    assert "--weight says how a graph is read" in refused("--labels", labels, "--weight", "w")
    labels.write_text("node,label\n0,nobody\n")
    assert "got 'nobody' in row 1" in refused("--labels", labels)
    labels.write_text(f"node,label\n{int(calirare.load(run).fit.nodes[0])},plain\n")
    assert "that the run has not seen, got 0 labels" in refused("--labels", labels)
    bare = ("--method", "uncalibrated", "--split", "random", "--label-rate", 20, "--out", tmp_path / "bare")
    succeed("train", "--dataset", file_of(own, tmp_path, "own"), *FAST, *bare)
    fresh = file_of(graph, tmp_path, "fresh")
    said = call("recalibrate", "--run", tmp_path / "bare", "--graph", fresh, "--out", tmp_path / "new")
    assert "has no calibrator, it was trained with --method uncalibrated" in assert_refused(said)
    assert not (tmp_path / "new").exists()
