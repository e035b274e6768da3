"""Messages are one line of bounded length, whatever they quote."""

import numpy as np
import pandas as pd
import pytest
import torch

from calirare import InputError, metrics
from calirare._util.errors import LONGEST, one_line, shown, without_middle
from calirare.calibration.base import target_weights
from calirare.cli.tables.cells import numbers
from calirare.run import Settings
from calirare_ext._checks import check_whole


@pytest.mark.parametrize("long", ["x" * 5_000, "a word " * 5_000, "\N{RIGHT-TO-LEFT OVERRIDE}" * 5_000, "\n" * LONGEST])
def test_a_message_keeps_its_beginning_and_its_end(long):
    said = str(InputError(f"edges.csv: row 3 must hold a number, got {long}: correct it"))
    assert len(said) <= LONGEST
    assert said.isprintable()
    assert said.startswith("edges.csv: row 3 must hold a number, got ")
    assert said.endswith(": correct it")
    assert "[..]" in said


def test_of_a_long_path_the_file_is_left():
    path = "/a" + "/of_a_deep_folder" * 20 + "/nodes.csv"
    said = one_line(f"{path}: column 'label' is missing: name it with --label, or add it (of {path})")
    assert said.count("[..]") == 2
    assert said.count("of_a_deep_folder/nodes.csv") == 2
    assert "column 'label' is missing: name it with --label, or add it" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.float64("inf"), "inf"),
        (np.float32("nan"), "nan"),
        (-np.float64(1e-300), "-1e-300"),
        ([np.int64(2), np.str_("it's")], '[2, "it\'s"]'),
        ({"a": (np.bool_(True), np.float64(0.5))}, "{'a': (True, 0.5)}"),
        (np.datetime64("2024-01-31"), "'2024-01-31'"),
        ("np.float64(inf)", "'np.float64(inf)'"),
        (0.5, "0.5"),
    ],
)
def test_numbers_of_numpy_are_shown_as_numbers(value, said):
    assert shown(value) == said
    assert str(InputError(f"t: must be 1, got {value!r}: mend it")) == f"t: must be 1, got {said}: mend it"


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.auprc([0, 1], [0.5, np.inf]),
        lambda: metrics.precision_at([0, 1], [0.5, 0.6], np.bool_(True)),
        lambda: metrics.ece([0, 1], [0.5, 0.6], norm=np.str_("x")),
        lambda: target_weights(torch.tensor([0, 1]), 2, np.float64("inf")),
        lambda: numbers(pd.DataFrame({"p": [0.5, np.inf]}), "p"),
        lambda: check_whole("op", "n", np.float64("nan")),
        lambda: Settings.of(weight_decay=np.float64("inf")),
        lambda: Settings.of(epochs=np.float64(0.5)),
    ],
)
def test_no_refusal_shows_how_numpy_writes_a_number(call):
    with pytest.raises((ValueError, TypeError), match="got ") as error:
        call()
    assert "np." not in str(error.value)


def test_a_short_message_is_as_it_was():
    said = "g.npz: x " + "y" * 80 + ": take np.flatnonzero(mask) or np.float64(x, y)"
    assert one_line(said) == said


def test_names_that_differ_at_their_end_stay_apart():
    assert without_middle("short", 5) == "short"
    names = [f"Customer of Main Street {i}" for i in (17, 18)]
    told = [without_middle(name, 20) for name in names]
    assert [len(each) for each in told] == [20, 20]
    assert len(set(told)) == 2
    assert "\x1b" not in without_middle("a\x1b[2J", 20)
