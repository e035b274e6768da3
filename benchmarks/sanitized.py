"""What a run under sanitizers counted, as bench_reliability.py reads it: kind, pytest's XML, the fuzz's JSON, output.

python benchmarks/sanitized.py thread tests.xml fuzz.json out.json    # an output that exists gets one kind more
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import record


def main() -> None:
    """Writes the counts; a run that found something has ended before."""
    kind, tests, fuzz, out = sys.argv[1], *map(Path, sys.argv[2:5])
    suite = next(ElementTree.parse(tests).getroot().iter("testsuite")).attrib
    number = {name: int(suite[name]) for name in ("tests", "skipped", "failures", "errors")}
    cases = json.loads(fuzz.read_text(encoding="utf-8"))
    found = {
        "tests": number["tests"] - number["skipped"],
        "skipped": number["skipped"],
        "failures": number["failures"] + number["errors"],
        "fuzz_cases": cases["cases"],
        "fuzz_targets": sorted(cases["targets"]),
        "reports": 0,
        "commit": record.environment()["commit"],
    }
    before = json.loads(out.read_text(encoding="utf-8"))["sanitizers"] if out.exists() else {}
    out.write_text(json.dumps({"sanitizers": before | {kind: found}}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
