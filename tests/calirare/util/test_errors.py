"""Messages are one line of bounded length, whatever they quote."""

import pytest

from calirare import InputError
from calirare._util.errors import LONGEST, one_line, without_middle


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


def test_a_short_message_is_as_it_was():
    said = "g.npz: x " + "y" * 80
    assert one_line(said) == said


def test_names_that_differ_at_their_end_stay_apart():
    assert without_middle("short", 5) == "short"
    names = [f"Customer of Main Street {i}" for i in (17, 18)]
    told = [without_middle(name, 20) for name in names]
    assert [len(each) for each in told] == [20, 20]
    assert len(set(told)) == 2
    assert "\x1b" not in without_middle("a\x1b[2J", 20)
