"""Steps that a loop tells of are heard by whoever listens, and by nobody else."""

from __future__ import annotations

import pytest

from calirare._util.steps import counted, progress, report_step, step_listener


def test_nobody_listens_and_nothing_is_lost():
    assert list(progress("stage", ["a", "b"])) == ["a", "b"]
    assert list(counted("stage", iter("ab"), 2)) == ["a", "b"]
    report_step("stage", 1, 2)


def test_items_are_told_before_they_are_worked_on_and_at_the_end():
    heard = []
    with step_listener(lambda *step: heard.append(step)):
        for item in progress("stage", ["a", "b"]):
            heard.append(item)
    assert heard == [("stage", 0, 2), "a", ("stage", 1, 2), "b", ("stage", 2, 2)]


def test_items_that_are_made_are_told_when_they_are_there():
    heard = []

    def items():
        for item in "ab":
            heard.append(item)
            yield item

    with step_listener(lambda *step: heard.append(step)):
        assert list(counted("stage", items(), 2)) == ["a", "b"]
    assert heard == [("stage", 0, 2), "a", ("stage", 1, 2), "b", ("stage", 2, 2)]


def stopped_after_a_step():
    report_step("inner", 1, 1)
    raise KeyError


def test_the_inner_listener_hears_until_it_is_gone():
    outer, inner = [], []
    with step_listener(lambda *step: outer.append(step)):
        with pytest.raises(KeyError), step_listener(lambda *step: inner.append(step)):
            stopped_after_a_step()
        report_step("outer", 1, 1)
    report_step("nobody", 1, 1)
    assert (outer, inner) == ([("outer", 1, 1)], [("inner", 1, 1)])
