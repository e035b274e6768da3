"""No source of the library can run what it reads, and nothing listens but the page of a review."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("python/calirare", "calirare_ext", "python/calirare_lab/published")
SOURCES = [path for place in PLACES for path in sorted((ROOT / place).rglob("*.py"))]
# What runs code that it is given, leaves a folder, or opens a port; and the only places that may.
DANGERS = {
    r"pickle\.(load|loads|Unpickler)\b": (),
    r"\bpickle\._Unpickler\b": ("published/pickles.py",),
    r"\b(torch|np|numpy)\.load\((?!.*allow_pickle=False)": (),
    r"allow_pickle=True": (),
    r"yaml\.(load|unsafe_load|full_load)\(": ("run/yaml_files.py",),
    r"(?<![.\w])eval\(": (),
    r"(?<![.\w])exec\((?!\"\"\))": (),
    r"shell=True|os\.system|os\.popen": (),
    r"\bmarshal\b|\bshelve\b|joblib\.load": (),
    r"extractall": (),
    r"http\.server|socketserver|\.listen\(|\.bind\(": ("page/server.py",),
}


@pytest.mark.parametrize("danger", DANGERS)
def test_nothing_runs_what_it_reads(danger):
    found = {str(path.relative_to(ROOT)) for path in SOURCES if re.search(danger, path.read_text(encoding="utf-8"))}
    others = {path for path in found if not path.endswith(tuple(DANGERS[danger]) or ("\0",))}
    assert others == set()
    assert len(found) == len(DANGERS[danger]), "what is allowed is still there"


@pytest.mark.parametrize(("name", "least"), [("lock.txt", 11), ("lock-docs.txt", 11)])
def test_every_dependency_is_pinned_by_checksum(name, least):
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8").replace("\\\n", "")
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(pins) >= least
    wrong = [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", pin)]
    assert wrong == []


def test_nothing_is_installed_but_by_the_lock():
    """But torch, which everybody takes for their own machine, ourselves, and Spark, which only its own tests take."""
    installs = re.findall(r"pip install(.*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(installs) > 4
    ours = ("--require-hashes", "--no-index", "--no-build-isolation --no-deps -e", "$(TORCH)", "pyspark>=4")
    assert [line for line in installs if not any(each in line for each in ours)] == []
