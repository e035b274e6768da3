"""The pages on the reproduction say what the committed results say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.helpers.pages import committed, results


@pytest.fixture
def page(bench: Any) -> Any:
    return bench("paper_page")


def test_every_table_of_the_file_stands_on_one_page(page: Any) -> None:
    found = committed("paper")
    texts = page.pages()
    assert page.filled(texts, found) == texts
    begun = [name for text in texts.values() for name in re.findall(r"<!-- (\w+):begin -->", text)]
    assert sorted(begun) == sorted(page.parts(found))
    with pytest.raises(ValueError, match="not enough values"):
        page.filled({path: text.replace("table2:begin", "") for path, text in texts.items()}, found)


def test_verdicts_follow_from_the_cells() -> None:
    from calirare_lab.paper.published import TABLE2

    found = results("paper")
    ours = {(c["dataset"], c["label_rate"]): c for c in found["cells"] if c["method"] == "ours"}
    won = 0
    for (dataset, rate), cell in ours.items():
        paper = TABLE2[dataset, rate, "ours"]
        better = [cell[m][0] >= paper[m] - 5e-6 for m in ("recall", "macro_f1")]
        won += all(better + [cell[m][0] < paper[m] for m in ("ace_minority", "macro_ace")])
    assert len(ours) == 12
    assert found["bars"][0]["measured"].startswith(f"{won} of 12 won")
    assert found["bars"][0]["met"] == (won >= 10)
