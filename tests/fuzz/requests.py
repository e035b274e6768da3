"""Hostile requests to the page of `calirare review`, read by its handler as if they had come by a socket."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

import calirare
from calirare._util.errors import LONGEST
from calirare.page import ReviewServer, ReviewSession, Verdicts
from calirare.page.server import HOST, _Handler
from tests.fuzz.mutate import NUMBERS, WORDS, odd_text, some, spoilt_bytes
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "", "P\0ST", "G" * 70_000)
PLACES = ("", "all", "labels.csv", "node/0", "node/3", "again/0", "say", "undo")
ODD_PLACES = (
    "node/-1",
    "node/9" * 40,
    "node/%30",
    "again/x",
    "clash/0",
    "clash/0/9",
    "clash//",
    "../x",
    "..%2f",
    "//evil",
    "?a=b",
    "#x",
    "say/",
    "x" * 70_000,
    *WORDS,
)
HOSTS = (*["evil.example"] * 9, "127.0.0.1", "localhost:1", "", "[::1]", "127.0.0.1:99999999", "a\tb", *WORDS)
SITES = (*["cross-site"] * 9, "none", "same-site", "same-origin", "", *WORDS)
LENGTHS = ("-1", "+3", "1e3", "0x10", "٣", "3, 3", "", *map(str, NUMBERS))
KINDS = ("text/plain", "application/json", "multipart/form-data; boundary=x", "", *WORDS)
FORM = "application/x-www-form-urlencoded"
HEADERS = {"Server", "Date", "Content-Type", "Content-Length", "Content-Security-Policy", "Cache-Control", "Location"}
HEADERS |= {"Referrer-Policy", "X-Content-Type-Options", "X-Frame-Options", "Content-Disposition"}
HEADERS |= {"Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy"}
KEPT = 300  # answers after which the table begins anew


class _Line:
    """A socket that holds one request and keeps what is answered."""

    def __init__(self, request: bytes) -> None:
        self.request, self.answer = request, b""

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.request)

    def sendall(self, data: bytes) -> None:
        self.answer += bytes(data)

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0, "a silent reader is not waited for without end"


class Requests:
    """Targets on one review of a small run."""

    def __init__(self, folder: Path) -> None:
        with rough_runs():
            calirare.train(rare_task(), epochs=5, folds=0, model="gcn").save(folder / "run")
        saved = calirare.load(folder / "run")
        self.verdicts = Verdicts(folder / "a.sqlite", saved.fingerprint, saved.scorer.class_names)
        self.server = ReviewServer(ReviewSession(saved, self.verdicts, None, "it is not looked for"))
        self.server.socket.close()  # requests come from here
        self.host = f"{HOST}:{self.server.server_port}"

    def fuzz_requests(self, rng: np.random.Generator) -> bool:
        """A request: it is answered or refused in a line, and changes answers only where it may."""
        request = self._request(rng)
        before, line = self._said(), _Line(request)
        _Handler(line, ("127.0.0.1", 1), self.server)  # type: ignore[arg-type]
        changed = self._said() != before
        if changed and before > KEPT:
            self.verdicts._base.execute("DELETE FROM said")
        if not line.answer:
            assert not changed, "without an answer"
            return True
        return self._sound(request, line.answer, changed)

    def _sound(self, request: bytes, answer: bytes, changed: bool) -> bool:
        """Checks an answer; returns whether it is a refusal."""
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        found = re.fullmatch(r"HTTP/1\.[01] (\d{3}) [A-Za-z -]+", lines[0])
        assert found is not None or not head.startswith(b"HTTP"), lines[0]
        status = int(found[1]) if found else 400  # HTTP/0.9 has no head
        knows = self.server.token.encode() in request
        assert status in (200, 303) or 400 <= status < 500, lines[0]
        assert all(line.partition(": ")[0] in HEADERS and line.isprintable() for line in lines[1:]) or not found, lines
        assert knows or (status >= 400 and self.server.token.encode() not in answer), "the token is needed"
        assert not changed or (status == 303 and request.startswith(b"POST ")), "only POST changes anything"
        fields = request.partition(b"\r\n\r\n")[0]
        assert not changed or not (b"evil.example" in fields or b"cross-site" in fields), "from a page that is not ours"
        assert status >= 400 or b"\nHost: evil.example" not in fields, "a name that leads here"
        if status >= 400:
            text = body.decode()
            assert len(text) <= LONGEST + 1, "short"
            assert text.removesuffix("\n").isprintable(), text
        return status >= 400

    def _said(self) -> int:
        count, undone = self.verdicts._base.execute("SELECT count(*), coalesce(sum(undone), 0) FROM said").fetchone()
        return int(count + 1000 * undone)

    def _request(self, rng: np.random.Generator) -> bytes:
        """Returns a sound request, most often with one or a few things wrong."""
        place, wrong = some(rng, PLACES), rng.random(8) < some(rng, (0.0, 0.1, 0.3))
        body = self._body(rng, bool(wrong[0]))
        method = some(rng, METHODS) if wrong[1] else ("POST" if place in ("say", "undo") else "GET")
        token = odd_text(rng, self.server.token[: int(rng.integers(44))]) if wrong[2] else self.server.token
        path = f"/{token}/{some(rng, ODD_PLACES) if wrong[3] else place}"
        headers = [
            ("Host", some(rng, HOSTS) if wrong[4] else self.host),
            ("Origin", f"http://{some(rng, HOSTS) if wrong[5] else self.host}"),
            ("Sec-Fetch-Site", some(rng, SITES) if wrong[5] else "same-origin"),
            ("Content-Type", some(rng, KINDS) if wrong[6] else FORM),
            ("Content-Length", some(rng, LENGTHS) if wrong[7] else str(len(body))),
        ]
        headers += self._more(rng, headers) if rng.random() < 0.2 else []
        version = (
            some(rng, ("HTTP/1.0", "HTTP/1.1", "HTTP/0.9", "HTTP/2.0", "HTTP/9" * 9, "")) if wrong[1] else "HTTP/1.1"
        )
        text = f"{method} {path} {version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        request = text.encode() + body
        return spoilt_bytes(rng, request) if rng.random() < 0.15 else request

    def _more(self, rng: np.random.Generator, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns headers that should not be there: twice, too many, too long, folded."""
        ways = (
            [some(rng, headers)],
            [("Transfer-Encoding", some(rng, ("chunked", "gzip", "identity", "")))],
            [(f"X-{i}", "y") for i in range(300)],
            [("X", "y" * 70_000)],
            [("X", f"y\r\n {some(rng, WORDS)}")],
            [(some(rng, WORDS), some(rng, WORDS))],
            [("Expect", "100-continue")],
            [("Connection", "keep-alive")],
        )
        return list(ways[int(rng.integers(len(ways)))])

    def _body(self, rng: np.random.Generator, odd: bool) -> bytes:
        fields = {"place": some(rng, range(4)), "answer": some(rng, ("rare", "rest", "unsure", "skip")), "number": 1}
        fields |= {"known": some(rng, range(4))} if rng.random() < 0.5 else {}
        if not odd:
            fields["number"] = int(self.verdicts._base.execute("SELECT coalesce(max(id), 0) FROM said").fetchone()[0])
            return urlencode(fields).encode()
        ways = (
            lambda: odd_text(rng, urlencode(fields)).encode(),
            lambda: json.dumps(fields).encode(),
            lambda: urlencode(
                fields | {some(rng, ("place", "answer", "number")): some(rng, (*NUMBERS, *WORDS))}
            ).encode(),
            lambda: b"&".join([urlencode(fields).encode()] * int(rng.integers(2, 5))),
            lambda: rng.bytes(int(rng.integers(10_000))),
            lambda: b"",
        )
        return ways[int(rng.integers(len(ways)))]()
