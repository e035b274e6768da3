"""The page on the reproduction says what the committed results say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_page_is_what_the_file_says() -> None:
    done = subprocess.run([sys.executable, "benchmarks/paper_page.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run python benchmarks/paper_page.py"


def test_verdicts_follow_from_the_cells() -> None:
    from calirare.paper.published import TABLE2

    found = json.loads((ROOT / "benchmarks" / "results" / "paper.json").read_text(encoding="utf-8"))["results"]
    ours = {(c["dataset"], c["label_rate"]): c for c in found["cells"] if c["method"] == "ours"}
    won = 0
    for (dataset, rate), cell in ours.items():
        paper = TABLE2[dataset, rate, "ours"]
        better = [cell[m][0] >= paper[m] - 5e-6 for m in ("recall", "macro_f1")]
        won += all(better + [cell[m][0] < paper[m] for m in ("ace_minority", "macro_ace")])
    assert len(ours) == 12
    assert found["bars"][0]["measured"].startswith(f"{won} of 12 won")
    assert found["bars"][0]["met"] == (won >= 10)
