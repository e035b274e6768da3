"""The review as a process: a kill loses nothing that was said to be saved, Ctrl-C ends it; and its page in Chromium."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import threading
import time
import urllib.request
from contextlib import closing, contextmanager
from http.client import HTTPException
from urllib.parse import urlencode

import pytest

from calirare.page import ReviewSession, Verdicts
from calirare.run import load
from tests.cli.test_review import served
from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at, run
from tests.helpers.command import assert_refused, call, forked
from tests.helpers.hostile import HOSTILE

pytestmark = pytest.mark.slow
DESK, PHONE, READABLE = 1280, 390, 4.5


@contextmanager
def started(folder):
    """Starts a review and yields the process, what it said, and its page's address."""
    with forked("review", "--run", folder) as process:
        said = [process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://\S+", said[-1])
        assert found is not None, (said, process.stderr.read())
        yield process, said, found[0]


def answered(address, saved):
    """Gives answers one after the other until the server has gone, and keeps those that were said to be saved."""
    place = 0
    while True:
        body = urlencode({"place": place % 100, "answer": ("rare", "rest", "unsure", "skip")[place % 4]}).encode()
        try:
            urllib.request.urlopen(f"{address}say", body, timeout=10).close()
        except (OSError, HTTPException):
            return
        saved.append(place)
        place += 1


def test_a_kill_loses_nothing_that_was_saved_and_the_next_review_goes_on(quick_run):
    """Every answer that was told of is there, in order; at most one more had been written."""
    path = quick_run.with_name(f"{quick_run.name}.review.sqlite")
    saved: list[int] = []
    with started(quick_run) as (process, _, address):
        thread = threading.Thread(target=answered, args=(address, saved))
        thread.start()
        while len(saved) < 5:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))  # any moment will do
        process.end(signal.SIGKILL)
        thread.join()
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = [row[0] for row in base.execute("SELECT answer FROM said ORDER BY id")]
    assert len(saved) <= len(rows) <= len(saved) + 1
    assert rows == [("rare", "rest", "unsure", "skip")[i % 4] for i in range(len(rows))]

    with started(quick_run) as (process, said, _):
        assert not said[0].startswith("review 0 of"), "it goes on"
        second = assert_refused(call("review", "--run", quick_run))
        assert f"another process is writing there (process {process.pid}" in second
        assert process.end(signal.SIGINT) == 0
        assert f"saved in {path}: " in process.stdout.read()
        assert process.stderr.read() == ""


KEYS = """<script>
window.told = [];
document.querySelectorAll("form").forEach(function (form) {
  form.addEventListener("submit", function (event) {
    told.push(event.submitter.name + "=" + event.submitter.value);
    event.preventDefault();
  }, true);
});
["n", "F", "3", "x", "z"].forEach(function (key) {
  window.dispatchEvent(new Event("pageshow"));
  document.body.dispatchEvent(new KeyboardEvent("keydown", {key: key, bubbles: true}));
});
document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "f", ctrlKey: true, bubbles: true}));
document.title = told.join(" ");
</script>"""


@pytest.fixture(scope="module")
def pages(hostile_run, tmp_path_factory):
    """Pages of a hostile node and of the whole queue, as files."""
    folder, saved = tmp_path_factory.mktemp("pages"), load(hostile_run / "run")
    with Verdicts(folder / "a.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, saved.explainer)
        names = [case.node for case in session.cases]
        verdicts.say(HOSTILE[0], "rare")
        shown = session.page(session.case(names.index(HOSTILE[0])), "nonce")
        (folder / "node.html").write_text(shown, encoding="utf-8")
        (folder / "all.html").write_text(session.overview("nonce"), encoding="utf-8")
    return folder


@pytest.mark.skipif(browser() is None, reason=NONE)
class TestSeen:
    @pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
    @pytest.mark.parametrize("page", ["node", "all"])
    def test_it_is_shown_whole_and_can_be_read(self, pages, page, scheme, tmp_path):
        found = looked_at(pages / f"{page}.html", (DESK, PHONE), scheme, tmp_path)
        for width, told in found.items():
            assert (told["errors"], told["refused"], told["fetched"]) == ([], [], [])
            assert told["needs"] <= width
            assert told["contrast"] >= READABLE, told["contrast_at"]
            assert told["font"] >= 16
            assert told["dark"] is (scheme == DARK)
            assert HOSTILE[0] in told["text"]

    def test_keys_press_the_buttons(self, pages, tmp_path):
        text = (pages / "node.html").read_text(encoding="utf-8")
        (tmp_path / "keys.html").write_text(text.replace("</body>", KEYS + "</body>", 1), encoding="utf-8")
        dom = run("--dump-dom", (tmp_path / "keys.html").as_uri())
        assert "<title>answer=rest answer=rare answer=unsure number=1</title>" in dom

    def test_its_own_script_and_style_are_let_run_as_served_and_no_other(self, hostile_run, tmp_path):
        with served(hostile_run / "run", tmp_path / "a.sqlite") as server:
            assert 'data-keys="on"' in run("--dump-dom", server.address).split("<head>")[0]
            page = server.session._page
            server.session._page = type(
                "Page", (), {"render": lambda _, **v: page.render(**v).replace("nonce=", "once=")}
            )()
            assert 'data-keys="on"' not in run("--dump-dom", server.address).split("<head>")[0]
