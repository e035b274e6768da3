"""The review's page over HTTP, for this machine alone: loopback, a token in every address, nothing from elsewhere.

A request is answered where it names our own host, so that no name that leads here serves another page's scripts, and
carries the token. Answers are given by POST alone; a request that says which page it comes from must come from ours.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs

from calirare._util.errors import InputError, one_line
from calirare.page.review_session import Case, ReviewSession
from calirare.page.verdicts import SKIP, csv_of, labels_of

HOST = "127.0.0.1"
MOST = 4096  # bytes of an answer
DRAINED = 1 << 16  # bytes read of a request that is refused, so that the refusal arrives
SECONDS = 10.0  # of silence, after which a connection is closed
PLAIN, PAGE, TABLE = "text/plain; charset=utf-8", "text/html; charset=utf-8", "text/csv; charset=utf-8"
PICTURE, PLAIN_ALONE = "image/png", "text/plain"
POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class RefusedError(Exception):
    """A request that is not answered; `status` and a sentence say why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves a session on a loopback port until `shutdown`.

    Args:
        session: the queue with the answers.
        port: of 127.0.0.1; 0: any that is free.

    Raises:
        InputError: the port is not available.

    Attributes:
        session: the queue.
        token: in every address, random.
        lock: held while a request is answered: one at a time.
    """

    daemon_threads = True

    def __init__(self, session: ReviewSession, port: int = 0) -> None:
        self.session, self.token, self.lock = session, secrets.token_urlsafe(32), threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"review: cannot listen on port {port}: {error}. Choose another with --port.") from error

    def server_bind(self) -> None:
        """Binds without asking for the name of the host."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def address(self) -> str:
        """The page's address, token and all."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says in a line what went wrong, of a reader that has gone nothing."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"calirare: review: {type(error).__name__}: {one_line(str(error))}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    timeout = SECONDS
    server_version, sys_version = "calirare", ""

    def do_GET(self) -> None:
        self._answer(self._shown)

    def do_POST(self) -> None:
        self._answer(self._done)

    def _answer(self, what: Any) -> None:
        """Answers an allowed request; any error is reported in a sentence."""
        try:
            what(self._checked())
        except RefusedError as error:
            self._refuse(error.status, str(error))
        except InputError as error:  # of the file of answers: a full disk, a file that was removed
            print(f"calirare: {error}", file=sys.stderr)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"not saved: {error}")
        except TimeoutError:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive whole")

    def _checked(self) -> str:
        """Returns the address after the token."""
        if self.request_version == "HTTP/0.9":  # whose answers say neither status nor that something was saved
            raise RefusedError(HTTPStatus.BAD_REQUEST, "this is not valid HTTP")
        hosts, own = self.headers.get_all("Host") or [], self._hosts()
        if len(hosts) != 1 or hosts[0].strip().lower() not in own:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this page is only for this machine: open the address as printed")
        _, token, rest = (*self.path.split("/", 2), "", "")[:3]
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            raise RefusedError(HTTPStatus.FORBIDDEN, "the address lacks the review's token: open it as printed")
        return rest

    def _hosts(self) -> set[str]:
        return {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}

    def _shown(self, rest: str) -> None:
        nonce = secrets.token_urlsafe(16)
        with self.server.lock:
            what: str | bytes
            if rest == "labels.csv":
                what, kind = self._table(), TABLE
            elif rest.startswith("picture/"):
                what, kind = self._picture(rest.removeprefix("picture/")), PICTURE
            else:
                what, kind = self._page(rest, nonce), PAGE
        more = {"Content-Disposition": 'attachment; filename="labels.csv"'} if kind == TABLE else {}
        self._send(HTTPStatus.OK, what, kind, nonce if kind == PAGE else "", more)

    def _page(self, rest: str, nonce: str) -> str:
        """Returns the page at an address."""
        session = self.server.session
        if rest == "":
            return session.page(session.next(session.verdicts.latest()), nonce)
        if rest == "all":
            return session.overview(nonce)
        kind, _, which = rest.partition("/")
        if kind == "node":
            return session.page(self._case(which), nonce, "../")
        if kind != "again":
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        return session.page(self._case(which), nonce, "../", not_saved=True)

    def _case(self, place: str) -> Case:
        """Returns the node at a place of the queue."""
        case = self.server.session.case(_number(place))
        if case is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such node in the queue")
        return case

    def _picture(self, place: str) -> bytes:
        """Returns a node of the queue among its neighbours."""
        case = self.server.session.case(_number(place))
        drawn = None if case is None else self.server.session.picture(case)
        if drawn is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such picture")
        return drawn

    def _table(self) -> str:
        """Returns the answers as a table of labels."""
        session = self.server.session
        try:
            return csv_of(labels_of(session.verdicts.latest(), session.class_names))
        except InputError as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from error

    def _done(self, rest: str) -> None:
        """Saves an answer or takes one back, then leads to the next node."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        ours = {f"http://{host}" for host in self._hosts()}
        if (origin is not None and origin not in ours) or site not in (None, "same-origin"):
            raise RefusedError(HTTPStatus.FORBIDDEN, "answers are only accepted from the review's own page")
        if rest not in ("say", "undo"):
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        given = self._form()
        with self.server.lock:
            where = self._say(given) if rest == "say" else self._undo(given)
        address = f"/{self.server.token}/{where}"
        if self.headers.get("Accept") == PLAIN_ALONE:  # our script, which stays on the page until it is saved
            self._send(HTTPStatus.OK, address, PLAIN)
        else:
            self._send(HTTPStatus.SEE_OTHER, "", PLAIN, more={"Location": address})

    def _say(self, given: dict[str, str]) -> str:
        """Saves an answer and returns where it goes on; one that would replace an unseen other one is not saved."""
        session = self.server.session
        case, answer = session.case(_number(given.get("place", ""))), given.get("answer", "")
        if case is None or answer not in session.verdicts.answers:
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, "an answer needs a place in the queue and an answer of the buttons"
            )
        now, known = session.verdicts.latest().get(case.node), given.get("known")
        if now is not None and known is not None and now.number != _number(known) and now.answer != SKIP:
            # Sent twice or said by another page too, or another answer than the page showed.
            return "" if now.answer == answer else f"again/{case.place}"
        session.verdicts.say(case.node, answer)
        return ""

    def _undo(self, given: dict[str, str]) -> str:
        """Takes an answer back and returns the page of its node."""
        session, number = self.server.session, _number(given.get("number", ""))
        node = session.verdicts.undo(number)
        if node is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "there is no such answer")
        place = session.place(node)
        return "" if place is None else f"node/{place}"

    def _form(self) -> dict[str, str]:
        """Returns the fields of a form, each once."""
        lengths = self.headers.get_all("Content-Length") or []
        if len(lengths) != 1 or "Transfer-Encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "an answer needs its length")
        length = _number(lengths[0])
        if length > MOST:
            self.rfile.read(min(length, DRAINED))
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an answer has at most {MOST} bytes")
        body = self.rfile.read(length)
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an answer must be a form")
        try:
            fields = parse_qs(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=8)
        except ValueError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the form is malformed") from error
        if len(body) < length or any(len(values) > 1 for values in fields.values()):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the form is malformed")
        return {name: values[0] for name, values in fields.items()}

    def _send(
        self, status: HTTPStatus, what: str | bytes, kind: str, nonce: str = "", more: dict[str, str] | None = None
    ) -> None:
        body = what if isinstance(what, bytes) else what.encode("utf-8", "replace")
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": POLICY.format(nonce=nonce) if nonce else "default-src 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "same-origin",  # the token is in the address; without it a POST has no origin
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(status, one_line(why) + "\n", PLAIN)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses a request that is no sound HTTP, or a method that there is not, by 4xx and without quoting it."""
        status = {501: HTTPStatus.METHOD_NOT_ALLOWED, 505: HTTPStatus.BAD_REQUEST}.get(code, HTTPStatus(code))
        if not hasattr(self, "command") or self.command is None:
            self.command = ""
        self._refuse(status, status.phrase.lower())

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: an address holds the token."""


def _number(text: str) -> int:
    """Returns a whole number that is not negative."""
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the address must have a whole number there")
    return int(text)
