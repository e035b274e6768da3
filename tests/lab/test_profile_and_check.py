"""`calirare profile` and the check of leave-one-out: trace, tables, pictures; bad input."""

from __future__ import annotations

import json

import pytest

from calirare_lab.profile.command import Event, stage_times
from calirare_lab.profile.cost import Cost, Sizes, memory_bytes, stage_costs
from tests.helpers.command import assert_refused, call, succeed

WITHIN = {"messages", "propagate messages", "intervals"}  # the jackknife
STAGES = {"prepare", "train", "predict", "check", "calibrate", "jackknife", "decide", "ranges", "judge"}


@pytest.fixture(scope="module")
def profiled(graph_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    said = succeed("profile", "--dataset", graph_file, "--epochs", "5", "--device", "cpu", "--out", folder)
    return folder, said


@pytest.mark.slow
def test_every_stage_is_in_trace_table_and_json(profiled):
    folder, said = profiled
    facts = json.loads((folder / "profile.json").read_text())
    assert set(facts["stages"]) == STAGES | WITHIN | {"other"}
    total = sum(stage["seconds"] for stage in facts["stages"].values() if stage["within"] is None)
    assert total == pytest.approx(facts["seconds"], rel=1e-9)
    assert facts["stages"]["other"]["seconds"] < 0.5 * total
    train = facts["stages"]["train"]
    assert train["bytes"] > 0
    assert train["share_of_peak"] > 0
    assert facts["peaks"]["copy_bytes_per_s"] > 1e8
    trace = json.loads((folder / "trace.json").read_text())
    assert {f"calirare: {name}" for name in STAGES} <= {e.get("name") for e in trace["traceEvents"]}
    for name in (*STAGES, "other"):
        assert name in said.out
    assert "share of peak are empty where they are not known" in said.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --run or --dataset"),
        (("--run", "a", "--epochs", "3"), "--epochs must be left out with --run"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, tmp_path):
    said = call("profile", *arguments, "--out", tmp_path / "out")
    assert said.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_stages_and_the_rest_add_up_and_nested_ones_are_told_apart():
    events = [
        Event("train", 1e6, 2e6, True),
        Event("aten::mm", 1.5e6, 1e6, False),
        Event("jackknife", 3e6, 4e6, True),
        Event("messages", 3e6, 1e6, True),
        Event("intervals", 4e6, 1e6, True),
        Event("messages", 5e6, 1e6, True),
        Event("predict", 7e6, 1e6, True),
    ]
    stages = stage_times(events, 10.0)
    assert {name: (stage["seconds"], stage["within"]) for name, stage in stages.items()} == {
        "train": (2.0, None),
        "jackknife": (4.0, None),
        "messages": (2.0, "jackknife"),
        "intervals": (1.0, "jackknife"),
        "predict": (1.0, None),
        "other": (3.0, None),
    }
    assert stages["messages"]["share_of_time"] == 0.2


def test_costs_by_hand():
    s = Sizes(n=10, e=30, d=4, h=2, m=3, r=5, steps=1)
    costs = stage_costs(s)
    assert costs["propagate features"] == Cost(30 * 8 + 4 * (30 * 4 + 10 * 4), 2 * 30 * 4)
    assert costs["intervals"] == Cost(30 * 8 + 4 * (30 * 3 + 20), 2 * 30 * 3)
    assert costs["messages"].flops == 2 * 10 * 4 * (2 * 3 + 2)
    assert Cost(100, 10).floor_seconds(50.0, 1.0) == 10.0
    assert Cost(1000, 10).floor_seconds(50.0, 1.0) == 20.0
    assert memory_bytes(s) == 2 * 30 * 8 + 160 + 10 * 7 * 4 + 1200
    assert memory_bytes(s, messages_in_file=True) == 2 * 30 * 8 + 160 + 10 * 4 * 4 + 1200


@pytest.mark.parametrize(("option", "value", "least"), [("--nodes", 2, 3), ("--jobs", 0, 1)])
def test_numbers_out_of_range(option, value, least):
    said = assert_refused(call("study", "loo-check", "--run", "r", option, value))
    assert f"study loo-check: {option} must be from {least}" in said
