"""`calirare audit`: a saved run's labels, told alike on the screen, in the table and in Python."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare import InputError, load
from calirare._util.run_files import listed_files
from calirare.explain import label_values
from calirare.run import Settings, read_yaml
from calirare.run import next_labels as next_labels_module
from calirare.run.deciding import nodes_to_decide
from calirare.run.next_labels import next_labels
from tests.helpers.command import assert_refused, call, succeed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def audited(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited") / "run"
    shutil.copytree(finished[0], folder)
    said = succeed("audit", "--run", folder, "--at-least", "0.3")
    return folder, said


@pytest.mark.slow
def test_the_table_the_screen_and_python_say_the_same(audited):
    folder, said = audited
    audit = load(folder).audit(at_least=0.3)
    table, written = audit.to_frame(), pd.read_parquet(folder / "audit.parquet")
    pd.testing.assert_frame_equal(written, table, check_dtype=False, check_exact=True)
    assert pd.read_csv(folder / "audit.csv").node.tolist() == table.node.tolist()
    assert said.out.startswith(audit.summary(80))
    assert said.out.endswith(f"{folder / 'audit.csv'}\n{folder / 'audit.parquet'}\n")
    assert "trained without its fold" in said.out
    assert {"audit.csv", "audit.parquet"} <= set(listed_files(folder) or {}), "they belong to the run"


def test_a_run_in_memory_says_what_the_saved_one_says(audited):
    folder = audited[0]
    outcome = calirare.train(settings=Settings.from_mapping(read_yaml(folder / "config.yaml"), "config"))
    pd.testing.assert_frame_equal(outcome.audit().to_frame(), load(folder).audit().to_frame(), check_exact=True)


@pytest.mark.slow
def test_without_a_cross_validation_nothing_is_audited(quick_run):
    """In closed form all 16 rare labels of a run of 30 epochs were called wrong, and none was."""
    said = assert_refused(call("audit", "--run", quick_run))
    assert "the run made no cross-validation (folds 0)" in said
    assert "train with --folds 5" in said


def test_nothing_is_replaced_unasked(audited, tmp_path):
    folder = audited[0]
    assert "exists already" in assert_refused(call("audit", "--run", folder))
    assert "must end in .csv" in assert_refused(call("audit", "--run", folder, "--out", tmp_path / "a.txt"))
    assert "must be in (0, 1)" in assert_refused(call("audit", "--run", folder, "--at-least", "2"))
    succeed("audit", "--run", folder, "--overwrite")


def test_next_labels_are_told_alike_on_the_screen_in_the_table_and_in_python(quick_run):
    said = succeed("suggest", "--run", quick_run, "--top", "12")
    found = load(quick_run).next_labels(12)
    table = found.to_frame()
    pd.testing.assert_frame_equal(pd.read_parquet(quick_run / "next.parquet"), table, check_dtype=False)
    assert said.out.startswith(found.summary(80))
    assert said.out.endswith(f"{quick_run / 'next.csv'}\n{quick_run / 'next.parquet'}\n")
    assert len(set(table.node)) == 12
    assert not set(table.node) & set(load(quick_run).fit.nodes.tolist()), "they have no label yet"
    assert (table["more"] <= table["value"] + 1e-12).all(), "what was taught before is not counted again"
    assert (table["more"].diff()[1:] <= 1e-12).all()
    assert 0 < table["more"].sum() <= found.total


def test_long_names_of_next_labels_stay_apart_and_no_note_is_of_edges(quick_run):
    found = load(quick_run).next_labels(3)
    alike = dataclasses.replace(found, names=np.array([f"Customer of Main Street {i}" for i in (17, 18, 19)]))
    told = [line.split("  ")[0] for line in alike.summary().splitlines() if line.startswith("Customer")]
    assert told == [f"Customer ..Street {i}" for i in (17, 18, 19)]
    assert not any(note.startswith("edges") for note in found.notes)


def test_more_nodes_than_there_are_is_refused(quick_run):
    assert "must be from 1 to" in assert_refused(call("suggest", "--run", quick_run, "--top", "100000"))


def test_next_labels_among_some_nodes_are_of_these(quick_run):
    explainer = load(quick_run).explainer()
    some = torch.from_numpy(load(quick_run).next_labels(20).nodes[10:].copy())
    found = next_labels(explainer, 4, some)
    assert set(found.nodes) <= set(some.tolist())
    assert found.n_open == load(quick_run).next_labels(1).n_open, "of which they teach does not change"
    names = [explainer.context.graph.node_name(node) for node in some.tolist()]
    for given in (some.to(torch.int32), names):
        assert next_labels(explainer, 4, given).nodes.tolist() == found.nodes.tolist()
    with pytest.raises(InputError, match="suggest: nodes must be names or whole numbers, got bool"):
        next_labels(explainer, 4, torch.ones(5, dtype=torch.bool))


def test_values_are_about_those_that_all_nodes_without_a_label_would_tell(quick_run, monkeypatch):
    """A candidate that was drawn to judge counted its own error as that of all it stood for: four times too much."""
    explainer, every = load(quick_run).explainer(), load(quick_run).next_labels(1).n_open
    monkeypatch.setattr(next_labels_module, "CANDIDATES", every)
    exact = next_labels(explainer, 40)
    monkeypatch.setattr(next_labels_module, "CANDIDATES", 40)
    monkeypatch.setattr(next_labels_module, "NODES", 40)
    some = next_labels(explainer, 40)
    values = label_values(explainer, torch.from_numpy(some.nodes), nodes_to_decide(explainer.context.graph)[0])
    np.testing.assert_allclose(some.value.sum(), values.fall.sum(), rtol=0.3)
    assert np.corrcoef(some.value, values.fall.sum(1))[0, 1] > 0.8
    own = values.p[:, 1] * values.p[:, 0]
    assert (some.value >= own.numpy() - 1e-12).all(), "its own error is gone"
    assert some.more.sum() <= 1.3 * exact.more.sum()
    assert exact.more.sum() <= exact.total
