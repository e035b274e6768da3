"""Writing and reading a run's folder, without the command line."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pandas as pd
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare._util.run_files import seal
from calirare.graph import fingerprint
from calirare.leave_one_out import ALO
from calirare.run import Settings, read_yaml
from calirare.run.folder import write_json
from calirare.run.model_file import save_model
from calirare.run.outcome import write_config
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

WITH_FOLDS = ("<party>", "rank", "expected_amount", "p_low", "p_high", "label_set")
COLUMNS = tuple(each.name for each in calirare.run.COLUMNS if "rare" in each.tables and each.name not in WITH_FOLDS)


@pytest.fixture(scope="module")
def outcome():
    return calirare.train(rare_task(), preset="paper", epochs=12, folds=0)


def saved(outcome, folder):
    outcome.graph.to_npz(folder / "g.npz")
    outcome.settings = outcome.settings.but(dataset=str(folder / "g.npz"))
    write_config(outcome, folder / "config.yaml")
    save_model(outcome, folder / "model.safetensors")
    seal(folder)
    return calirare.load(folder)


OPTIONS = [{"method": "ts", "hops": 2}, {"n_layers": 3, "hidden": 4}, {"loo": ALO(form="primal")}]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_saved_is_read_again(options, tmp_path):
    outcome = calirare.train(rare_task(), preset="paper", epochs=5, folds=0, **options)
    run = saved(outcome, tmp_path)
    scorer, fit = run.scorer, run.fit
    for one, other in zip(fit.model.parameters(), outcome.model.parameters(), strict=True):
        assert_identical(one.detach(), other.detach())
    assert run.settings == outcome.settings.but(device="cpu", split="public", rare_class="1")
    assert torch.equal(fit.nodes, outcome.fit.nodes)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(run.split, part), getattr(outcome.graph.split, part))
    states = {t: c.state() for t, c in outcome.calibrators.items()}
    assert {t: c.state() for t, c in scorer.calibrators.items()} == states
    assert scorer.damping == outcome.jackknife.facts.damping
    assert_identical(fit.model.logits(outcome.graph), outcome.logits)
    assert scorer.class_names == outcome.graph.class_names
    assert not fit.model.training
    said = scorer.probabilities(outcome.graph)
    raw, probabilities = said.raw, said.chosen
    assert said.threshold == outcome.decision.threshold
    assert_identical(raw, outcome.probabilities(None))
    assert_identical(probabilities, outcome.probabilities("balanced"))
    assert_identical(fit.sample_weights, outcome.fit.sample_weights)
    assert_identical(fit.linearisation.logits, outcome.fit.linearisation.logits)
    assert fit.weight_decay == outcome.fit.weight_decay
    graph = run.graph()
    assert fingerprint(graph) == run.fingerprint == fingerprint(outcome.graph)
    assert torch.equal(graph.split.test, outcome.graph.split.test)


def same_tables(one, other):
    assert list(one.columns) == list(other.columns) == list(COLUMNS)
    for name in COLUMNS[2:]:
        assert one[name].tolist() == other[name].tolist(), name


@pytest.mark.slow
def test_save_load_predict_and_the_tables_are_one(outcome, rough, tmp_path):
    outcome.save(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    run = calirare.load(tmp_path / "moved")
    notes = []
    table = outcome.to_frame()
    same_tables(table, outcome.predict(outcome.graph, notes.append))
    same_tables(table, run.predict(outcome.graph, notes.append))
    same_tables(calirare.load(str(tmp_path / "moved")).predict(outcome.graph), table)
    assert all("the run's verdict" in note for note in notes)
    read = run.to_frame()
    assert list(read.columns) == list(COLUMNS)
    assert read["split"].tolist() == table["split"].tolist()
    for name in COLUMNS[2:]:  # seven digits of a CSV
        assert (read[name] - table[name]).abs().max() <= 1e-6 * max(1, table[name].abs().max()), name
    assert " Took " in outcome.summary()
    assert run.summary() == re.sub(r" Took .* s\.", "", outcome.summary())
    assert "Brier score" in run.summary(verbose=True)
    tables = [line for line in run.summary(verbose=True).splitlines() if line.startswith(("│", "┃", "├"))]
    assert len(tables) >= 12
    assert max(map(len, tables)) <= 80
    with pytest.raises(InputError, match="exists already"):
        outcome.save(tmp_path / "moved")
    outcome.save(tmp_path / "moved", overwrite=True)
    assert run.graph(outcome.graph).split.train.tolist() == outcome.graph.split.train.tolist()
    with pytest.raises(InputError, match="has changed since the run was trained"):
        run.graph(rare_task(seed=1))


def test_paths_in_a_run_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = calirare.train(rare_task(), preset="paper", epochs=2, folds=0)
    (tmp_path / "cora").mkdir()  # a folder here, but "cora" is the name of a data set
    for dataset, resolved in (("g.npz", str(tmp_path / "g.npz")), ("cora", "cora")):
        outcome.settings = Settings.of(dataset=dataset, root="data", nodes="nodes.csv")
        write_config(outcome, tmp_path / "config.yaml")
        written = Settings.from_mapping(read_yaml(tmp_path / "config.yaml"))
        assert written.data.dataset == resolved
        assert (written.data.root, written.data.nodes) == (str(tmp_path / "data"), str(tmp_path / "nodes.csv"))


def test_json_is_the_same_for_the_same_values(tmp_path):
    write_json({"c": [math.nan, {"d": -math.inf}]}, tmp_path / "odd.json")
    assert json.loads((tmp_path / "odd.json").read_text(), parse_constant=pytest.fail) == {"c": [None, {"d": None}]}
    write_json({"b": 0.1 + 0.2, "a": None}, tmp_path / "x.json")
    assert (tmp_path / "x.json").read_text() == '{\n  "a": null,\n  "b": 0.30000000000000004\n}\n'


def test_a_fingerprint_tells_every_part_of_a_graph():
    graph = rare_task()
    assert fingerprint(graph) == fingerprint(rare_task())
    x, y = graph.x.clone(), graph.y.clone()
    x[3, 1] += 1e-3
    y[0] = 1 - y[0]
    others = [
        dataclasses.replace(graph, x=x),
        dataclasses.replace(graph, y=y),
        dataclasses.replace(graph, y=None),
        rare_task(seed=1),
    ]
    assert len({fingerprint(other) for other in [graph, *others]}) == 5
    assert fingerprint(graph.with_split(None)) == fingerprint(graph), "the split is kept by the run itself"


def test_files_appear_together_or_not_at_all(tmp_path):
    folder = tmp_path / "new"
    with fresh_files(folder, "it") as partial:
        (partial / "a").write_text("1")
        (partial / "b").write_text("2")
        assert [path.name for path in folder.iterdir()] == [partial.name]
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    with pytest.raises(RuntimeError, match="stop"), fresh_files(folder, "it") as partial:
        _write_then_stop(partial / "a")
    assert (folder / "a").read_text() == "1"
    with pytest.raises(InputError, match="it cannot be written: File exists"), fresh_files(folder / "a", "it"):
        pass


def _write_then_stop(path) -> None:
    path.write_text("half")
    raise RuntimeError("stop")


def test_a_graph_given_in_python_is_found_in_a_file_that_has_no_split(tmp_path) -> None:
    bare = {"split": None, "original_y": None, "original_class_names": (), "minority": None}
    graph = dataclasses.replace(rare_task(), class_names=("0", "1"), **bare)
    with rough_runs():
        outcome = calirare.train(graph, model="gcn", epochs=5, folds=0)
        outcome.save(tmp_path / "run")
    graph.to_npz(tmp_path / "g.npz")
    found = calirare.load(tmp_path / "run").graph(tmp_path / "g.npz")
    assert torch.equal(found.split.train, outcome.graph.split.train)
    assert torch.equal(found.split.test, outcome.graph.split.test)


@pytest.mark.slow
def test_a_graph_of_tables_is_found_in_a_file_that_has_neither_columns_nor_settings_of_tables(tmp_path):
    ids = [f"n{i}" for i in range(60)]
    nodes = {
        "id": ids,
        "x": [i % 7 + (i < 20) for i in range(60)],
        "label": ["a" if i < 20 else "b" for i in range(60)],
    }
    edges = {"source": [*ids, "n0"], "target": [*ids[1:], "n0", "late"], "weight": [1 + i % 3 for i in range(61)]}
    for name, table in (("nodes", nodes), ("edges", edges)):
        pd.DataFrame(table).to_csv(tmp_path / f"{name}.csv", index=False)
    data = {"dataset": str(tmp_path / "edges.csv"), "nodes": str(tmp_path / "nodes.csv"), "rare_class": "a"}
    settings = calirare.Settings.of(**data, weight="weight", unknown_ends="add", model="gcn", epochs=5, folds=0)
    with rough_runs():
        calirare.train(settings.data.load(0), settings).save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    saved.graph().to_npz(tmp_path / "g.npz")
    found = saved.graph(tmp_path / "g.npz")
    assert found.n_nodes == 61
    assert torch.equal(found.split.train, saved.graph().split.train)
    assert saved.explain("n3", graph=tmp_path / "g.npz")[0].p == saved.explain("n3")[0].p
