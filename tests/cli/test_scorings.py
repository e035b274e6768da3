"""A scoring's folder: another graph scored by a run, decided on, explained and reviewed as the run's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare.graph import fingerprint, scipy_of_csr
from calirare.models import LabelPropagation
from calirare.page import ReviewSession, Verdicts
from calirare.run.explaining import TrainedOn
from tests.cli.test_later_months import HOPS, month
from tests.helpers.command import assert_refused, call, succeed


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Tables of two months, which share half of their accounts, and a run of the first one."""
    folder = tmp_path_factory.mktemp("scorings")
    for name, seed in (("1", 1), ("2", 2)):
        month(folder, name, seed)
    edges, nodes = (pd.read_csv(folder / f"{kind}_2.csv") for kind in ("edges", "nodes"))
    shared = {f"acc-2-{i}": f"acc-1-{i}" for i in range(120)}
    edges.replace(shared).to_csv(folder / "edges_2.csv", index=False)
    period = np.where(np.arange(len(nodes)) % 3 == 0, "2024-11", "2024-12")
    nodes.replace(shared).drop(columns="label").assign(period=period).to_csv(folder / "nodes_2.csv", index=False)
    files = ("--dataset", folder / "edges_1.csv", "--nodes", folder / "nodes_1.csv", "--rare-class", "fraud")
    succeed("train", *files, "--model", "auto", "--out", folder / "run")
    return folder


def scored(place: Path, out: Path, month: str = "2", *options: object) -> Path:
    files = ("--graph", place / f"edges_{month}.csv", "--nodes", place / f"nodes_{month}.csv")
    succeed("predict", place / "run", *files, "--out", out, *options)
    return out


def test_of_the_runs_own_graph_a_scoring_gives_the_runs_own_reasons(place, tmp_path):
    own, other = calirare.load(place / "run"), calirare.load(scored(place, tmp_path / "again", "1"))
    names = [str(name) for name in own.to_frame()["node"][:4]]
    before, after = own.explain(names), other.explain(names)
    for a, b in zip(before, after, strict=True):
        assert b.p == pytest.approx(a.p, abs=1e-6)
        for kind in ("labels", "edges", "features"):
            one, two = ({e.name: e for e in getattr(each, kind)} for each in (a, b))
            value = "share" if kind == "features" else "effect"
            common = one.keys() & two.keys()
            assert len(common) >= 0.8 * len(one) > 0
            for name in common:
                assert getattr(two[name], value) == pytest.approx(getattr(one[name], value), abs=1e-5)
    assert [each.label for each in after] == [each.label for each in before]


def test_parts_of_labels_add_up_to_what_reaches_a_node_of_another_graph(place, tmp_path):
    from calirare.explain.label_propagation import ExplainablePropagation

    scoring = calirare.load(scored(place, tmp_path / "next"))
    graph, own = scoring.graph(), scoring.run.graph()
    mapped, trained = scoring.mapped(graph), scoring.run.mapped(own)
    fit = LabelPropagation().fit(trained, scoring.run.fit.nodes)
    model, nodes = ExplainablePropagation(fit, mapped, trained), torch.arange(40)
    parts = model._of_classes(model._of_labels(nodes)).sum(0)
    wanted = fit.reached_in(mapped, nodes)[:, -1]
    assert float(wanted.sum(1).max()) > 0
    torch.testing.assert_close(parts, wanted, rtol=1e-4, atol=1e-7)
    places = TrainedOn("", own, trained, shared=True).places_of(graph)
    names = [(graph.node_name(i), own.node_name(int(p))) for i, p in enumerate(places.tolist()) if p >= 0]
    assert len(names) > 50
    assert all(a == b for a, b in names)


def test_a_part_is_decided_on_with_a_cap_and_the_same_input_gives_the_same_bytes(place, tmp_path):
    part = ("--where", "period=2024-11", "--cost-fn", 50, "--max-alerts", 7)
    options = (*part, "--queue", 9, "--explain", 2, "--report")
    a, b = (scored(place, tmp_path / name, "2", *options, "--log", tmp_path / "log.jsonl") for name in ("a", "b"))
    files = sorted(path.name for path in a.iterdir())
    assert {"predictions.csv", "review.csv", "reasons.json", "report.html", "scoring.json"} <= set(files)
    assert all((a / name).read_bytes() == (b / name).read_bytes() for name in files)
    table, queue = pd.read_csv(a / "predictions.csv"), pd.read_csv(a / "review.csv")
    assert len(table) == 80
    assert table["alert"].sum() == 7
    assert queue["node"].tolist() == table.nlargest(9, "p_rare")["node"].tolist()
    assert [each["name"] for each in json.loads((a / "reasons.json").read_text())["explanations"]] == [
        *table.nlargest(2, "p_rare")["node"]
    ]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["alerts"] for line in lines] == [7, 7]


def test_a_scoring_of_many_classes_is_explained_and_reviewed_too(place, tmp_path):
    files = ("--dataset", place / "edges_1.csv", "--nodes", place / "nodes_1.csv", "--label", "region")
    succeed("train", *files, "--drop-columns", "label", "--task", "classes", *HOPS, "--out", tmp_path / "run")
    files = ("--graph", place / "edges_2.csv", "--nodes", place / "nodes_2.csv")
    succeed("predict", tmp_path / "run", *files, "--report", "--out", tmp_path / "next")
    run, table = calirare.load(tmp_path / "next"), pd.read_csv(tmp_path / "next" / "predictions.csv")
    first = run.review()["node"].iloc[0]
    why = run.explain([first])[0]
    row = table[table["node"] == first].iloc[0]
    assert why.of == row["prediction"]
    assert why.p == pytest.approx(row["confidence"], abs=1e-5)
    session = ReviewSession(run, Verdicts(tmp_path / "a.sqlite", run.fingerprint, run.class_names), run.explainer)
    assert f"P({row['prediction']})" in session.page(session.cases[0], "n")
    page, counts = (tmp_path / "next" / "report.html").read_text(), table["prediction"].value_counts()
    assert all(f'"text">{name}</td><td>{n}</td>' in page for name, n in counts.items())
    assert f'"text">{first}</td>' in page
    assert "alert" not in page.lower().replace("role=alert", "")


def test_labels_of_a_scoring_recalibrate_its_run(place, tmp_path):
    folder = scored(place, tmp_path / "next")
    rows = pd.read_csv(folder / "predictions.csv").sample(120, random_state=0)
    rare = np.random.default_rng(0).random(120) < rows["p_rare"]
    rows.assign(label=np.where(rare, "fraud", "ok"))[["node", "label"]].to_csv(tmp_path / "labels.csv", index=False)
    succeed("recalibrate", folder, "--labels", tmp_path / "labels.csv", "--out", tmp_path / "fresh")
    facts = json.loads((tmp_path / "fresh" / "recalibration.json").read_text())
    assert facts["labels"] == 120
    assert not facts["own_graph"]


def test_an_update_with_labels_of_a_scoring_trains_on_both_graphs(place, tmp_path):
    folder = scored(place, tmp_path / "next")
    new = [name for name in pd.read_csv(folder / "predictions.csv")["node"] if name.startswith("acc-2")][:20]
    rows = {"node": new, "label": ["fraud", "ok"] * 10}
    pd.DataFrame(rows).to_csv(tmp_path / "labels.csv", index=False)
    succeed("update", folder, "--labels", tmp_path / "labels.csv", "--out", tmp_path / "both")
    old, run = calirare.load(place / "run"), calirare.load(tmp_path / "both")
    graph, before, other = run.graph(), old.graph(), calirare.load(folder).graph()
    names = graph.node_names.tolist()
    assert names[: before.n_nodes] == before.node_names.tolist()
    assert set(names) == {*before.node_names.tolist(), *other.node_names.tolist()}
    assert {names[node] for node in run.fit.nodes.tolist()} - set(before.node_names.tolist()) == set(new)
    edges = {(names[i], names[j]) for i, j in zip(*scipy_of_csr(graph.adjacency).nonzero(), strict=True)}
    wanted = set[tuple[str, str]]()
    for each in (before, other):
        ends = scipy_of_csr(each.adjacency).nonzero()
        wanted |= {(each.node_name(int(i)), each.node_name(int(j))) for i, j in zip(*ends, strict=True)}
    assert edges == wanted
    for name in new[:5]:
        a, b = (graph, names.index(name)), (other, other.node_names.tolist().index(name))
        shown = [(g.columns[0].name, float(g.x[node, 0]), float(g.x[node, 1])) for g, node in (a, b)]
        assert shown[0] == shown[1]
    assert len(run.explain([new[0]])[0].labels) > 0


def test_a_scoring_is_bound_to_its_graph_and_run(place, tmp_path):
    copy = shutil.copytree(place, tmp_path / "copy")
    folder = scored(copy, tmp_path / "next")
    assert calirare.load(folder).fingerprint == fingerprint(calirare.load(folder).graph())
    edges = pd.read_csv(copy / "edges_2.csv")
    edges[:-3].to_csv(copy / "edges_2.csv", index=False)
    assert "has changed since it was scored" in assert_refused(call("explain", folder, "--top", 1))
    assert "its labels did not train" in assert_refused(call("audit", folder))
    csv = ("--graph", copy / "edges_2.csv", "--nodes", copy / "nodes_2.csv", "--out", tmp_path / "x.csv", "--report")
    assert "name one without an ending" in assert_refused(call("predict", copy / "run", *csv))
    (copy / "run" / "model.safetensors").unlink()
    assert_refused(call("review", folder))
