"""`calirare review`: answers saved at once on a page of this machine's own, and exported as labels for an update."""

from __future__ import annotations

import contextlib
import datetime
import html
import http.client
import io
import re
import shutil
import socket
import sqlite3
import threading
from contextlib import contextmanager
from urllib.parse import urlencode

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from calirare._util.errors import InputError
from calirare.page import RARE, REST, SKIP, UNSURE, ReviewServer, ReviewSession, Verdicts, export
from calirare.page.card import Cards
from calirare.run import load
from tests.helpers.command import assert_refused, call, succeed
from tests.helpers.hostile import HOSTILE

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SAID = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 19\r\n\r\nplace=1&answer=rare"


@contextmanager
def served(folder, path):
    """Serves a run's review from a thread of this process; gives the server."""
    saved = load(folder)
    with Verdicts(path, saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, saved.explainer)
        with ReviewServer(session) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()


def ask(server, rest="", *, method="GET", body=None, headers=None, path=None):
    """Returns status, headers and text of the answer to one request."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    line.request(method, f"/{server.token}/{rest}" if path is None else path, body, headers or {})
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return answer.status, answer.headers, text


def post(server, rest, headers=None, **fields):
    return ask(server, rest, method="POST", body=urlencode(fields), headers=FORM | (headers or {}))


def answers(server):
    return {name: said.answer for name, said in server.session.verdicts.latest().items()}


@pytest.fixture(scope="module")
def shared(trained_quickly, tmp_path_factory):
    """One server for what changes no answer."""
    with served(trained_quickly, tmp_path_factory.mktemp("review") / "a.sqlite") as server:
        yield server


def test_a_node_is_shown_with_what_the_run_says_of_it_and_why(shared, trained_quickly):
    status, headers, text = ask(shared)
    first = pd.read_csv(trained_quickly / "review.csv").iloc[0]
    assert (status, headers.get_content_type()) == (200, "text/html")
    assert f">{first['node']}</h1>" in text
    assert "P(class 1) <strong>0." in text
    assert "0 of 100 answered" in text
    saved = load(trained_quickly)
    why = saved.explain([str(first["node"])])[0]
    card = Cards(saved.explainer_for().context).of(why)
    assert all(html.escape(reason) in text for reason in card.reasons)
    assert f"<td>{why.edges[0].name}" in text
    policy = headers["Content-Security-Policy"]
    nonce = re.search("script-src 'nonce-([^']+)'", policy)[1]
    assert policy.startswith("default-src 'none';")
    assert text.count(f'nonce="{nonce}"') == text.count("<script") + text.count("<style") == 2
    assert "Access-Control-Allow-Origin" not in headers
    assert not re.search(r"(src|href|action)=\"(?!\./|\.\./)", text), "nothing from elsewhere"


def test_a_node_is_drawn_among_its_neighbours_for_the_page_alone(shared):
    assert '<img src="./picture/0" ' in ask(shared)[2]
    assert '<img src="../picture/1" ' in ask(shared, "node/1")[2]
    assert "img-src 'self';" in ask(shared)[1]["Content-Security-Policy"]
    line = http.client.HTTPConnection("127.0.0.1", shared.server_port, timeout=20)
    line.request("GET", f"/{shared.token}/picture/0")
    answer = line.getresponse()
    drawn = answer.read()
    line.close()
    assert (answer.status, answer.headers.get_content_type()) == (200, "image/png")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert plt.imread(io.BytesIO(drawn)).shape[1] > 500
    assert [ask(shared, f"picture/{place}")[0] for place in ("100", "-1", "x", "")] == [404, 400, 400, 400]
    assert ask(shared, path="/picture/0")[0] == 403


def test_answers_move_on_skipped_ones_come_back_and_undo_takes_one_back(server):
    names = [case.node for case in server.session.cases]
    for place, answer in enumerate((RARE, SKIP, UNSURE)):
        status, headers, _ = post(server, "say", place=place, answer=answer)
        assert (status, headers["Location"]) == (303, f"/{server.token}/")
    assert answers(server) == dict(zip(names, (RARE, SKIP, UNSURE), strict=False))
    text = ask(server)[2]
    assert f"{names[3]}</h1>" in text
    assert "2 of 100 answered: 1 class 1, 0 normal, 1 unsure; 1 skipped" in text
    assert f"Last answer: {names[2]} is unsure, 2" in text
    number = re.search(r'name="number" value="(\d+)"', text)[1]
    assert post(server, "undo", number=number)[1]["Location"] == f"/{server.token}/node/2"
    text = ask(server, "node/2")[2]
    assert f"Last answer: {names[1]} is skipped, 2" in text, "the next to be taken back"
    assert f"{names[2]}</h1>" in text
    assert answers(server) == {names[0]: RARE, names[1]: SKIP}
    assert post(server, "undo", number=number)[0] == 303, "of a page that is shown no more"
    assert answers(server) == {names[0]: RARE, names[1]: SKIP}
    assert post(server, "undo", number=99)[0] == 400
    assert "Answer so far: <strong>class 1</strong>" in ask(server, "node/0")[2]
    post(server, "say", place=0, answer=REST)
    assert answers(server)[names[0]] == REST, "the last answer counts"
    for place in range(2, len(names)):
        server.session.verdicts.say(names[place], REST)
    assert f">{names[1]}</h1>" in ask(server)[2], "the one that was skipped"
    server.session.verdicts.say(names[1], UNSURE)
    assert "All 100 nodes are answered" in ask(server)[2]
    overview = ask(server, "all")[2]
    assert overview.count("<tr><td>") == 100


def test_without_token_host_or_own_page_nothing_is_shown_or_saved(shared):
    home, form = f"127.0.0.1:{shared.server_port}", urlencode({"place": 0, "answer": RARE})
    where = f"/{shared.token}/say"
    refused = [
        ask(shared, path="/"),
        ask(shared, path=f"/{shared.token[:-1]}/"),
        ask(shared, path=f"/{'x' * len(shared.token)}/say", method="POST", body=form, headers=FORM),
        *(ask(shared, headers={"Host": host}) for host in ("evil.example", f"evil.example:{shared.server_port}", "")),
        *(
            ask(shared, path=where, method="POST", body=form, headers=FORM | more)
            for more in (
                {"Host": f"evil.example:{shared.server_port}"},
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site", "Origin": f"http://{home}"},
            )
        ),
    ]
    assert [status for status, *_ in refused] == [403] * len(refused)
    assert ask(shared, path=where, method="GET")[0] == 404, "only POST changes anything"
    assert not any(shared.token in text or "<" in text for _, _, text in refused)
    assert answers(shared) == {}
    assert ask(shared, headers={"Host": f"localhost:{shared.server_port}"})[0] == 200
    assert shared.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"place=0&answer=rare", {"Content-Type": "text/plain"}, 415),
        (b"place=0&answer=maybe", {}, 400),
        (b"place=100&answer=rare", {}, 400),
        (b"place=-1&answer=rare", {}, 400),
        (b"place=0&place=1&answer=rare", {}, 400),
        (b"place=\xff&answer=rare", {}, 400),
        (b"place=%F0%9D%9F%98&answer=rare", {}, 400),
        (b"%%%", {}, 400),
        (b"", {}, 400),
        (b"a&" * 30, {}, 400),
        (b"place=0&answer=rare" + b" " * 5000, {}, 413),
        (b"place=0&answer=rare", {"Content-Length": "minus"}, 400),
        (b"place=0&answer=rare", {"Transfer-Encoding": "chunked", "Content-Length": "19"}, 411),
    ],
)
def test_a_malformed_answer_is_refused_and_nothing_is_saved(shared, body, headers, status, capfd):
    found, _, text = ask(shared, "say", method="POST", body=body, headers=FORM | headers)
    assert found == status
    assert len(text.splitlines()) == 1
    assert answers(shared) == {}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"BREW /x HTTP/1.1\r\n\r\n", 405),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 403),
        (b"POST /TOKEN/say HTTP/1.1\r\nHost: HOST\r\n\r\n", 411),
        (b"GET /\xc3\xa9\xff/ HTTP/1.1\r\nHost: HOST\r\n\r\n", 403),
        (b"GET /TOKEN/../../etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
        (b"POST /TOKEN/say HTTP/0.9\r\nHost: HOST\r\n" + SAID, 400),  # would be saved, and not said to be
        (b"GET /TOKEN/node/x HTTP/1.1\r\nHost: HOST\r\n\r\n", 400),
        (b"GET /TOKEN/node/100 HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
        (b"GET /TOKEN/again/100 HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
        (b"GET /TOKEN/again/0/0 HTTP/1.1\r\nHost: HOST\r\n\r\n", 400),
        (b"GET /TOKEN/labels.csv HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
    ],
)
def test_a_malformed_request_is_refused_in_a_line(shared, sent, status, capfd):
    home = f"127.0.0.1:{shared.server_port}".encode()
    with socket.create_connection(("127.0.0.1", shared.server_port), timeout=20) as line:
        line.sendall(sent.replace(b"TOKEN", shared.token.encode()).replace(b"HOST", home))
        line.shutdown(socket.SHUT_WR)
        found = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    if not found.startswith("HTTP/"):  # a first line without a version is answered as HTTP/0.9 was: by the text alone
        assert (status, len(found.splitlines())) == (400, 1)
    else:
        assert int(found.split()[1]) == status
    assert "Traceback" not in found
    assert capfd.readouterr() == ("", "")
    assert ask(shared)[0] == 200


@pytest.mark.slow  # the run on hostile names
def test_hostile_names_are_words(hostile_run, tmp_path):
    with served(hostile_run / "run", tmp_path / "a.sqlite") as server:
        names = [case.node for case in server.session.cases]
        place = names.index(HOSTILE[0])
        post(server, "say", place=place, answer=RARE)
        for text in (ask(server)[2], ask(server, f"node/{place}")[2], ask(server, "all")[2]):
            assert text.count("<script") == 1, "our own"
            assert "<img src=x" not in text
            assert not re.search("[\u202a-\u202e\x07]", text)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;</h1>" in ask(server, f"node/{place}")[2]
        assert "{{ 7 * 7 }}" in ask(server, "all")[2]
        table = ask(server, "labels.csv")[2]
        assert HOSTILE[1].replace('"', '""') in table


def test_what_was_answered_is_taken_by_an_update(trained_quickly, tmp_path):
    path, labels = tmp_path / "a.sqlite", tmp_path / "labels.csv"
    saved = load(trained_quickly)
    with served(trained_quickly, path) as server:
        cases = server.session.cases[:4]
        other = {case.node: REST if case.label == "1" else RARE for case in cases}
        for case in cases:
            server.session.verdicts.say(case.node, other[case.node])
        server.session.verdicts.say(cases[3].node, UNSURE)
        by_button = ask(server, "labels.csv")[2]
    said = succeed("review", "--run", trained_quickly, "--out", path, "--export", labels)
    assert said.out.splitlines()[0].startswith("3 labels")
    assert labels.read_text() == by_button
    assert "exists already" in assert_refused(
        call("review", "--run", trained_quickly, "--out", path, "--export", labels)
    )
    succeed("update", "--run", trained_quickly, "--labels", labels, "--out", tmp_path / "after")
    y = load(tmp_path / "after").graph().y
    assert [int(y[int(c.node)]) for c in cases[:3]] == [int(other[c.node] == RARE) for c in cases[:3]]
    assert int(y[int(cases[3].node)]) == int(saved.graph().y[int(cases[3].node)]), "unsure keeps what there was"


def test_names_that_are_formulas_or_hold_quotes_come_back(tmp_path):
    names = ["=1+1", 'a"b', "c,d", "e\nf", "007", "'=x"]
    with Verdicts(tmp_path / "a.sqlite", "graph", ("rest", "=fraud")) as verdicts:
        for name in names:
            verdicts.say(name, RARE)
        assert len(export(verdicts.latest(), ("rest", "=fraud"), tmp_path / "labels.csv")) == len(names)
    table = pd.read_csv(tmp_path / "labels.csv", dtype=str)
    assert list(table["node"]) == ["'=1+1", 'a"b', "c,d", "e\nf", "007", "''=x"]
    assert set(table["label"]) == {"'=fraud"}


@pytest.mark.parametrize("jump", [-400, 400])
def test_the_last_answer_counts_though_the_clock_jumps(jump, tmp_path, monkeypatch):
    class Clock(datetime.datetime):
        days = 0

        @classmethod
        def now(cls, zone=None):
            return datetime.datetime(2026, 3, 1, tzinfo=zone) + datetime.timedelta(days=cls.days)

    monkeypatch.setattr("calirare.page.verdicts.datetime.datetime", Clock)
    with Verdicts(tmp_path / "a.sqlite", "graph", ("rest", "fraud")) as verdicts:
        verdicts.say("x", RARE)
        verdicts.say("y", RARE)
        monkeypatch.setattr(Clock, "days", jump)
        verdicts.say("x", REST)
        assert [(node, said.answer) for node, said in verdicts.latest().items()] == [("y", RARE), ("x", REST)]


def test_a_file_of_answers_belongs_to_its_graph(tmp_path, trained_quickly):
    path, facts = tmp_path / "a.sqlite", ("graph", ("rest", "fraud"))
    with Verdicts(path, *facts) as verdicts:
        verdicts.say("a", UNSURE)
    with Verdicts(path, *facts) as verdicts, pytest.raises(InputError, match="nothing to export"):
        export(verdicts.latest(), facts[1], tmp_path / "labels.csv")
    with Verdicts(path, *facts) as verdicts:
        assert verdicts.latest()["a"].answer == UNSURE
        with pytest.raises(ValueError, match="answer must be one of"):
            verdicts.say("a", "fraud")
    with pytest.raises(InputError, match="about another graph, which is not the run's: get them by --export"):
        Verdicts(path, "another", facts[1])
    with pytest.raises(InputError, match="about the classes 'rest', 'fraud', and the run's are 'rest', 'spam': get"):
        Verdicts(path, facts[0], ("rest", "spam"))
    with contextlib.closing(sqlite3.connect(tmp_path / "foreign.sqlite")) as base, base:
        base.execute("CREATE TABLE mine (x)")
    foreign = (tmp_path / "foreign.sqlite").read_bytes()
    with pytest.raises(InputError, match=r"foreign\.sqlite is no file that `calirare review` wrote"):
        Verdicts(tmp_path / "foreign.sqlite", *facts)
    assert (tmp_path / "foreign.sqlite").read_bytes() == foreign
    (tmp_path / "text.sqlite").write_text("hello " * 1000)
    with pytest.raises(InputError, match="cannot be used as a file of answers"):
        Verdicts(tmp_path / "text.sqlite", *facts)
    assert (tmp_path / "text.sqlite").read_text() == "hello " * 1000
    with Verdicts(tmp_path / "b.sqlite", *facts) as verdicts:
        assert verdicts._base.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert verdicts._base.execute("PRAGMA synchronous").fetchone()[0] == 2, "a commit waits for the disk"
    with pytest.raises(InputError, match="'-1' means no label"):
        Verdicts(tmp_path / "c.sqlite", "graph", ("-1", "fraud"))
    assert not (tmp_path / "c.sqlite").exists(), "before anybody answers"


def test_what_cannot_be_used_is_refused(quick_run, tmp_path, trained_quickly):
    for words, told in (
        (("--out", quick_run / "a.sqlite"), "lies in a run's folder, which is replaced as a whole"),
        (("--out", tmp_path), "is a folder; give a file with --out"),
        (("--port", 70000), "--port must be from 0 (any that is free) to 65535, got 70000"),
        (("--port", -1), "--port must be from 0 (any that is free) to 65535, got -1"),
        (("--export", tmp_path / "labels.txt"), "--export must end in .csv"),
        (("--export", tmp_path / "labels.csv"), "is not there, so there are no answers yet"),
        (("--graph", tmp_path / "gone.npz"), "gone.npz"),
    ):
        assert told in assert_refused(call("review", "--run", quick_run, *words))
    assert not (quick_run / "a.sqlite").exists()
    (quick_run / "review.csv").write_text("node,y,p_rare,threshold\n")
    assert "review.csv is damaged or was exchanged" in assert_refused(call("review", "--run", quick_run))


def test_without_the_graph_there_are_no_reasons_and_the_page_says_so(trained_quickly, tmp_path):
    saved = load(trained_quickly)
    with Verdicts(tmp_path / "a.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, None, "the graph is gone")
        text = session.page(session.next({}), "nonce")
    assert "No reasons for this P(class 1): the graph is gone" in text
    assert 'value="rare"' in text


def test_an_answer_that_cannot_be_saved_is_not_shown_as_saved(server, capsys):
    server.session.verdicts.close()
    status, _, text = post(server, "say", place=0, answer=RARE)
    assert status == 500
    assert text.startswith("not saved: review: ")
    assert "Traceback" not in capsys.readouterr().err


def test_a_copy_of_the_run_has_answers_of_its_own(trained_quickly, tmp_path):
    """The default file lies beside the run, where no --overwrite of the run reaches it."""
    run = shutil.copytree(trained_quickly, tmp_path / "mine")
    said = assert_refused(call("review", "--run", run, "--export", tmp_path / "labels.csv"))
    assert str(tmp_path / "mine.review.sqlite") in said
