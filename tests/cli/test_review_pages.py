"""Two pages of one review: no answer replaces another one that its page did not show."""

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


def test_an_answer_does_not_replace_another_that_its_page_did_not_show(server):
    name = server.session.cases[0].node
    known = known_of(ask(server)[2])
    assert known == 0
    assert go(server, 0, RARE, known) == ""
    assert go(server, 0, RARE, known) == "", "sent again, or said by two"
    where = go(server, 0, REST, known)
    assert where == "again/0"
    assert answers(server) == {name: RARE}
    text = ask(server, where)[2]
    assert f"Not saved: somebody answered it meanwhile. {name} is class 1, 2" in text
    assert go(server, 0, REST, known_of(text)) == "", "the reviewer has seen what it replaces"
    assert answers(server) == {name: REST}


def test_what_is_said_of_a_skipped_node_is_no_clash_but_a_skip_hides_no_answer(server):
    assert go(server, 1, SKIP, 0) == ""
    assert go(server, 1, UNSURE, 0) == ""
    assert go(server, 1, SKIP, 0) == "again/1"
    assert go(server, 1, SKIP, 2) == ""


def test_undo_takes_back_its_own_answer_and_no_later_one(server):
    one, two = (case.node for case in server.session.cases[:2])
    go(server, 0, RARE, 0)
    go(server, 1, REST, 0)  # another page
    post(server, "undo", number=1)
    assert answers(server) == {two: REST}
    go(server, 0, RARE, 0)
    go(server, 0, REST, 3)  # another page
    post(server, "undo", number=3)
    assert answers(server) == {two: REST, one: REST}
