"""`calirare explain` of a run of many classes: P(class) as its files have it, and one sentence for what is wrong."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import calirare
from tests.cli.test_classes import tables
from tests.helpers.command import assert_refused, call, succeed
from tests.helpers.tasks import rare_task

NAMES = ["card", "loan", "ring, big"]


def trained(model: str, folder: Path) -> Path:
    """Trains on two tables with names: a network, or trees with the nodes nearby."""
    edges, out = tables(folder), folder / "run"
    words = ("train", "--dataset", edges, "--nodes", folder / "nodes.csv", "--symmetrize", "--task", "classes")
    settings = {"gcn": ("--epochs", "20", "--folds", "0"), "trees": ("--folds", "2")}[model]
    succeed(*words, "--label-rate", "5", "--model", model, *settings, "--out", out)
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network. Read only."""
    return trained("gcn", tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of trees. Read only."""
    return trained("trees", tmp_path_factory.mktemp("classes"))


@pytest.fixture(params=["gcn", "trees"])
def either(request) -> Path:
    """Each of the two in turn."""
    return request.getfixturevalue({"gcn": "run"}.get(request.param, request.param))


def test_it_says_the_probabilities_of_the_runs_table(either):
    table = pd.read_csv(either / "predictions.csv").set_index("node")
    names = list(table.index[[3, 40, 77]])
    said = succeed("explain", "--run", either, "--node", *names, "--json", silent=True)
    found = json.loads(said.out)
    assert [each["name"] for each in found["explanations"]] == names
    for each in found["explanations"]:
        row = table.loc[each["name"]]
        assert each["class"] == each["prediction"] == row["prediction"]
        assert abs(each["p"] - row["confidence"]) < 1e-6
        assert each["probabilities"] == pytest.approx({name: row[f"p_{name}"] for name in NAMES}, abs=1e-6)
        assert each["base"] + sum(f["share"] for f in each["features"]) == pytest.approx(each["log_odds"], abs=1e-9)
        assert len(each["labels"]) == 10
        effects = [abs(label["effect"]) for label in each["labels"]]
        assert effects == sorted(effects, reverse=True)
        for edge in each["edges"]:
            assert "p_rare" not in edge
            assert abs(edge["p"] - table.loc[edge["name"], f"p_{each['class']}"]) < 1e-6
            assert edge["without"] == pytest.approx(each["p"] - edge["effect"], abs=1e-12)
        assert set(each["needed"]) == {"names", "without", "enough", "instead"}
        assert f"P({each['class']}) of {each['name']} is" in each["sentences"][0]
    assert "rare" not in said.out.replace("p_rare", "")
    of = call("explain", "--run", either, "--node", names[0], "--class", "ring, big", "--json")
    each = json.loads(of.out)["explanations"][0]
    assert (each["class"], each["name"]) == ("ring, big", names[0])
    assert abs(each["p"] - table.loc[names[0], "p_ring, big"]) < 1e-6


def test_the_top_of_a_class_are_its_likeliest_nodes(run):
    table = pd.read_csv(run / "predictions.csv")
    left = table[~table["split"].isin(["train", "val"]) & table["y"].isna()]
    name = left["prediction"].mode()[0]
    said = succeed("explain", "--run", run, "--top", "3", "--class", name, "--json", silent=True)
    found = json.loads(said.out)["explanations"]
    wanted = left.loc[left["prediction"] == name, f"p_{name}"].nlargest(3)
    assert [each["p"] for each in found] == pytest.approx(wanted.tolist(), abs=1e-6)
    assert all(each["class"] == each["prediction"] == name for each in found)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--node", "n3", "--class", "fraud"], "card, loan and 'ring, big'"),
        (["--top", "3"], "--top needs a class: name one (--class)"),
        (["--top", "0", "--class", "loan"], "--top must be at least 1"),
        ([], "--class NAME"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(words, wanted, run):
    assert wanted in assert_refused(call("explain", "--run", run, *words))


def test_a_run_of_a_rare_class_has_one_class_to_explain(finished):
    run, _ = finished
    rare = calirare.load(run).scorer.class_names[1]
    plain, named = (call("explain", "--run", run, "--node", "5", *more) for more in ([], ["--class", rare]))
    assert named == plain
    assert named.code == 0
    assert "--class is for runs of several classes" in assert_refused(
        call("explain", "--run", run, "--node", "5", "--class", "other")
    )


def test_python_says_what_the_command_says_and_a_copy_of_the_outcome_too():
    outcome = calirare.train(rare_task(n_classes=3), task="classes", model="hops", epochs=20, folds=0)
    found = outcome.explain([7, 9], labels=3)
    p = outcome.probabilities()[[7, 9]]
    assert np.allclose([each.p for each in found], p.max(1).values, rtol=0, atol=1e-6)
    assert len(found[0].labels) == 3
    copy = pickle.loads(pickle.dumps(outcome))
    assert copy.explain([7], class_name="2")[0].p == pytest.approx(float(p[0, 2]), abs=1e-6)
