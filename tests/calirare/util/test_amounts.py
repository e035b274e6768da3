"""Numbers with the word for what they count."""

import pytest

from calirare._util.amounts import amount, class_words, listed, of_two_classes


@pytest.mark.parametrize(
    ("n", "words", "want"),
    [
        (1, ("alert",), "1 alert"),
        (0, ("alert",), "0 alerts"),
        (1200, ("alert",), "1,200 alerts"),
        (1, ("miss", "misses"), "1 miss"),
        (2, ("miss", "misses"), "2 misses"),
    ],
)
def test_one_of_a_thing_has_no_s(n, words, want):
    assert amount(n, *words) == want


def test_names_in_a_list_are_as_many_as_they_look():
    assert listed(["a b", "c, d", "", " e", "f and g", 7]) == "a b, 'c, d', '', ' e', 'f and g', 7"


@pytest.mark.parametrize(
    ("share", "rare", "want"),
    [
        (0.1, True, ", 'x' is rare with 10.00 %"),
        (0.1, False, " ('ok' 90.00 %, 'x' 10.00 %)"),
        (1.0, False, ", labels of 'x' alone"),
        (0.0, False, ""),
    ],
)
def test_a_class_is_called_rare_where_somebody_said_so(share, rare, want):
    assert of_two_classes(("ok", "x"), share, rare=rare) == want


@pytest.mark.parametrize(("name", "want"), [("1", "class 1"), ("2.5", "class 2.5"), ("fraud", "fraud"), ("1a", "1a")])
def test_a_class_that_is_a_number_is_called_a_class(name, want):
    assert class_words(name) == want
