"""`calirare update`: new, other and forgotten labels, trained again, and told of alike everywhere."""

from __future__ import annotations

import dataclasses
import json
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare import load
from calirare._util.errors import InputError
from calirare.graph import Graph
from calirare.run import Labels, Settings, Updated, read_yaml, recalibrated, update, update_calibrators
from tests.helpers.command import assert_refused, call, succeed
from tests.helpers.tasks import rare_task

TRAIN = ("--model", "gcn", "--epochs", "60", "--folds", "0")


def open_task() -> Graph:
    """A task of which most nodes have no label, its labels a random sample that trains, and names that are formulas."""
    task = rare_task()
    drawn = torch.randperm(task.n_nodes, generator=torch.Generator().manual_seed(1))
    y = torch.full_like(task.y, -1)
    y[drawn[:120]] = task.y[drawn[:120]]
    names = np.array([f"={i}" if i % 7 == 0 else f"n{i}" for i in range(task.n_nodes)])
    empty = torch.empty(0, dtype=torch.int64)
    split = calirare.Split(drawn[:80].clone(), empty, drawn[80:120].clone())
    return Graph(task.adjacency, task.x, y, split=split, class_names=("rest", "fraud"), node_names=names, name="open")


def test_the_rest_of_several_classes_is_a_label(tmp_path: Path) -> None:
    task = open_task()
    assert task.y is not None
    y = torch.where(task.y == 0, 2 * (torch.arange(task.n_nodes) % 2), task.y)
    named = dataclasses.replace(task, y=y, class_names=("person", "fraud", "firm"), name="three")
    named.to_npz(tmp_path / "three.npz")
    run, fresh = tmp_path / "run", [named.node_name(int(v)) for v in named.unlabelled[:2]]
    succeed("train", "--dataset", tmp_path / "three.npz", "--rare-class", "fraud", *TRAIN, "--out", run)
    assert named.split is not None
    test_rare = next(int(v) for v in named.split.test if int(y[v]) == 1)
    rows = {fresh[0]: "rest", fresh[1]: "firm", named.node_name(test_rare): "rest"}
    out = tmp_path / "updated"
    succeed("update", "--run", run, "--labels", table(tmp_path, rows), "--out", out)
    told = pd.read_csv(out / "predictions.csv", dtype=str).set_index("node")
    assert told.loc[list(rows), "y"].tolist() == ["0", "0", "0"]
    after = load(out).split
    assert torch.cat([after.train, after.val]).numel() == named.split.train.numel() + 2


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a graph with nodes that have no label. Read only."""
    folder = tmp_path_factory.mktemp("update")
    open_task().to_npz(folder / "open.npz")
    succeed("train", "--dataset", folder / "open.npz", "--rare-class", "fraud", *TRAIN, "--out", folder / "run")
    return folder / "run"


def table(folder: Path, rows: dict[str, str], name: str = "new.csv") -> Path:
    path = folder / name
    pd.DataFrame({"node": rows.keys(), "label": rows.values()}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def updated(base: Path, tmp_path_factory: pytest.TempPathFactory):
    """The run with six new labels, one other and two forgotten, one of a node that tests."""
    folder = tmp_path_factory.mktemp("updated")
    graph, saved = open_task(), load(base)
    fresh = [graph.node_name(int(v)) for v in graph.unlabelled[:6]]
    train = saved.split.train
    other, gone = int(train[graph.y[train] == 0][0]), int(train[graph.y[train] == 0][1])
    rows = dict(zip(fresh, ["fraud", "rest", "fraud", "1", "0", "fraud"], strict=True))
    rows |= {graph.node_name(other): "fraud", graph.node_name(gone): "unknown"}
    rows |= {graph.node_name(int(saved.split.test[0])): "unknown"}
    said = succeed("update", "--run", base, "--labels", table(folder, rows), "--out", folder / "after")
    return folder / "after", said, rows


@pytest.mark.slow
def test_the_new_run_is_a_training_with_these_labels_alone(base, updated):
    folder, _, rows = updated
    new, graph = load(folder), open_task()
    names = {graph.node_name(int(v)): int(v) for v in range(graph.n_nodes)}
    known = {names[name]: label for name, label in rows.items()}
    trained = dict(zip(new.fit.nodes.tolist(), new.fit.targets.tolist(), strict=True))
    for node, label in known.items():
        if label == "unknown":
            assert node not in trained
        else:
            assert trained[node] == (label in ("fraud", "1"))
    assert len(trained) == load(base).fit.nodes.numel() + 6 - 1
    again = calirare.train(settings=Settings.from_mapping(read_yaml(folder / "config.yaml"), "config"))
    gap = again.probabilities("population")[:, 1].numpy() - new.to_frame()["p_rare"].to_numpy()
    assert np.abs(gap).max() < 1e-6, "its config.yaml is all that makes it"
    assert torch.equal(again.graph.split.val, new.split.val)


def test_labels_of_before_say_how_common_the_rare_class_is(base, updated):
    """Chosen labels train; the random ones of before validate, but for none that changed its mind."""
    old, new = load(base).split, load(updated[0]).split
    assert not old.val.numel()
    assert set(new.val.tolist()) <= set(old.train.tolist())
    assert new.val.numel() >= old.train.numel() - 3
    assert load(updated[0]).settings.calibration.calibrate_on == "val"
    assert f"P(rare) is calibrated on {new.val.numel():,} old labels" in " ".join(
        (updated[1].out + updated[1].err).split()
    )


def test_what_changed_is_told_alike(updated):
    folder, said, rows = updated
    facts = json.loads((folder / "update.json").read_text())
    assert facts["labels"] == {"new": 6, "changed": 1, "forgotten": 2, "moved": 0}
    changes = pd.read_parquet(folder / "changes.parquet")
    assert (changes["change"].abs().diff()[1:] <= 1e-12).all()
    assert (changes["p_after"] - changes["p_before"] - changes["change"]).abs().max() < 1e-9
    assert set(changes[changes["label"] != ""]["node"]) == set(rows)
    moved = (changes["alert_after"] != changes["alert_before"]).sum()
    assert moved == facts["alerts"]["appeared"] + facts["alerts"]["vanished"]
    assert f"alerts, labelled ones among them: {facts['alerts']['after']:,}" in " ".join(said.out.split())
    assert "6 new, 1 changed, 2 forgotten labels" in said.out
    assert said.out.index("CALIBRATION") < said.out.index("6 new, 1") < said.out.index(f"calirare review {folder}")
    assert (folder / "report.html").is_file()
    assert facts["test"]["after"]["nodes"] == 39
    assert load(folder).split.test.numel() == 39


@pytest.mark.slow
def test_an_update_of_an_update_keeps_the_labels_of_both(updated, tmp_path):
    folder, _, rows = updated
    name = open_task().node_name(int(open_task().unlabelled[10]))
    succeed("update", "--run", folder, "--labels", table(tmp_path, {name: "rest"}), "--out", tmp_path / "b")
    kept = pd.read_csv(tmp_path / "b" / "labels.csv", dtype=str)
    assert {"'" + n if n.startswith("=") else n for n in (*rows, name)} <= set(kept["node"])
    assert load(tmp_path / "b").graph().y is not None


@pytest.mark.slow
def test_a_random_sample_calibrates_where_validation_labels_do(updated, base: Path, tmp_path: Path) -> None:
    run = updated[0]
    graph = load(base).graph()
    rows = {graph.node_name(int(v)): "fraud" if v % 3 else "rest" for v in graph.unlabelled[-6:]}
    labels, out = table(tmp_path, rows), tmp_path / "more"
    note = "6 new random labels calibrate and train, like the run's validation labels"
    said = call("update", "--run", run, "--labels", labels, "--drawn", "random", "--out", out)
    assert (said.code, note in said.err) == (0, True)
    assert load(out).split.val.numel() == load(run).split.val.numel() + 6
    pd.read_csv(labels).assign(split="train").to_csv(labels, index=False)
    said = call("update", "--run", run, "--labels", labels, "--drawn", "random", "--out", out, "--overwrite")
    assert (said.code, "drawn at random" in said.err) == (0, False)
    assert load(out).split.val.numel() == load(run).split.val.numel()
    said = call("update", "--run", base, "--labels", labels, "--drawn", "random", "--out", out, "--overwrite")
    assert "drawn at random" not in said.err


@pytest.fixture(scope="module")
def of_a_gpu(base: Path) -> Updated:
    """An update of a run that was trained on a GPU, with one new label."""
    saved = load(base)
    elsewhere = dataclasses.replace(saved.scorer, settings=saved.settings.but("test", device="cuda:7"))
    made = dataclasses.replace(saved, scorer=elsewhere)
    graph = open_task()
    one = graph.unlabelled[:1]
    return update(made, made.graph(graph), Labels(one, torch.ones(1, dtype=torch.int64), torch.full((1,), -1)))


def test_a_run_of_a_gpu_is_trained_again_where_there_is_none(of_a_gpu):
    said = "the run was trained on cuda:7, which cannot be used here: trained again on the CPU"
    assert said in of_a_gpu.outcome.notes
    assert of_a_gpu.outcome.settings.device == "cpu"


def test_calibrator_only_keeps_the_detector(base: Path, tmp_path: Path) -> None:
    saved = load(base)
    graph = saved.graph()
    rows = {graph.node_name(int(v)): "fraud" if i % 2 else "rest" for i, v in enumerate(graph.unlabelled[:12])}
    other = int(saved.fit.nodes[0])
    rows |= {graph.node_name(other): graph.class_names[1 - int(graph.y[other])]}
    labels, out = table(tmp_path, rows), tmp_path / "out"
    options = ("update", "--run", base, "--labels", labels, "--out", out, "--calibrator-only")
    said = succeed(*options, "--drawn", "random")
    n = saved.fit.nodes.numel()
    assert f"12 fresh labels and {n} labels of the run, " in said.out
    facts = json.loads((out / "recalibration.json").read_text())
    assert (facts["labels"], facts["labels_of_run"]) == (n + 12, n)
    new, known = load(out), dataclasses.replace(graph, split=None)
    before, after = (run.scorer.probabilities(run.mapped(known)).rare for run in (saved, new))
    assert torch.equal(torch.argsort(before, stable=True), torch.argsort(after, stable=True))
    assert after.mean() > before.mean(), "half of the new labels are rare"
    succeed(*options, "--overwrite")
    assert json.loads((out / "recalibration.json").read_text())["labels"] == n, "chosen labels do not calibrate"


def test_the_labels_of_a_run_give_its_calibrators_again(base: Path) -> None:
    saved = load(base)
    graph = saved.graph()
    y = torch.full_like(graph.y, -1).index_copy(0, saved.fit.nodes, graph.y[saved.fit.nodes])
    again = recalibrated(saved, dataclasses.replace(graph, y=y, split=None, original_y=None), str, with_own=True)
    was, now = (run.scorer.calibrators["population"] for run in (saved, again.run))
    logits = torch.linspace(-4, 4, 9, dtype=torch.float64)[:, None] * torch.tensor([-0.5, 0.5])
    assert now.transform(logits).numpy() == pytest.approx(was.transform(logits).numpy(), abs=1e-6)
    worse, better = dataclasses.replace(again, after=1 - again.before), dataclasses.replace(again, after=again.before)
    assert worse.summary().startswith("worse: log loss ")
    assert next(iter(worse.to_mapping().items())) == ("warning", worse.warning)
    assert not better.warning


@pytest.mark.parametrize(("kind", "told"), [("fraud", "pass --drawn random"), ("unknown", "seen the labels to forget")])
def test_calibrator_only_refuses_what_does_not_calibrate(kind, told, base: Path, tmp_path: Path) -> None:
    graph = open_task()
    node = int(graph.unlabelled[0] if kind == "fraud" else graph.split.train[0])
    labels = table(tmp_path, {graph.node_name(node): kind})
    said = call("update", "--run", base, "--labels", labels, "--out", tmp_path / "a", "--calibrator-only")
    assert told in assert_refused(said)
    assert not (tmp_path / "a").exists()


def test_a_larger_loss_of_the_test_nodes_comes_first(of_a_gpu):
    flipped = dataclasses.replace(of_a_gpu.after, p=1 - of_a_gpu.before.p)
    worse = dataclasses.replace(of_a_gpu, after=flipped)
    better = dataclasses.replace(of_a_gpu, before=flipped, after=of_a_gpu.before)
    was, now = (worse.measures[side]["log_loss"] for side in ("before", "after"))
    assert worse.summary(200).startswith(
        f"worse: log loss {now:.4f} on 40 test nodes, before {was:.4f}. Keep the old run\n"
    )
    assert next(iter(worse.to_mapping().items())) == ("warning", worse.warning)
    assert next(iter(better.to_mapping().items())) == ("warning", "")
    assert not better.summary().startswith("worse")
    tilt = 0.1 * (-1.0) ** torch.arange(len(flipped.p), dtype=torch.float64)
    even, odd = (dataclasses.replace(flipped, p=torch.stack([0.5 - each, 0.5 + each], 1)) for each in (0 * tilt, tilt))
    noisy = dataclasses.replace(of_a_gpu, before=even, after=odd)
    assert (noisy.warning, noisy.measures["change"]["answer"]) == ("", "not clear")
    assert re.search(r"\nchange of the log loss: \S+ \(95% CI -\S+ to \+\S+\): not clear\n", noisy.summary())


@pytest.mark.parametrize("drawn", ["chosen", "random"])
def test_calibrators_alone_are_advised_where_they_can_be_fitted(drawn, base: Path) -> None:
    saved, graph = load(base), load(base).graph()
    other = graph.unlabelled[:4] if drawn == "random" else saved.fit.nodes[:1]
    for nodes, calibrates in ((graph.unlabelled[:4], drawn == "random"), (other, True), (saved.split.test[:1], False)):
        labels = Labels(nodes, 1 - graph.y[nodes].clamp(min=0), torch.full_like(nodes, -1))
        found = update(saved, graph, labels, chosen=drawn == "chosen")
        worse = dataclasses.replace(found, after=dataclasses.replace(found.after, p=1 - found.before.p))
        assert ("(--calibrator-only)" in worse.warning) == calibrates
        with nullcontext() if calibrates else pytest.raises(InputError, match="nothing to fit"):
            update_calibrators(saved, graph, labels, chosen=drawn == "chosen")


@pytest.mark.slow
def test_forgotten_labels_are_in_nothing_that_is_left(base, tmp_path):
    """A quarter of the labels of tables test by default: each request of theirs ended with an error."""
    graph, saved = open_task(), load(base)
    nodes = [*saved.split.train[:3].tolist(), int(saved.split.test[0])]
    gone = [graph.node_name(v) for v in nodes]
    pd.DataFrame({"node": gone}).to_csv(tmp_path / "gone.csv", index=False)
    said = succeed("update", "--run", base, "--forget", tmp_path / "gone.csv", "--out", tmp_path / "after")
    new = load(tmp_path / "after")
    assert not set(new.fit.nodes.tolist()) & set(nodes)
    assert not set(new.split.test.tolist()) & set(nodes)
    table_ = new.to_frame().set_index("node")
    assert (table_.loc[gone, "y"] == -1).all()
    assert (table_.loc[gone, "split"] == "unused").all()

    assert "4 forgotten" in said.out


def test_numbers_of_classes_may_be_written_as_programs_do(tmp_path):
    graph = open_task()
    names = [graph.node_name(v) for v in range(6)]
    rows = dict(zip(names, ("1.0", "0.0", "True", "false", "1", "fraud"), strict=True))
    assert Labels.read(table(tmp_path, rows), graph).y.tolist() == [1, 0, 1, 0, 1, 1]


def test_classes_may_be_written_as_pages_call_them_or_as_their_table_did(tmp_path):
    graph = dataclasses.replace(open_task(), class_names=("rest", "1"))
    rows = dict(zip([graph.node_name(v) for v in range(4)], ("normal", "class 1", "yes", "No"), strict=True))
    assert Labels.read(table(tmp_path, rows), graph).y.tolist() == [0, 1, 1, 0]
    assert Labels.read(table(tmp_path, rows), graph, ("yes",)).y.tolist() == [0, 1, -1, 0]


def test_labels_of_a_table_are_spelled_as_in_node_tables_and_may_stand_for_none(tmp_path):
    graph = open_task()
    names = [graph.node_name(v) for v in range(4)]
    file = table(tmp_path, dict(zip(names, (" Fraud ", "REST", "2.0", "Unknown"), strict=True)))
    labels = Labels.read(file, graph, ("2", "?"))
    assert (labels.y.tolist(), labels.absent) == ([1, 0, -1, -1], ("?",))
    with pytest.raises(
        InputError, match=r"one of rest and fraud or .* got '2\.0' in row 3: .*--unknown 2\.0 makes it no label"
    ):
        Labels.read(file, graph)


def test_labels_may_be_parquet_or_a_queue_with_a_column_more(tmp_path):
    graph = open_task()
    names = [graph.node_name(v) for v in range(4)]
    queue = pd.DataFrame({"node": names, "p_rare": 0.5, "y": [-1, -1, 0, 1], "label": [1, None, 0, 1]})
    queue.to_parquet(tmp_path / "queue.parquet")
    queue.to_csv(tmp_path / "queue.csv", index=False)
    for name in ("queue.parquet", "queue.csv"):
        assert Labels.read(tmp_path / name, graph).y.tolist() == [1, -1, 0, 1]
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match=r"empty\.csv: the file is empty: write a line with the names"):
        Labels.read(tmp_path / "empty.csv", graph)


def test_wrong_tables_are_refused_in_one_sentence(base, tmp_path):
    graph = open_task()
    known, free = graph.node_name(int(load(base).split.train[0])), graph.node_name(int(graph.unlabelled[0]))
    same = graph.class_names[int(graph.y[load(base).split.train[0]])]
    for rows, told in (
        ({"nobody": "rest"}, "has no node nobody"),
        ({free: "purple"}, "got 'purple' in row 1"),
        ({known: same}, "nothing changes"),
    ):
        said = call("update", "--run", base, "--labels", table(tmp_path, rows), "--out", tmp_path / "a")
        assert told in assert_refused(said)
        assert not (tmp_path / "a").exists()
    assert "--labels FILE" in assert_refused(call("update", "--run", base, "--out", tmp_path / "a"))
    said = call("update", "--run", base, "--labels", tmp_path / "none.csv", "--out", tmp_path / "a")
    assert "none.csv: there is no such file: check the path" in assert_refused(said)
    gone = table(tmp_path, {free: ""}, "gone.csv")
    said = call("update", "--run", base, "--forget", gone, "--out", tmp_path / "a")
    assert "only labels can be forgotten" in assert_refused(said)
    said = call("update", "--run", base, "--labels", gone, "--out", base)
    assert "another folder" in assert_refused(said)


@pytest.mark.slow
def test_chosen_labels_can_be_forgotten_again(base: Path, tmp_path: Path) -> None:
    """The run of before comes back where none is left; where one is, a label of each class trains."""
    graph = load(base).graph()
    fresh = {graph.node_name(int(v)): "fraud" if i < 3 else "rest" for i, v in enumerate(graph.unlabelled[:6])}
    added = tmp_path / "added"
    succeed("update", "--run", base, "--labels", table(tmp_path, fresh), "--out", added)
    for kept in (0, 1):
        pd.DataFrame({"node": list(fresh)[kept:]}).to_csv(tmp_path / "gone.csv", index=False)
        said = succeed("update", "--run", added, "--forget", tmp_path / "gone.csv", "--out", tmp_path / f"back{kept}")
        assert "note: moved from validation to training, where too few labels are left: " in said.err
    was, now = (pd.read_csv(run / "predictions.csv").p_rare for run in (base, tmp_path / "back0"))
    assert np.array_equal(was, now)
