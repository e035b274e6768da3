"""The review's page as Chromium shows it: on a desktop and on a phone, in light and dark, with hostile names."""

from __future__ import annotations

import base64

import pytest

from calirare.page import ReviewSession, Verdicts
from calirare.run import load
from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at

pytestmark = [pytest.mark.slow, pytest.mark.skipif(browser() is None, reason=NONE)]
DESK, PHONE = 1280, 390
READABLE = 4.5  # contrast of text, WCAG 2.1 AA


@pytest.fixture(scope="module")
def page(hostile_run, tmp_path_factory):
    saved, folder = load(hostile_run / "run"), tmp_path_factory.mktemp("page")
    with Verdicts(folder / "a.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, saved.explainer)
        case = next(case for case in session.cases if session.picture(case) is not None)
        text, drawn = session.page(case, "n"), base64.b64encode(session.picture(case)).decode()
    path, source = folder / "review.html", f'src="./picture/{case.place}"'
    assert source in text
    path.write_text(text.replace(source, f'src="data:image/png;base64,{drawn}"'), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_it_is_shown_whole_and_every_word_can_be_read(page, scheme, tmp_path):
    found = looked_at(page, (DESK, PHONE), scheme, tmp_path)
    assert set(found) == {DESK, PHONE}
    for width, told in found.items():
        assert told["errors"] == [], "an alert would be one"
        assert told["fetched"] == []
        assert (told["pictures"], told["broken"]) == (1, 0)
        assert told["needs"] <= width
        assert told["font"] >= 16
        assert told["dark"] is (scheme == DARK)
        assert told["contrast"] >= READABLE, told["contrast_at"]
