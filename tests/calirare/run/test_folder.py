"""Writing and reading a run's folder, without the command line."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare._util.output import fresh_files, fresh_folder
from calirare.graph.checksum import fingerprint
from calirare.run.folder import load_run, run_probabilities, save_model, write_config, write_json
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


@pytest.fixture(scope="module")
def outcome():
    return calirare.train(rare_task(), epochs=12, folds=0)


def saved(outcome, folder, dataset):
    outcome.graph.to_npz(dataset)
    write_config(outcome, {"dataset": str(dataset), "root": None, "seed": 0}, folder / "config.yaml")
    save_model(outcome, folder / "model.safetensors")
    return load_run(folder)


@pytest.mark.parametrize("options", [{}, {"method": "ts"}, {"n_layers": 1}, {"n_layers": 3, "hidden": 4}, {"hops": 2}])
def test_what_is_saved_is_read_again(options, tmp_path):
    outcome = calirare.train(rare_task(), epochs=5, folds=0, **options)
    run = saved(outcome, tmp_path, tmp_path / "g.npz")
    for one, other in zip(run.model.parameters(), outcome.model.parameters(), strict=True):
        assert_identical(one.detach(), other.detach())
    assert run.settings == dataclasses.replace(outcome.settings, epochs=5, device="cpu")
    assert torch.equal(run.labelled, outcome.fit.nodes)
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(run.split, part), getattr(outcome.graph.split, part))
    assert {t: c.state() for t, c in run.calibrators.items()} == {t: c.state() for t, c in outcome.calibrators.items()}
    assert run.damping == outcome.jackknife.diagnostics["damping"]
    assert_identical(run.model.logits(outcome.graph), outcome.logits)
    assert run.class_names == outcome.graph.class_names
    assert not run.model.training
    raw, probabilities = run_probabilities(run, outcome.logits)
    assert_identical(raw, outcome.probabilities()[:, 1])
    assert_identical(probabilities, outcome.probabilities("balanced"))
    again = run.fit(run.graph())
    assert_identical(again.sample_weights, outcome.fit.sample_weights)
    assert_identical(again.tape().logits, outcome.fit.tape().logits)


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


def test_a_folder_appears_only_when_it_is_done(tmp_path):
    run = tmp_path / "x" / "run"
    with fresh_folder(run, overwrite=False) as partial:
        (partial / "config.yaml").write_text("")
        assert not run.exists()
        assert partial.parent == run.parent
    assert [path.name for path in run.parent.iterdir()] == ["run"]
    assert run.stat().st_mode & 0o777 == 0o755
    with pytest.raises(RuntimeError, match="stop"), fresh_folder(tmp_path / "y" / "z", overwrite=False) as partial:
        _write_then_stop(partial / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["x"], "folders made on the way are gone too"
