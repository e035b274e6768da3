"""Every class as it is: probabilities, measures, files, and what belongs to a rare class alone."""

from __future__ import annotations

import base64
import csv
import dataclasses
import json
import re
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare import InputError, Outcome
from calirare.graph import Split
from calirare.metrics import class_ace, nll
from calirare.models import passes
from calirare.page import ReviewSession, Verdicts, html_of
from calirare.run import Labels, score_only, update
from calirare.run.judging import Judged, measures_by_class, measures_together, rare_among
from calirare_ext import Csr
from tests.helpers.classes import without_pictures
from tests.helpers.command import call, few_candidates, rough_runs, succeed
from tests.helpers.graphs import random_graph

NAMES = ("plain", "=odd", "rare, one")
HOSTILE = ("<b>plain</b>", *NAMES[1:])
DRAW = Judged.draw


@pytest.fixture(scope="module", autouse=True)
def rough():
    """Runs take the fewest samples and draw nothing, unless a test puts `DRAW` back."""
    with rough_runs(), without_pictures():
        yield


@pytest.fixture(scope="module")
def graph() -> calirare.Graph:
    """240 nodes of three classes, the last of them rare; features tell the classes roughly."""
    generator = torch.Generator().manual_seed(4)
    y = torch.multinomial(torch.tensor([0.55, 0.33, 0.12]), 240, replacement=True, generator=generator)
    x = torch.randn(240, 5, generator=generator) + torch.eye(5)[y]
    made = random_graph(240, 3, seed=1, x=x)
    named = calirare.Graph(made.adjacency, made.x, y, class_names=NAMES, name="many")
    return named.with_split(Split.random(y, 8, 60, 100, seed=0))


@pytest.fixture(scope="module")
def outcome(graph: calirare.Graph) -> Outcome:
    return calirare.train(graph, task="classes", model="gcn", epochs=40, folds=0)


def test_probabilities_of_every_class(outcome: Outcome, graph: calirare.Graph) -> None:
    for target in (None, "balanced", "population"):
        p = outcome.probabilities(target)
        assert tuple(p.shape) == (240, 3)
        assert torch.allclose(p.sum(1), torch.ones(240, dtype=torch.float64), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="target must be one of balanced, population, 'run' or None"):
        outcome.probabilities("both")  # type: ignore[arg-type]
    assert outcome.own_logits is not None
    assert outcome.own_logits.shape[0] == graph.split.train.numel() + graph.split.val.numel()


@pytest.fixture(scope="module")
def folder(outcome: Outcome, tmp_path_factory) -> Path:
    """The outcome's run on disk, which tests read and do not change."""
    path = tmp_path_factory.mktemp("classes") / "run"
    outcome.save(path)
    return path


@pytest.mark.slow
def test_calibration_lowers_the_loss_of_test_nodes(outcome: Outcome) -> None:
    report = outcome.metrics["report"]
    assert report["population"]["nll"] < report["raw"]["nll"]


def test_the_frame_says_what_the_probabilities_say(outcome: Outcome, graph: calirare.Graph) -> None:
    frame, p = outcome.to_frame(), outcome.probabilities("population")
    assert frame.columns.tolist() == [
        *("node", "split", "y", "prediction", "confidence", "confidence_raw"),
        *("p_plain", "p_=odd", "p_rare, one"),
    ]
    assert np.array_equal(frame[["p_plain", "p_=odd", "p_rare, one"]].to_numpy(), p.numpy())
    assert frame.prediction.tolist() == [NAMES[c] for c in p.argmax(1).tolist()]
    assert frame.y.tolist() == [NAMES[c] for c in graph.y.tolist()]
    assert (frame.split == "test").sum() == graph.split.test.numel()


@pytest.mark.slow
def test_measures_by_class_are_those_of_the_class_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(2 * torch.randn(300, 4, generator=generator, dtype=torch.float64), 1)
    labels = torch.multinomial(p[:, :3], 1, generator=generator)[:, 0]  # the last class never happens
    rows = measures_by_class(labels, p, ("a", "b", "c", "d"))
    assert [row["n"] for row in rows] == torch.bincount(labels, minlength=4).tolist()
    assert rows[1]["recall"] == pytest.approx(float((p[labels == 1].argmax(1) == 1).double().mean()), rel=1e-12)
    assert rows[1]["mean_p_over_share"] == pytest.approx(float(p[:, 1].mean()) / rows[1]["share"])
    assert rows[3]["recall"] is rows[3]["mean_p_over_share"] is rows[3]["auprc"] is None
    together = measures_together(labels, p)
    assert together["nll"] == float(nll(labels, p))
    assert together["macro_ace"] == pytest.approx(float(np.mean([float(class_ace(labels, p, c)) for c in range(3)])))
    assert not {"recall", "precision", "ace_minority"} & set(together)


def test_rare_classes_are_named_the_rarest_first() -> None:
    assert rare_among(("a", "b", "c", "d"), (0.12, 0.8, 0.05, 0.03)) == ["d", "c", "a"]
    assert rare_among(("a", "b"), (0.5, 0.5)) == []


@pytest.mark.slow
def test_the_folder_and_the_same_run_again(outcome: Outcome, folder, graph: calirare.Graph) -> None:
    wanted = {"config.yaml", "metrics.json", "predictions.csv", "reliability.png", "classes.png", "files.json"}
    wanted |= {"model.safetensors"}
    assert wanted <= {path.name for path in (folder).iterdir()}
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["rare_classes"] == ["rare, one"]
    table = pd.read_csv(folder / "predictions.csv")
    assert set(table.y) == {"plain", "'=odd", "rare, one"}  # no formula to a spreadsheet
    settings = calirare.Settings.from_mapping(calirare.run.read_yaml(folder / "config.yaml"))
    assert settings.data.task == "classes"
    again = calirare.train(graph, settings)
    assert torch.equal(again.probabilities("population"), outcome.probabilities("population"))
    with pytest.raises(InputError, match="is for a rare class, and the run was trained with task classes"):
        again.jackknife  # noqa: B018


def test_classes_that_no_test_node_has_are_told_of(graph: calirare.Graph, outcome: Outcome) -> None:
    split, note = graph.split, "1 of the 3 classes have no labelled test node"
    assert not any(note in each for each in outcome.notes)
    rare = graph.y[split.test] == 2
    val = torch.cat([split.val, split.test[rare]])
    some = graph.with_split(calirare.Split(split.train, val, split.test[~rare]))
    found = calirare.train(some, task="classes", model="gcn", epochs=5, folds=0)
    assert any(each.startswith(note) and "--split all" in each for each in found.notes)
    every = graph.with_split(calirare.Split(split.train, val, split.test[:0]))
    assert not any(note in each for each in calirare.train(every, task="classes", model="gcn", epochs=5, folds=0).notes)


@pytest.mark.slow
def test_without_test_nodes_labels_judge_without_themselves(graph: calirare.Graph) -> None:
    split = graph.split
    none = calirare.Split(split.train, split.val, split.test[:0])
    found = calirare.train(graph.with_split(none), task="classes", model="gcn", epochs=10, folds=0)
    assert found.metrics["judged_on"] == "leave-one-out"
    assert found.metrics["n_judged"] == 84
    with pytest.raises(InputError, match="needs labelled test nodes"):
        calirare.train(graph.with_split(none), task="classes", model="gcn", epochs=10, method="ts")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "calirare"}, "method calirare is for a rare class"),
        ({"decide": "budget", "budget": 5}, "decision are for a rare class"),
        ({"prevalence": 0.1}, "prevalence belongs to a rare class"),
    ],
)
def test_what_belongs_to_a_rare_class_is_refused(graph: calirare.Graph, settings: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        calirare.train(graph, task="classes", model="gcn", **settings)


@pytest.mark.slow
def test_merged_classes_and_contradictions_are_refused(graph: calirare.Graph) -> None:
    with pytest.raises(InputError, match="its classes were merged into 'rare, one' and all others"):
        calirare.train(graph.rare(2), task="classes")
    with pytest.raises(InputError, match="rare_class must be left out with task classes"):
        calirare.Settings.of(task="classes", rare_class=2)
    with pytest.raises(InputError, match="task must be one of rare, classes"):
        calirare.Settings.of(task="all")
    with pytest.raises(InputError, match="rare_class must be left out with task 'classes'"):
        calirare.load_dataset("digits", task="classes", rare_class=3)
    digits = calirare.load_dataset("digits", task="classes", label_rate=5)
    assert digits.n_classes == 10
    assert digits.split.train.numel() == 50


@pytest.mark.parametrize("model", ["gcn", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_run_scores_another_graph_in_memory_and_by_blocks(model, outcome, graph, tmp_path, monkeypatch) -> None:
    names = None
    if model == "auto":  # labels nearby need nodes that are known by name
        names = np.array([f"n{i}" for i in range(240)])
        graph = dataclasses.replace(graph, node_names=names)
    if model != "gcn":
        with few_candidates():
            outcome = calirare.train(graph, task="classes", model=model, folds=2)
    outcome.save(tmp_path / "run")
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    dense = graph.adjacency.to_dense()[order][:, order]
    names = None if names is None else names[order.numpy()]
    other = calirare.Graph(Csr.from_dense(dense), graph.x[order], name="other", node_names=names)
    other.to_folder(tmp_path / "other")
    monkeypatch.setattr(passes, "ROWS", 50)
    monkeypatch.setattr(score_only, "ROWS", 70)
    for how in ((), ("--scores-only",)):
        path = tmp_path / ("blocks.parquet" if how else "p.csv")
        said = succeed("predict", "--run", tmp_path / "run", "--graph", tmp_path / "other", "--out", path, *how)
        assert "in memory" not in said.err
        found = pd.read_parquet(path) if how else pd.read_csv(path)
        wanted = outcome.to_frame().iloc[order.numpy()]
        p = [name for name in found if name.startswith("p_")]
        assert p == ["p_plain", "p_=odd", "p_rare, one"]
        assert np.allclose(found[[*p, "confidence_raw"]], wanted[[*p, "confidence_raw"]], rtol=0, atol=1e-5)
        told = json.loads(path.with_suffix(".json").read_text())
        assert told["estimated_shares"]["rare, one"] == pytest.approx(float(found["p_rare, one"].mean()), rel=1e-6)
        assert sum(told["predicted"].values()) == told["nodes"] == 240
        assert told["drift"]["verdict"] == "ok"


def test_intervals_and_new_nodes_of_every_class(outcome, graph, folder, tmp_path) -> None:
    graph.to_npz(tmp_path / "g.npz")
    scored = calirare.load(folder).score(graph, interval_nodes="all")
    table, p = scored.table, outcome.probabilities()
    assert bool((table.lower < table.confidence).all() and (table.confidence < table.upper).all())
    some = calirare.load(folder).score(graph, interval_nodes="alerts").table
    made = some.lower.notna()
    assert 0 < made.sum() <= 240
    assert np.allclose(some[["lower", "upper"]][made], table[["lower", "upper"]][made], rtol=0, atol=1e-5)
    near = graph.adjacency.to_dense()[5].nonzero().flatten().tolist()
    new = calirare.Scorer.open(outcome).score(graph.x[5], near)
    assert new.chosen.shape == (1, 3)
    assert float((new.chosen[0] - p[5]).abs().max()) < 0.2, "a node with the neighbours of another"


def test_the_queue_begins_with_the_least_sure(outcome: Outcome, graph: calirare.Graph, folder) -> None:
    frame, order = outcome.to_frame(), outcome.review().tolist()
    assert frame.confidence[order].is_monotonic_increasing
    known = torch.cat([graph.split.train, graph.split.val]).tolist()
    assert sorted(order) == sorted(set(range(240)) - set(known))  # every node has a label: those that did not train
    queue = pd.read_csv(folder / "review.csv")
    assert queue.node.tolist() == order[:100]
    unknown = graph.y.clone()
    unknown[torch.arange(0, 240, 7)] = -1
    split = Split.random(unknown, 8, 60, 60, seed=0)
    found = calirare.train(
        dataclasses.replace(graph, y=unknown, split=split), task="classes", model="gcn", epochs=5, folds=0
    )
    assert sorted(found.review().tolist()) == list(range(0, 240, 7))


@pytest.fixture(scope="module")
def apart() -> tuple[calirare.Graph, torch.Tensor]:
    """Three classes that features tell apart, a tenth of the labels wrong; nodes have names."""
    generator = torch.Generator().manual_seed(7)
    y = torch.randint(3, (400,), generator=generator)
    x = torch.randn(400, 6, generator=generator) + 4 * torch.eye(6)[y]
    made = random_graph(400, 3, seed=2, x=x)
    given = torch.where(torch.rand(400, generator=generator) < 0.1, (y + 1) % 3, y)
    names = np.array([f"n{i}" for i in range(400)])
    graph = calirare.Graph(made.adjacency, made.x, given, class_names=HOSTILE, name="<i>apart</i>", node_names=names)
    return dataclasses.replace(graph.with_split(Split.share(given, 0)), original_y=None), given != y


@pytest.fixture(scope="module")
def of_trees(apart, tmp_path_factory) -> tuple[Outcome, Path]:
    """Trees on that task, and a folder with their run, with pictures, and the task."""
    folder = tmp_path_factory.mktemp("apart")
    with few_candidates():
        outcome = calirare.train(apart[0], task="classes", model="trees", folds=2)
    with mock.patch.object(Judged, "draw", DRAW):
        outcome.save(folder / "run")
    apart[0].to_npz(folder / "apart.npz")
    return outcome, folder


@pytest.mark.slow
def test_wrong_labels_of_many_classes_are_found(apart, of_trees, tmp_path) -> None:
    (graph, wrong), (outcome, folder) = apart, of_trees
    shutil.copytree(folder / "run", tmp_path / "run")
    audit = outcome.audit()
    table = audit.to_frame()
    assert table.columns.tolist() == [
        *("node", "given", "p_given", "p_wrong", "flag", "expected_wrong", "other", "reason")
    ]
    wrong_names = {f"n{i}" for i in wrong.nonzero().flatten().tolist()}
    flagged = table[table.flag == 1]
    assert flagged.node.isin(wrong_names).mean() > 0.8
    assert table.node.isin(wrong_names)[table.flag == 1].sum() > 0.8 * table.node.isin(wrong_names).sum()
    assert bool((table.other != table.given).all())
    assert "look-alikes" not in audit.summary(80)
    assert max(map(len, audit.summary(80).splitlines())) <= 80
    saved = calirare.load(tmp_path / "run")
    pd.testing.assert_frame_equal(saved.audit(graph).to_frame(), table)
    said = succeed("audit", "--run", tmp_path / "run", "--graph", folder / "apart.npz")
    assert "probably wrong" in said.out
    assert pd.read_csv(tmp_path / "run" / "audit.csv").node.tolist() == table.node.tolist()
    assert formulas(tmp_path / "run" / "audit.csv") == []
    said = succeed("suggest", "--run", tmp_path / "run", "--graph", folder / "apart.npz", "--top", "3")
    assert "half the sum of p" in said.out
    worth = pd.read_csv(tmp_path / "run" / "next.csv")
    assert list(worth.columns) == ["node", "value", "more", "prediction", "confidence", "reason"]
    assert not set(worth.node) & set(table.node)
    assert (worth["more"] > 0).all()
    assert formulas(tmp_path / "run" / "next.csv") == []


def formulas(path: Path) -> list[str]:
    """The cells of a table that a program for spreadsheets would compute."""
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row if re.match(r"[=+@]|-(?![\d.])", cell)]


def test_a_saved_run_of_many_classes_says_what_the_outcome_said(outcome, graph, folder) -> None:
    saved = calirare.load(folder)
    assert saved.class_names == NAMES
    assert saved.summary(verbose=True).splitlines()[2:] == outcome.summary(verbose=True).splitlines()[2:]
    p = [f"p_{name}" for name in NAMES]
    assert np.allclose(saved.to_frame()[p], outcome.to_frame()[p], rtol=0, atol=1e-6)
    assert torch.equal(saved.probabilities(graph), outcome.probabilities("population"))
    assert np.allclose(saved.predict(graph)[p], outcome.to_frame()[p], rtol=0, atol=1e-9)
    assert saved.review().node.tolist() == [str(node) for node in outcome.review()[:100].tolist()]


@pytest.fixture(scope="module")
def half_labelled(apart, tmp_path_factory) -> tuple[calirare.Graph, Path]:
    """The task with its first 200 labels hidden, and a folder with it and a run of trees on it."""
    hidden = apart[0].y.clone()
    hidden[:200] = -1
    few = dataclasses.replace(apart[0], y=hidden, split=None).with_split(Split.share(hidden, 0))
    folder = tmp_path_factory.mktemp("half")
    few.to_npz(folder / "few.npz")
    train = ("--task", "classes", "--model", "trees", "--folds", "2", "--out", folder / "run")
    with few_candidates():
        said = call("train", "--dataset", folder / "few.npz", *train)
    assert said.code == 0, said.err
    return few, folder


@pytest.mark.slow
def test_an_update_of_many_classes(apart, half_labelled, tmp_path) -> None:
    graph, (_, folder) = apart[0], half_labelled
    shutil.copytree(folder / "run", tmp_path / "run")
    labels = [HOSTILE[c] for c in graph.y[:60].tolist()]
    answers = pd.DataFrame({"node": [f"n{i}" for i in range(60)], "label": labels})
    answers.loc[0, "label"] = "'=odd"  # as our own tables write it
    answers.to_csv(tmp_path / "new.csv", index=False)
    said = succeed("update", "--run", tmp_path / "run", "--labels", tmp_path / "new.csv", "--out", tmp_path / "two")
    assert "60 new labels" in said.out
    facts = json.loads((tmp_path / "two" / "update.json").read_text())
    before, after = (calirare.load(tmp_path / name) for name in ("run", "two"))
    own = after.graph()
    assert own.class_names[int(own.y[0])] == "=odd"
    assert facts["trained_on"]["after"] == facts["trained_on"]["before"] + 60
    changed = before.to_frame().prediction != after.to_frame().prediction
    assert facts["predictions_changed"] == int(changed.sum())
    assert formulas(tmp_path / "two" / "changes.csv") == []
    table = pd.read_csv(tmp_path / "two" / "changes.csv")
    assert set(before.to_frame().node[changed]) <= set(table.node)
    answers["label"] = "no such"
    answers.to_csv(tmp_path / "bad.csv", index=False)
    said = call("update", "--run", tmp_path / "run", "--labels", tmp_path / "bad.csv", "--out", tmp_path / "three")
    assert said.code == 2
    assert "a label must be one of <b>plain</b>, =odd and 'rare, one' or unknown, got 'no such'" in said.err


@pytest.mark.slow
def test_the_page_of_many_classes(of_trees, tmp_path) -> None:
    outcome, folder = of_trees
    shutil.copytree(folder / "run", tmp_path / "run")
    succeed("report", "--run", tmp_path / "run", "--graph", folder / "apart.npz")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<b>plain" not in page
    assert "<i>apart" not in page
    report = outcome.metrics["report"]["population"]
    assert f"{report['accuracy']:.1%}" in page
    first = str(outcome.to_frame().iloc[outcome.review()[0].item()].node)
    assert re.search(rf"<h3>{first}</h3>\n<p class=\"p\">P\(.*<strong>", page)
    for name in ("reliability.png", "classes.png"):
        picture = (tmp_path / "run" / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert base64.b64encode(picture).decode() in page
    flagged = outcome.audit().to_frame().query("flag == 1").node
    assert all(f">{node}<" in page for node in flagged[:15])
    assert f">{outcome.to_frame().node[outcome.review()[0].item()]}<" in page
    assert ">number of neighbours</td>" in page, "test nodes are divided by what tells them apart"
    gone = succeed("report", "--run", tmp_path / "run", "--out", tmp_path / "gone.html")
    assert "without slices" in gone.err
    without = (tmp_path / "gone.html").read_text()
    assert "There are no groups" in without
    assert "Why they have their class is not here: " in without


@pytest.mark.slow
def test_the_queue_of_many_classes_is_answered_and_taken(half_labelled, tmp_path) -> None:
    few, folder = half_labelled
    shutil.copytree(folder / "run", tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    with Verdicts(tmp_path / "said.sqlite", saved.fingerprint, HOSTILE) as verdicts:
        session = ReviewSession(saved, verdicts, lambda: saved.explainer(few))
        assert verdicts.answers == ("class 0", "class 1", "class 2", "unsure", "skip")
        first, second, third = session.cases[:3]
        page = session.page(first, "nonce")
        frame = saved.to_frame()
        queue = (
            frame[frame.node.isin([few.node_name(node) for node in few.unlabelled.tolist()])]
            .sort_values("confidence")
            .iloc[0]
        )
        assert first.node == queue.node
        assert f"{queue.confidence:.2f}"[:4] in page
        assert all(f'value="class {c}"' in page for c in range(3))
        assert "P(rare)" not in page
        why = saved.explain([first.node], graph=few)[0]
        assert f"{why.p:.2f}"[:4] in page
        assert "connected to" in page
        assert (session.picture(first) or b"").startswith(b"\x89PNG")
        assert "No reasons for this class: it is gone" in ReviewSession(saved, verdicts, None, "it is gone").page(
            first, "n"
        )
        verdicts.say(first.node, "class 1")
        verdicts.say(second.node, "class 2")
        verdicts.say(third.node, "unsure")
        with pytest.raises(ValueError, match="answer must be one of class 0, class 1"):
            verdicts.say(third.node, "rare")
        assert (
            session.progress(verdicts.latest()) == f"3 of {len(session.cases)} answered: 1 =odd, 1 rare, one, 1 unsure"
        )
        assert session.next(verdicts.latest()) == session.cases[3]
    succeed("review", "--run", tmp_path / "run", "--out", tmp_path / "said.sqlite", "--export", tmp_path / "new.csv")
    table = pd.read_csv(tmp_path / "new.csv")
    assert table.node.tolist() == [first.node, second.node]
    assert table.label.tolist() == ["'=odd", "rare, one"]
    update = ("--graph", folder / "few.npz", "--labels", tmp_path / "new.csv", "--out", tmp_path / "two")
    succeed("update", "--run", tmp_path / "run", *update)
    with pytest.raises(InputError, match=r"about the classes .* get them by --export"):
        Verdicts(tmp_path / "said.sqlite", saved.fingerprint, ("a", "b", "c"))


@pytest.mark.parametrize("names", [("007", "10", "0100"), ("null", "x", "unsure")])
def test_names_of_classes_that_look_like_something_else_stay_names(graph, names, tmp_path) -> None:
    y = graph.y.clone()
    y[torch.arange(0, 240, 9)] = -1
    nodes = np.array([f"{i:04d}" for i in range(240)])
    given = dataclasses.replace(graph, y=y, class_names=names, node_names=nodes, split=None)
    given = given.with_split(Split.share(y, 0))
    outcome = calirare.train(given, task="classes", model="gcn", epochs=20, folds=0)
    outcome.save(tmp_path / "run")
    saved, frame = calirare.load(tmp_path / "run"), outcome.to_frame()
    here = saved.to_frame()
    for column in ("node", "y", "prediction"):
        assert here[column].tolist() == frame[column].tolist()
    queue = saved.review()
    assert queue.node.tolist() == nodes[outcome.review()[:100]].tolist()
    assert set(queue.prediction) <= set(names)
    page = html_of(saved, given)
    right = int(((frame.split == "test") & (frame.prediction == frame.y)).sum())
    assert right > 0
    assert not re.search(r"<td>\d+</td><td>0</td><td>0\.[89]", page), "no slice is wholly wrong"


@pytest.mark.slow
def test_a_tiny_class_does_not_make_the_others_no_sample(apart, tmp_path) -> None:
    graph, _ = apart
    y = graph.y.clone()
    y[:200] = -1
    y[(y == 2).nonzero().flatten()[1:]] = -1  # one label is left of the last class
    given = dataclasses.replace(graph, y=y, split=None).with_split(Split.share(y, 0))
    outcome = calirare.train(given, task="classes", model="trees", folds=2)
    outcome.save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    fresh = Labels(torch.arange(8), graph.y[:8], torch.full((8,), -1))
    found = update(saved, given, fresh)
    said = " ".join(found.outcome.notes)
    assert "look like a random sample" in said
    assert "none of the old labels is a random sample" not in said
    assert found.to_mapping()["moved"]["largest"] <= 1
