"""`--positive-only`: known frauds and everything else unlabelled, from tables to a saved run's predictions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare.graph import Graph, Split, known_rare, with_sampled_negatives
from calirare.page import RARE, ReviewSession, Verdicts
from calirare.run.scoring import DRAWN
from tests.helpers.command import assert_refused, call, rough_runs, succeed

pytestmark = pytest.mark.slow

N, SHARE, KNOWN = 900, 0.1, 0.4
NETWORK = ("--model", "gcn", "--epochs", "20", "--folds", "0")


@pytest.fixture(scope="module")
def accounts() -> pd.DataFrame:
    """Accounts of which a tenth is fraud, and of these four tenths known at random."""
    rng = np.random.default_rng(4)
    fraud = rng.random(N) < SHARE
    table = pd.DataFrame(rng.normal(size=(N, 3)) + 3.0 * fraud[:, None] * [1, 1, 0], columns=["a", "b", "c"])
    table.insert(0, "node", [f"acc-{i}" for i in range(N)])
    return table.assign(fraud=fraud, label=np.where(fraud & (rng.random(N) < KNOWN), "fraud", ""))


@pytest.fixture(scope="module")
def tables(accounts, tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(5)
    ends = rng.integers(0, N, (N, 2))
    names = accounts["node"].to_numpy()
    pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]}).to_csv(folder / "edges.csv", index=False)
    accounts.drop(columns="fraud").to_csv(folder / "nodes.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(tables):
    said = succeed("train", "--dataset", tables / "edges.csv", "--positive-only", "--model", "trees",
                "--verbose", "--out", tables / "run")  # fmt: skip
    return tables / "run", said


@pytest.fixture(scope="module")
def page(run, tmp_path_factory) -> str:
    """The text of the run's page."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    succeed("report", "--run", run[0], "--out", path)
    return " ".join(path.read_text(encoding="utf-8").split())


def test_p_is_that_of_fraud_and_not_of_being_known(run, accounts):
    folder, said = run
    table = pd.read_csv(folder / "predictions.csv")
    others = (accounts["label"] == "").to_numpy()
    truth, p = accounts["fraud"][others], table["p_rare"][others]
    known, n_rare = int((~others).sum()), int(truth.sum())
    assert known / others.sum() < 0.75 * n_rare / others.sum()  # what P(known) would be on the whole
    assert 0.6 <= p.mean() / truth.mean() <= 1.6
    likely = p.nlargest(n_rare).index
    assert p[likely].mean() > 0.6
    assert truth[likely].mean() > 0.7
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["verdict"]["answer"] == "not known"
    assert "selected completely at random" in metrics["verdict"]["sentence"]
    assert metrics["judged_on"] == "known or drawn"
    assert metrics["graph"]["labels_trained_on"] == known
    assert metrics["decision"]["on"] == "unlabelled"
    assert metrics["decision"]["nodes"] == others.sum()
    assert metrics["n_judged_rare"] == known
    assert metrics["p_rare"]["population"]["mean_p_over_share"] == pytest.approx(1, abs=0.2)  # of being known
    assert said.out.count("selected completely at random") == 1
    assert "selected completely at random" in (folder / "log.txt").read_text()
    assert table["y"].tolist() == np.where(others, -1, 1).tolist()


def test_labels_of_nodes_that_were_drawn_do_not_recalibrate_and_the_error_says_why(run, accounts, tmp_path):
    folder, _ = run
    some = accounts[accounts["label"] == ""].head(200)
    some.assign(label=np.where(some["fraud"], "fraud", "rest"))[["node", "label"]].to_csv(
        tmp_path / "new.csv", index=False
    )
    words = ("--run", folder, "--out", tmp_path / "anew")
    said = assert_refused(call("recalibrate", *words, "--labels", tmp_path / "new.csv"))
    assert f"Positive-only training also used {N} random nodes" in said
    assert "which leaves 0 labels of 0 classes. Give another graph with labels (--graph), or train with" in said
    assert len(said) <= 300


def test_what_labels_judge_is_called_being_known(run, page):
    said = run[1]
    assert " known predicted, " in said.out
    for words in (
        "predicted / observed",
        "ECE of P(known)",
        "predictions.csv has P(rare), which these labels cannot check",
    ):
        assert words in said.out
    assert "ECE of P(rare)" not in said.out
    assert "Known and sampled nodes can only check P(known)" in page
    assert "hidden ones count as not rare" in page
    assert "selected completely at random" in page
    for words in ("ECE of P(rare)", 'The column "true base rate" is the one', "operating point"):
        assert words not in page


def test_no_node_without_a_label_is_scored_by_a_model_that_took_it_for_the_rest(run, accounts):
    folder, _ = run
    saved = calirare.load(folder)
    graph = saved.graph()
    fitted = saved.fit
    drawn = fitted.targets == 0
    assert drawn.sum() == N - (accounts["label"] == "fraud").sum()
    own = saved.scorer.calibrators["population"].transform(fitted.own_logits[drawn].double())[:, 1]
    written = saved.to_frame()["p_rare"].to_numpy()[fitted.nodes[drawn].numpy()]
    assert np.allclose(own.numpy(), written, atol=1e-5, rtol=0)
    learnt = saved.scorer.probabilities(saved.mapped(graph)).rare[fitted.nodes[drawn]]
    assert not torch.allclose(own, learnt, atol=1e-3)


def test_a_saved_run_scores_and_repeats_its_sentence(run, tables):
    folder, _ = run
    said = succeed("predict", "--run", folder, "--graph", tables / "edges.csv", "--out", tables / "scored.csv")
    assert "caution: the run's verdict: not known: positive-only labels" in said.out
    assert f"note: {DRAWN}" in said.out + said.err
    scored = json.loads((tables / "scored.json").read_text())
    assert scored["verdict"] == "caution"
    succeed("predict", "--run", folder, "--graph", tables / "edges.csv", "--out", tables / "b.csv",
                 "--prevalence", "0.2")  # fmt: skip
    assert json.loads((tables / "b.json").read_text())["mean_p_rare"] == pytest.approx(0.2, abs=1e-4)
    for command, word in ((("audit",), "positive-only"), (("predict", "--prevalence", "estimate"), "positive-only")):
        more = ("--graph", tables / "edges.csv", "--out", tables / "c.csv") if command[0] == "predict" else ()
        refused = call(command[0], "--run", folder, *command[1:], *more)
        assert (refused.code, refused.out) == (2, "")
        assert word in refused.err


def test_a_prevalence_is_taken_at_its_word(tables, accounts):
    said = succeed("train", "--dataset", tables / "edges.csv", "--positive-only", *NETWORK, "--out",
                tables / "told", "--prevalence", "0.1", "--verbose")  # fmt: skip
    others = (accounts["label"] == "").to_numpy()
    p = pd.read_csv(tables / "told" / "predictions.csv")["p_rare"][others]
    assert p.mean() == pytest.approx((0.1 * N - (~others).sum()) / others.sum(), rel=0.02)
    assert "by the given prevalence" in said.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--method", "ts"), "positive_only needs method jackknife"),
        (("--map", "platt"), "positive_only needs method jackknife and map prior"),
        (("--task", "classes"), "positive_only needs a rare class"),
        (("--prevalence", "0.001"), "some must be left to find"),
    ],
)
def test_what_does_not_go_with_it_is_said(tables, more, words):
    said = call("train", "--dataset", tables / "edges.csv", "--positive-only", "--out", tables / "no",
                "--model", "trees", *more)  # fmt: skip
    assert said.code == 2
    assert words in said.err
    assert not (tables / "no").exists()


def graph_of(y: torch.Tensor, split: Split | None = None) -> Graph:
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(0)) + 3.0 * (y == 1)[:, None]
    ends = torch.randint(0, len(y), (2, len(y)), generator=torch.Generator().manual_seed(1))
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    return Graph.from_edges(ends.T, x, y, name="g", symmetrize=True, duplicates="drop").with_split(split)


def test_labels_of_the_rest_count_as_none_but_of_test_nodes():
    y = (torch.arange(400) % 5 == 0).long()
    train, test = torch.arange(0, 200), torch.arange(200, 300)
    known = known_rare(graph_of(y, Split(train, train[:0], test)).rare(1))
    assert known.y[:200].tolist() == torch.where(y[:200] == 1, 1, -1).tolist()
    assert torch.equal(known.y[200:300], y[200:300])
    assert bool((known.y[300:] == -1).all())  # rare ones outside the split too
    assert known.class_names == ("rest", "1")
    assert known_rare(known) is known
    taught = with_sampled_negatives(known, seed=0, n_drawn=50)
    drawn = (taught.y == 0).nonzero().flatten()
    assert len(drawn) == 50
    assert not bool(torch.isin(drawn, known.split.train).any())
    assert not bool((taught.y[known.split.train] != 1).any())
    others = torch.where(torch.arange(400) < 200, y, 1 - y)  # the draw does not look at labels that it must not know
    other = known_rare(graph_of(others, Split(train, train[:0], test)).rare(1))
    assert torch.equal((with_sampled_negatives(other, 0, 50).y == 0).nonzero().flatten(), drawn)


def test_python_takes_known_nodes_alone_and_judges_on_test_labels_that_there_are():
    truth = (torch.rand(500, generator=torch.Generator().manual_seed(3)) < 0.2).long()
    with rough_runs():
        alone = calirare.train(graph_of(torch.where(truth == 1, 1, -1)), positive_only=True, model="trees",
                               prevalence=0.5)  # fmt: skip
        assert alone.metrics["judged_on"] == "known or drawn"
        assert alone.verdict.answer == "not known"
        train, test = torch.arange(0, 200), torch.arange(200, 500)
        graph = graph_of(truth, Split(train, train[:0], test)).rare(1)
        outcome = calirare.train(graph, positive_only=True, model="trees")
        judged = outcome.metrics
    weights = [outcome.fit.sample_weights[outcome.fit.targets == c].sum() for c in (0, 1)]
    assert torch.isclose(*weights)  # classes weigh alike: many of those that stand for the rest are rare
    assert judged["judged_on"] == "test"
    assert judged["n_judged_rare"] == int(truth[200:].sum())
    assert 0.5 <= judged["p_rare"]["population"]["mean_p_over_share"] <= 1.8
    assert outcome.verdict.evidence.source == "test nodes"


def test_labels_of_one_class_alone_are_told_what_they_may_be(tables):
    said = call("train", "--dataset", tables / "edges.csv", "--out", tables / "refused")
    assert said.code == 2
    assert "every labelled node is 'fraud'" in said.err
    assert "--positive-only" in said.err


def test_too_few_known_ones_are_refused_before_anything_is_trained(accounts, tables, tmp_path):
    few = accounts.drop(columns="fraud").copy()
    few.loc[few.index[few["label"] == "fraud"][6:], "label"] = ""
    few.to_csv(tmp_path / "nodes.csv", index=False)
    words = ("train", "--dataset", tables / "edges.csv", "--nodes", tmp_path / "nodes.csv", "--labels")
    said = call(*words, "positive-only", "--out", tmp_path / "run")
    assert said.code == 2
    assert "6 known rare nodes are too few" in said.err
    assert "train:" not in said.err


def test_an_explanation_begins_with_the_p_that_tables_show(run, tables):
    saved = calirare.load(run[0])
    table = saved.to_frame().set_index("node")
    drawn = table.index[table["split"] == "unused"][:4].tolist()
    labels = next(iter(saved.explain([table.index[table["split"] == "train"][0]]))).label
    assert labels == "fraud"
    for found in saved.explain(drawn):
        assert found.p == pytest.approx(table.loc[found.name, "p_rare"], abs=1e-6)
        assert found.label is None, "the data gave it none"
        assert sum(each.share for each in found.features) + found.base == pytest.approx(found.log_odds, abs=1e-6)
        assert not any(each.own for each in found.labels if each.effect)
        assert {each.label for each in found.labels} <= {"fraud", "none, drawn"}


def test_of_a_single_network_it_does_so_by_the_closed_form(tables):
    graph = calirare.load_dataset(tables / "edges.csv", positive_only=True)
    outcome = calirare.train(graph, positive_only=True, model="gcn", epochs=30, folds=0, prevalence=0.1)
    p = outcome.probabilities("population")[:, 1]
    nodes = torch.tensor([3, 5, 8, 13])
    for node, found in zip(nodes.tolist(), outcome.explain(nodes), strict=True):
        assert found.p == pytest.approx(float(p[node]), abs=1e-4)


def test_answers_of_a_review_are_for_the_data(run, tmp_path):
    folder, saved = run[0], calirare.load(run[0])
    with Verdicts(tmp_path / "a.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, None)
        for case in session.cases:
            verdicts.say(case.node, RARE)
        page = session.page(None, "nonce")
    assert "a positive-only run cannot be updated" in page
    assert "calirare update" not in page
    said = succeed("review", "--run", folder, "--out", tmp_path / "a.sqlite", "--export", tmp_path / "labels.csv")
    assert "for the data, as a positive-only run takes no update" in said.out
