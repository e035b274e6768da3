"""The report as Chromium shows it: on a desk and on a phone, in light and dark, printed, and with hostile names."""

from __future__ import annotations

import re

import pytest

from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at, run
from tests.helpers.command import succeed
from tests.helpers.hostile import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(browser() is None, reason=NONE)]
DESK, PHONE = 1280, 390
READABLE = 4.5  # contrast of text, WCAG 2.1 AA


@pytest.fixture(scope="module")
def page(hostile_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    run_folder = hostile_run / "run"
    succeed("report", "--run", run_folder, "--out", path)
    return path


@pytest.fixture(scope="module", params=[LIGHT, DARK], ids=["light", "dark"])
def seen(request, page, tmp_path_factory):
    found = looked_at(page, (DESK, PHONE), request.param, tmp_path_factory.mktemp("seen"))
    assert set(found) == {DESK, PHONE}
    return request.param, found


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_it_is_shown_whole_and_nothing_is_fetched_or_fails(seen, width):
    told = seen[1][width]
    assert told["errors"] == []
    assert told["refused"] == []
    assert told["fetched"] == []
    assert (told["pictures"] >= 2, told["broken"]) == (True, 0)
    assert told["needs"] <= width, "tables and pictures scroll in their own boxes, the page does not"
    assert told["hidden"] <= 0, "the numbers after calibration stand last in their table, and are seen without a move"
    assert told["font"] >= 16


def test_the_reader_s_colours_are_taken_and_every_word_can_be_read(seen):
    scheme, found = seen
    for told in found.values():
        assert told["dark"] is (scheme == DARK)
        brightness = sum(map(int, re.findall(r"\d+", told["page"])[:3]))
        assert (brightness < 150) is (scheme == DARK)
        assert told["contrast"] >= READABLE, told["contrast_at"]


def test_hostile_names_are_words(seen):
    for told in seen[1].values():
        assert told["errors"] == [], "an alert would be one"
        for name in HOSTILE[:3]:
            assert name in told["text"]


def test_columns_are_sorted_from_the_keyboard(seen):
    for told in seen[1].values():
        done = told["sorted"]
        assert done["focused"]
        assert done["state"] == "ascending"
        assert sorted(done["up"]) == sorted(done["before"])
        assert done["up"] == list(reversed(done["down"])) or done["up"][0] <= done["up"][-1]
        assert done["up"][0] != done["down"][0] or len(set(done["up"])) == 1


def test_rows_of_long_tables_are_found_by_what_they_hold(seen):
    for told in seen[1].values():
        done = told["filtered"]
        assert done["label"]
        assert 0 < done["some"] <= done["right"] < done["every"] == done["again"]


def test_numbers_are_sorted_as_what_they_are(seen):
    for told in seen[1].values():
        assert told["numbers"] == ["1072", "3", "10.2", "1.8", "-0.5", "1e-7", "NaN", "NaN", "NaN"]


def test_it_prints(page, tmp_path):
    run("--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}", page.as_uri())
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3


def test_what_is_wrong_is_seen(page, tmp_path):
    """The checks above reject a page that fetches, fails, is too wide, and is hard to read."""
    text = page.read_text(encoding="utf-8").replace(
        "</main>",
        '<p style="color: #888; background: #999; width: 2000px">grey</p><img src="http://localhost:9/x.png">'
        "<script>nothing.there()</script></main>",
        1,
    )
    (tmp_path / "bad.html").write_text(text, encoding="utf-8")
    told = looked_at(tmp_path / "bad.html", (PHONE,), LIGHT, tmp_path)[PHONE]
    assert told["contrast"] < READABLE
    assert told["contrast_at"].endswith("grey")
    assert told["needs"] > PHONE
    assert told["refused"] == ["http://localhost:9/x.png"]
    assert any("nothing" in words for words in told["errors"])
    assert told["broken"] == 1
