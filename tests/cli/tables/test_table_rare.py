"""`calirare metrics`: budgets, and the rare class of a table."""

from __future__ import annotations

import argparse

import pytest

from calirare.cli.options import budget


@pytest.mark.parametrize(("text", "value"), [("100", 100), ("1", 1), ("1%", 0.01), ("0.02", 0.02), ("1.0", 1.0)])
def test_a_budget_is_a_number_or_a_share(text, value):
    assert budget(text) == value
    assert type(budget(text)) is type(value), "1 is one sample, 1.0 are all"


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "0%", "101%", "many", "nan", "inf"])
def test_other_budgets_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of samples such as 100, or a share"):
        budget(text)
