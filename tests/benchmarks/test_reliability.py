"""How files of campaigns become one results file."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("bench_reliability")


def of_file(bench, kind, seed, jobs):
    found = {"jobs": jobs, "findings": [], "took_s": 10}
    return bench.told({"seed": seed, "commit": f"c{seed}", "command": f"run --out /some/f{seed}.json", kind: found})[
        kind
    ]


def test_kills_of_several_works_add_up(bench):
    one, other = (
        of_file(bench, "kills", seed, {name: {"killed": 9}}) for seed, name in ((1, "train"), (2, "streaming"))
    )
    both = bench.added("kills", one, other)
    assert both["jobs"] == {"train": {"killed": 9}, "streaming": {"killed": 9}}
    assert (both["seed"], both["commit"], both["took_s"]) == ([1, 2], "c1 and c2", 20)
    assert both["command"] == "run --out f1.json and run --out f2.json"
    third = bench.added("kills", both, of_file(bench, "kills", 1, {"review": {"killed": 8}}))
    assert (sorted(third["jobs"]), third["seed"], third["commit"]) == (
        ["review", "streaming", "train"],
        [1, 2],
        "c1 and c2",
    )
    with pytest.raises(SystemExit, match="two files hold kills of train"):
        bench.added("kills", one, one)


def test_what_a_fuzz_reaches_is_told_by_room(bench):
    def facts(lines, covered):
        return {"summary": {"num_statements": lines, "covered_lines": covered}}

    files = {"python/calirare/run/a.py": facts(10, 4), "python/calirare/run/b.py": facts(5, 5)}
    told = bench.reached(files | {"python/calirare/sklearn.py": facts(3, 0)})
    assert (told["covered"], told["statements"]) == (9, 18)
    assert told["rooms"] == {"run": [9, 15], "the front": [0, 3]}
