"""The layer below the C library does what it says: at each call a process ends, or its disk is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.campaigns.faults import SOURCE, _spread

CHILD = """
import ctypes, json, os, sys
from pathlib import Path
from calirare._util import run_files
layer, root = ctypes.CDLL(None), Path(sys.argv[1])
layer.fault_kinds.restype = ctypes.c_char_p
folder = root / "run"
folder.mkdir()
(folder / "a.txt").write_text("a")
run_files.seal(folder)
before = (folder / run_files.LIST).read_text()

def in_place(folder):
    (folder / run_files.LIST).write_text(before)

def without_sync(folder):
    (folder / "new").write_text(before)
    (folder / "new").replace(folder / run_files.LIST)
    (folder / "later").mkdir(exist_ok=True)

def after(work, way, k):
    (folder / run_files.LIST).write_text(before)
    number = os.fork()
    if not number:
        code = 1
        try:
            layer.fault_arm(os.fsencode(folder), way, ctypes.c_long(k))
            work(folder)
            (root / "calls").write_bytes(layer.fault_kinds())
            code = 0
        except OSError:
            code = 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    part = folder / run_files.PART
    left = part.exists()
    part.unlink(missing_ok=True)
    return [code, (folder / run_files.LIST).read_text() == before] + ["left"] * (left and code >= 0)

said = {}
for name, work in {"seal": run_files.seal, "in_place": in_place, "without_sync": without_sync}.items():
    after(work, 1, 0)
    calls = (root / "calls").read_text()
    said[name] = {str(way): [after(work, way, k + 1) for k in range(len(calls))] for way in (2, 3, 4, 6)}
    said[name]["calls"] = calls
    said[name]["5"] = after(work, 5, 1)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    library = folder / "faults.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True, env=env, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_list_that_is_put_in_place_whole_outlives_every_kill_and_a_full_disk(said):
    found = said["seal"]
    assert found["calls"] == "owfr"
    assert found["2"] == [[-9, True]] * 4
    assert found["3"][1] == [-9, True], "half of it was written, elsewhere"
    assert found["4"] == [*[[2, True]] * 3, [0, True]], "to rename takes no room; nothing is left of what failed"
    assert found["5"] == [2, True]


def test_a_list_that_is_written_over_is_found_damaged(said):
    found = said["in_place"]
    assert found["calls"] == "ow"
    assert found["2"] == [[-9, True], [-9, False]]
    assert found["3"][1] == [-9, False]
    assert found["4"] == [[2, True], [2, False]]


def test_a_list_that_is_on_the_disk_before_its_name_is_outlives_a_power_cut(said):
    assert said["seal"]["6"] == [[-9, True]] * 4
    careless = said["without_sync"]
    assert careless["calls"] == "owrm"
    assert careless["2"] == [[-9, True]] * 4, "a kill alone loses nothing"
    assert careless["6"] == [*[[-9, True]] * 3, [-9, False]]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 13])
def test_every_call_is_tried_once_and_early_ones_are_spread(n):
    found = list(_spread(n))
    assert sorted(found) == list(range(n))
    assert n < 8 or abs(found[1] - found[0]) >= n // 2
