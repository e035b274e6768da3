"""Two pages of one review: no answer replaces or takes back another one that its page did not show."""

from __future__ import annotations

import re

from calirare.page import RARE, REST, SKIP, UNSURE
from tests.cli.test_review import answers, ask, post


def go(server, place, answer, known):
    """Answers as a page does that was opened when the node's answer was number `known`; returns where it leads."""
    status, headers, _ = post(server, "say", place=place, answer=answer, known=known)
    assert status == 303
    return headers["Location"].removeprefix(f"/{server.token}/")


def known_of(text):
    return int(re.search(r'name="known" value="(\d+)"', text)[1])


def undo_of(text):
    return int(re.search(r'name="number" value="(\d+)"', text)[1])


def test_an_answer_does_not_replace_another_that_its_page_did_not_show(server):
    name = server.session.cases[0].node
    known = known_of(ask(server)[2])
    assert known == 0
    assert go(server, 0, RARE, known) == "said/1"
    where = go(server, 0, REST, known)
    assert where == "again/0"
    assert answers(server) == {name: RARE}
    text = ask(server, where)[2]
    assert f"Not saved: {name} was answered meanwhile, class 1, 2" in text
    assert go(server, 0, REST, known_of(text)) == "said/2", "the reviewer has seen what it replaces"
    assert answers(server) == {name: REST}


def test_what_is_said_twice_or_of_a_skipped_node_is_no_clash(server):
    assert go(server, 0, RARE, 0) == "said/1"
    assert go(server, 0, RARE, 0) == "said/1", "sent again, or said by two"
    assert go(server, 1, SKIP, 0) == "said/2"
    assert go(server, 1, UNSURE, 0) == "said/3"
    assert go(server, 1, SKIP, 0) == "again/1", "a skip would hide the answer"
    assert go(server, 1, SKIP, 3) == "said/4"
    assert go(server, 1, SKIP, 4) == "said/5", "skipped again, to come back after the others"
    post(server, "undo", number=1)
    assert go(server, 0, REST, 1) == "said/6", "what the page knew was taken back"


def test_undo_takes_back_what_the_page_says_and_tells_what_it_took_back(server):
    one, two = (case.node for case in server.session.cases[:2])
    mine = go(server, 0, RARE, 0)
    go(server, 1, REST, 0)  # another page
    text = ask(server, mine)[2]
    assert f"Saved: {one} is class 1." in text
    post(server, "undo", number=undo_of(text))
    assert answers(server) == {two: REST}, "its own, though another page has answered since"
    text = ask(server, "back/1")[2]
    assert f"Taken back: {one} is class 1, 2" in text
    assert 'name="number"' not in text, "nothing was said before it"
    assert f"Last answer: {two} is rest, 2" in ask(server)[2]


def test_undo_of_an_answer_that_was_replaced_says_so(server):
    name = server.session.cases[0].node
    text = ask(server, go(server, 0, RARE, 0))[2]
    go(server, 0, REST, 1)  # another page
    post(server, "undo", number=undo_of(text))
    assert answers(server) == {name: REST}
    text = ask(server, "back/1")[2]
    assert f"Nothing was taken back: {name} was answered again meanwhile, rest, 2" in text
    assert f"Last answer: {name} is rest, 2" in text
    assert undo_of(text) == 2
    assert "Saved:" not in ask(server, "said/1")[2], "it is no more"
