"""Every command in two fresh processes, with other hash seeds and two threads: the same bytes and words."""

from __future__ import annotations

import copy

import pytest

from calirare.cli.parser import COMMANDS
from tests.campaigns.again import MORE, differences, process
from tests.campaigns.jobs import JOBS, make_inputs

# Retraining and what was built print seconds; what the others print or write is compared.
TIMED = {"loo-check", "doctor"}


def test_every_command_is_compared():
    compared = {job.words[0] for job in (JOBS | MORE).values()}
    assert set(COMMANDS) - compared == TIMED
    assert {"paper", "multilabel"} <= compared


def test_other_bytes_words_and_codes_are_told():
    one = {"train": {"code": 0, "said": "a", "files": {"x": "1", "y": "2"}}}
    assert differences(one, copy.deepcopy(one)) == []
    for key, value, told in [
        ("said", "b", "train: other words"),
        ("files", {"x": "1", "y": "3"}, "train: other bytes in y"),
        ("files", {"x": "1"}, "train: other bytes in y"),
    ]:
        assert differences(one, {"train": one["train"] | {key: value}}) == [told]
    failed = {"train": one["train"] | {"code": 2}}
    assert differences(failed, failed) == ["train: exit code 2: a"]


@pytest.mark.slow
def test_two_processes_leave_the_same_bytes(tmp_path):
    make_inputs(tmp_path)
    found = [process(tmp_path, True, PYTHONHASHSEED=seed, OMP_NUM_THREADS="2") for seed in ("0", "4242")]
    assert differences(*found) == []
