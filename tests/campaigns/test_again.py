"""Every command in two processes, with other hash seeds and two threads: the same bytes and words."""

from __future__ import annotations

import copy
import os

import pytest

from tests.campaigns.again import differences, done, process
from tests.campaigns.jobs import make_inputs

# Retraining and what was built print seconds; what the others print or write is compared.


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


@pytest.mark.release
def test_a_fresh_process_leaves_the_same_bytes(tmp_path, threads):
    """As this one, which has another hash seed and has run other tests."""
    make_inputs(tmp_path)
    with threads(2):
        here = done(tmp_path, quick=True)
    numbers = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    assert differences(here, process(tmp_path, True, PYTHONHASHSEED="4242", **numbers)) == []
