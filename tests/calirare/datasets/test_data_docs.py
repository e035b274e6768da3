"""The Python examples of docs/data.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example):
    pytest.importorskip("torch_geometric.data")
    exec(compile(example, str(PAGE), "exec"), {})


def test_there_are_examples():
    assert any("with_split(calirare.Split.share(" in example for example in EXAMPLES)
