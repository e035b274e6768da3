"""What the review's page is to who hears it, presses its keys or has long names: and how it sends an answer."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import urlencode

import pytest

from calirare._util.amounts import LONGEST_NAME, shortened
from calirare._util.pages import harmless, short_words
from calirare.explain import draw
from calirare.page import RARE
from tests.cli.test_review import FORM, answers, ask, post
from tests.helpers.browser import NONE, browser, run

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"


def test_a_button_is_called_as_its_answer_and_its_key_is_told_apart(server):
    text = ask(server)[2]
    found = re.findall(r'<button [^>]*aria-keyshortcuts="([^"]+)"[^>]*>(.*?)</button>', text)
    assert [(keys, re.sub(r'<kbd aria-hidden="true">[A-Z]</kbd>', "", word).strip()) for keys, word in found] == [
        ("F 1", "class 1"),
        ("N 2", "normal"),
        ("U 3", "unsure"),
        ("S 4", "skip"),
    ]
    assert "<kbd>" not in text


def test_the_title_names_the_node_and_what_was_saved_is_told_once(server):
    first, second = (case.node for case in server.session.cases[:2])
    text = ask(server)[2]
    assert f"<title>{first} - review of " in text
    assert 'role="status"' not in text
    assert "autofocus" not in text
    post(server, "say", place=0, answer=RARE)
    text = ask(server)[2]
    assert f'role="status">Last answer: {first} is class 1, 2' in text
    assert f'<h1 tabindex="-1" autofocus>{second}</h1>' in text
    assert "<title>The queue - review of " in ask(server, "all")[2]


def test_a_script_is_told_where_to_go_on_and_stays_where_an_answer_is_not_saved(server):
    def send(**fields):
        return ask(server, "say", method="POST", body=urlencode(fields), headers=FORM | {"Accept": "text/plain"})

    status, headers, text = send(place=0, answer=RARE, known=0)
    assert (status, text, headers["Location"]) == (200, f"/{server.token}/", None)
    assert len(answers(server)) == 1
    assert send(place=0, answer="maybe", known=0)[0] == 400
    assert "connect-src 'self';" in ask(server)[1]["Content-Security-Policy"]


SENT = """<script>
document.querySelector("button[value=rare]").click();
setTimeout(function () { document.title = document.getElementById("failed").textContent; }, 2000);
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason=NONE)
def test_the_page_stays_and_says_that_the_server_does_not_answer(server, tmp_path):
    (tmp_path / "page.html").write_text(ask(server)[2].replace("</body>", SENT + "</body>", 1), encoding="utf-8")
    dom = run("--dump-dom", (tmp_path / "page.html").as_uri())
    assert "<title>Not saved: the server does not answer. Press again once it does; if it has ended, start" in dom


def test_long_names_are_shortened_and_whole_in_the_title():
    long = "a" * 1500 + "b" * 1500
    assert shortened("a" * LONGEST_NAME) == "a" * LONGEST_NAME
    assert shortened(long) == "a" * 40 + " .. " + "b" * 40
    assert short_words(f"Without {long}, no alert.") == f"Without {'a' * 40} .. {'b' * 39}, no alert."


def test_a_picture_is_headed_by_a_shortened_name(server, monkeypatch):
    told = []
    monkeypatch.setattr("calirare.explain.picture.neighbourhood_diagram", lambda *_, title, **__: told.append(title))
    session = server.session
    why = dataclasses.replace(session.explanation(session.cases[0]), name="a" * 3000)
    draw(why, session._made.context, "unused.png")
    assert told[0].startswith(f"{'a' * 40} .. {'a' * 40}: P(")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (FAMILY, FAMILY),
        ("\N{WAVING WHITE FLAG}\ufe0f\N{ZERO WIDTH JOINER}\N{RAINBOW}", None),
        ("a\u200db", "a\ufffdb"),
        ("\u200d\N{MAN}", "\ufffd\N{MAN}"),
        ("a\u202eb\ufeff", "a\ufffdb\ufffd"),
        (f"\u202e{FAMILY}\u200b", f"\ufffd{FAMILY}\ufffd"),
    ],
    ids=ascii,
)
def test_joined_emoji_stay_and_what_is_not_seen_is_replaced(text, shown):
    assert harmless(text) == (text if shown is None else shown)
