"""A run at work: next month's tables, fresh labels and maps, folders that move; what was said once stays true."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import calirare
from calirare._util.errors import InputError
from calirare.page import ReviewSession, Verdicts
from calirare.run import Labels
from tests.helpers.command import call, rough_runs, succeed

KINDS = ("card", "transfer")


def month(folder: Path, name: str, seed: int, *, n: int = 240, kinds: tuple[str, ...] = KINDS) -> tuple[Path, Path]:
    """Writes a month's tables: accounts of which a quarter are fraud, named in a column of its own, typed edges."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < 0.25
    ids = [f"acc-{seed}-{i}" for i in range(n)]
    amount, region = rng.normal(size=n) + 1.5 * fraud, rng.choice(["ES", "FR", "PT"], n)
    label = np.where(rng.random(n) < 0.6, np.where(fraud, "fraud", "ok"), "")
    nodes = pd.DataFrame({"account": ids, "amount": amount.round(4), "region": region, "label": label})
    ends = rng.integers(0, n, (3 * n, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    kind = rng.choice(kinds, len(ends))
    edges = pd.DataFrame(
        {"from": [ids[i] for i in ends[:, 0]], "to": [ids[i] for i in ends[:, 1]], "kind": kind}
    ).drop_duplicates(["from", "to", "kind"])
    paths = folder / f"edges_{name}.csv", folder / f"nodes_{name}.csv"
    edges.to_csv(paths[0], index=False)
    nodes.to_csv(paths[1], index=False)
    return paths


def trained(folder: Path, name: str, tables: tuple[Path, Path], *options: str) -> Path:
    files = ("--dataset", tables[0], "--nodes", tables[1], "--rare-class", "fraud")
    succeed("train", *files, *options, "--out", folder / name)
    return folder / name


HOPS = ("--model", "hops", "--epochs", "10", "--folds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("months")


@pytest.fixture(scope="module")
def first(place) -> tuple[Path, Path]:
    return month(place, "1", 1)


@pytest.fixture(scope="module")
def second(place) -> tuple[Path, Path]:
    return month(place, "2", 2)


@pytest.fixture(scope="module")
def budget(place, first) -> Path:
    return trained(place, "budget", first, *HOPS, "--decide", "budget", "--budget", "20")


def predicted(run: Path, tables: tuple[Path, Path], out: Path, *options: str):
    return succeed("predict", "--run", run, "--graph", tables[0], "--nodes", tables[1], "--out", out, *options)


def test_a_budget_is_that_many_alerts_whatever_is_labelled(budget, second, tmp_path):
    bare = pd.read_csv(second[1]).drop(columns="label")
    bare.to_csv(tmp_path / "bare.csv", index=False)
    without = (second[0], tmp_path / "bare.csv")
    for name, tables, options in (("b", without, ()), ("c", second, ("--scores-only",))):
        out = tmp_path / f"{name}.{'parquet' if options else 'csv'}"
        said = predicted(budget, tables, out, *options)
        table = pd.read_parquet(out) if options else pd.read_csv(out)
        assert table["alert"].sum() == 20, name
        assert "alerts: 20;" in said.out
    own = pd.read_csv(budget / "predictions.csv")
    decided = own[own["y"] == -1]
    assert decided["alert"].sum() == 20, "of its own nodes a run decides on those without a label"


def weighing(tables, folder):
    """Returns the tables of a month whose edges have a column called weight."""
    edges = pd.read_csv(tables[0])
    edges.assign(weight=[10.0 ** (row % 7 - 3) for row in range(len(edges))]).to_csv(folder / "edges.csv", index=False)
    return folder / "edges.csv", tables[1]


@pytest.mark.slow
def test_weights_that_a_run_left_unread_are_left_unread_next_month(place, first, second, tmp_path):
    run = trained(place, "unweighted", weighing(first, tmp_path), *HOPS, "--unweighted")
    later = weighing(second, tmp_path)
    said = predicted(run, later, tmp_path / "a.csv")
    assert "P may be wrong" not in said.err
    predicted(run, second, tmp_path / "b.csv")
    ours, bare = (pd.read_csv(tmp_path / name)["p_rare"] for name in ("a.csv", "b.csv"))
    assert ours.tolist() == bare.tolist()
    said = predicted(run, later, tmp_path / "c.csv", "--weight", "weight")
    assert "P may be wrong: leave the weights out (table: --unweighted)" in said.err
    graph = calirare.Graph.from_tables(pd.read_csv(later[0]), pd.read_csv(later[1]), "label", unweighted=True)
    with rough_runs():
        calirare.train(graph, model="hops", epochs=10, folds=0).save(tmp_path / "python")
    assert "P may be wrong" not in predicted(tmp_path / "python", later, tmp_path / "d.csv").err


@pytest.mark.slow
def test_types_of_edges_that_are_missing_or_new_are_said(budget, first, tmp_path):
    run = trained(tmp_path, "typed", first, *HOPS, "--relation", "kind")
    fewer, more = (month(tmp_path, n, 5, kinds=k) for n, k in (("f", KINDS[1:]), ("m", (*KINDS, "wire"))))
    said = predicted(run, fewer, tmp_path / "f.csv")
    assert "no edge is of type card, but the run's graph has such edges" in said.err
    said = predicted(run, more, tmp_path / "m.csv")
    assert "edges of type wire count as edges without a type" in said.err
    saved, graph = calirare.load(run), calirare.load_dataset(fewer[0], nodes=fewer[1], id="account", label="label")
    with pytest.raises(InputError, match=r"types or directions like the run's graph, card and transfer"):
        saved.predict(graph)
    kept = predicted(budget, fewer, tmp_path / "u.csv").err
    given = calirare.load_dataset(fewer[0], nodes=fewer[1], id="account", label="label", relation="kind")
    notes: list[str] = []
    p = calirare.load(budget).predict(given, notes.append)["p_rare"]
    assert "types and directions of edges are ignored, because the run's graph has none" in notes
    assert np.abs(p - pd.read_csv(tmp_path / "u.csv")["p_rare"]).max() < 1e-6
    assert "of type" not in kept


def answers(tables: tuple[Path, Path], path: Path, k: int) -> Path:
    """Writes answers for the first k accounts without a label."""
    nodes = pd.read_csv(tables[1])
    some = nodes[nodes["label"].isna()].head(k)
    label = np.where(some["amount"] > 1, "fraud", "ok")
    pd.DataFrame({"node": some["account"], "label": label}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def updated(place, budget, first) -> tuple[Path, str]:
    """An update that has moved since, and what was noted."""
    labels = answers(first, place / "new.csv", 12)
    said = succeed("update", "--run", budget, "--labels", labels, "--out", place / "updated")
    return Path(shutil.move(place / "updated", place / "moved")), said.err


@pytest.mark.slow
def test_a_moved_update_trains_again_from_its_own_config(updated, tmp_path):
    moved, _ = updated
    succeed("train", "--config", moved / "config.yaml", "--out", tmp_path / "again")
    assert (tmp_path / "again" / "predictions.csv").read_bytes() == (moved / "predictions.csv").read_bytes()
    config = yaml.safe_load((tmp_path / "again" / "config.yaml").read_text())
    assert config["data"]["relabel"] == str(moved / "labels.csv")


@pytest.fixture(scope="module")
def recalibrated(place, budget, second) -> tuple[Path, str]:
    run = place / "recalibrated"
    shutil.copytree(budget, run)
    files = ("--graph", second[0], "--nodes", second[1])
    said = succeed("recalibrate", "--run", run, *files, "--overwrite")
    return run, said.out


def test_the_queue_of_a_recalibrated_run_speaks_by_its_map(recalibrated, first, tmp_path):
    run, said = recalibrated
    assert "use the old calibrator" in said
    saved = calirare.load(run)
    now = saved.predict(saved.graph()).set_index("node")["p_rare"]
    with Verdicts(tmp_path / "said.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, saved.explainer)
        for case in session.cases[:20]:
            assert case.p == pytest.approx(now[case.node], abs=1e-5)
            alert = "an alert" if case.p >= saved.scorer.threshold else "no alert"
            assert case.more == f"{alert} at {saved.scorer.threshold:.3g}"


def test_of_two_named_classes_the_other_keeps_its_name(budget, updated, first, tmp_path):
    saved = calirare.load(budget)
    assert saved.scorer.class_names == ("ok", "fraud")
    assert set(pd.read_csv(updated[0] / "labels.csv")["label"]) <= {"ok", "fraud"}
    labels = answers(first, tmp_path / "new.csv", 12)
    table = pd.read_csv(labels)
    table["label"] = table["label"].replace("ok", "rest")  # as runs of before wrote it
    table.to_csv(tmp_path / "old.csv", index=False)
    one, other = (Labels.read(path, saved.graph()) for path in (labels, tmp_path / "old.csv"))
    assert one.y.tolist() == other.y.tolist()
    assert set(one.y.tolist()) == {0, 1}


def test_what_cannot_be_trained_is_said_before_it_is(first, tmp_path):
    files = ("--dataset", first[0], "--nodes", first[1], "--rare-class", "fraud", "--out", tmp_path / "run")
    said = call("train", *files, *HOPS, "--calibrate-on", "val")
    assert said.code == 2
    assert "calibrate_on=val needs validation nodes, but the split has none" in said.err
    assert "train" not in said.err.split("calibrate_on")[0], "nothing was trained"
    decide = ("--decide", "recall", "--min-recall", "0.99", "--guarantee", "0.99")
    said = call("train", *files, *HOPS, *decide)
    assert said.code == 2
    assert "rare labels, 459 are needed at least" in said.err
    assert "train" not in said.err.split("a recall")[0]
    ring = pd.DataFrame({"source": range(40), "target": [(i + 1) % 40 for i in range(40)]})
    ring.to_csv(tmp_path / "edges.csv", index=False)
    label = ["fraud" if i % 4 == 0 else "ok" for i in range(40)]
    pd.DataFrame({"node": range(40), "label": label}).to_csv(tmp_path / "nodes.csv", index=False)
    said = call("train", "--dataset", tmp_path / "edges.csv", "--rare-class", "fraud", "--out", tmp_path / "ring")
    assert said.code == 2
    assert "must have a column that varies, but all are constant" in said.err


@pytest.mark.slow
def test_drift_of_dates_says_what_its_numbers_are(tmp_path):
    rng = np.random.default_rng(0)
    for name, start in (("a", "2024-01-01"), ("b", "2031-01-01")):
        days = pd.Timestamp(start) + pd.to_timedelta(rng.integers(0, 300, 80), unit="D")
        label = ["fraud" if i % 4 == 0 else "ok" for i in range(80)]
        nodes = pd.DataFrame({"node": range(80), "opened": days.strftime("%Y-%m-%d"), "label": label})
        nodes["amount"] = rng.normal(size=80) + (nodes["label"] == "fraud")
        nodes.to_csv(tmp_path / f"nodes_{name}.csv", index=False)
        ends = rng.integers(0, 80, (160, 2))
        ends = pd.DataFrame(ends[ends[:, 0] != ends[:, 1]], columns=["source", "target"]).drop_duplicates()
        ends.to_csv(tmp_path / f"edges_{name}.csv", index=False)
    run = trained(tmp_path, "run", (tmp_path / "edges_a.csv", tmp_path / "nodes_a.csv"), *HOPS)
    said = predicted(run, (tmp_path / "edges_b.csv", tmp_path / "nodes_b.csv"), tmp_path / "p.csv")
    assert "days before the newest day of the run's graph" in " ".join(said.out.split())
