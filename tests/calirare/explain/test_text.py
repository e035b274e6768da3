"""Tables of an explanation: eighty characters, and names that can be told apart."""

import pytest

from calirare.explain.explanation import apart
from calirare.explain.text import WIDTH, _points, _table

HEAD = ("feature", "value", "", "", "log-odds")


def test_a_name_goes_on_over_empty_cells():
    name = "mean over 2 hops of merchant=gifts and toys"
    assert _table(HEAD, [(name, "", "", "", "+3.24")], WIDTH)[1] == f"{name:<70}     +3.24"


@pytest.mark.parametrize("value", ["16", ""])
def test_of_a_name_without_room_the_middle_is_left_out(value):
    names = [f"mean of the neighbours of the neighbours of the {'merchant' * 3}={kind}" for kind in ("gifts", "toys")]
    lines = _table(HEAD, [(name, value, "", "0.97", "+3.24") for name in names], WIDTH)
    assert all(len(line) == WIDTH for line in lines)
    assert len({line.split("  ")[0] for line in lines[1:]}) == 2
    for line, name in zip(lines[1:], names, strict=True):
        head, tail = line.split("  ")[0].split("..")
        assert name.startswith(head)
        assert name.endswith(tail)


@pytest.mark.parametrize("width", [20, 57, 60, 80, 200])
def test_lines_end_where_the_numbers_of_others_do(width):
    rows = [("x" * 300, "y" * 300, "+0.1", "0.5", "+1.00"), ("a", "b", "+0.1", "0.5", "+1.00")]
    first, second = _table(("label of", "class", "points", "without", "log-odds"), rows, width)[1:]
    assert len(first) == len(second) == max(width, 56)


@pytest.mark.parametrize(
    ("p", "threshold", "text"),
    [
        (0.0985, 0.1, "0.099"),
        (0.09996, 0.1, "0.09996"),
        (0.1, 0.1, "0.10"),
        (0.12, 0.1, "0.12"),
        (0.5962, 0.597, "0.596"),
    ],
)
def test_a_probability_is_written_on_its_side_of_the_threshold(p, threshold, text):
    assert apart(p, threshold) == text


@pytest.mark.parametrize(("effect", "text"), [(-0.0002, "0.0"), (0.0, "0.0"), (-0.000975, "-0.1"), (0.0312, "+3.1")])
def test_points_have_no_negative_zero(effect, text):
    assert _points(effect) == text
