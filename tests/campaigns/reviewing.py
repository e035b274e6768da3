"""A review that is worked through by a reader of its page: what was said to be saved is told to a file at once."""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from urllib.parse import urlencode

import calirare
from calirare import InputError
from calirare.page import ReviewServer, ReviewSession, Verdicts
from tests.campaigns.jobs import SAYS

FILE, TOLD, ANSWERS = "answers.sqlite", "told.txt", 6


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Looks at no next page."""


def answer_all(root: Path, run: Path) -> int:
    """Serves a run's page and answers the nodes that have no answer yet; returns an exit code as the command does."""
    saved, told = calirare.load(run), os.open(root / TOLD, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with (root / "said.txt").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        try:
            with Verdicts(run.parent / FILE, saved.fingerprint, saved.scorer.class_names) as verdicts:
                session = ReviewSession(saved, verdicts, None, "it is not looked for")
                with ReviewServer(session) as server:
                    return _answer(server, told)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            os.close(told)


def _answer(server: ReviewServer, told: int) -> int:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    opener, code = urllib.request.build_opener(_Stay), 0
    done = {case.node for case in server.session.cases} & set(server.session.verdicts.latest())
    for place in range(len(done), ANSWERS):
        body = urlencode({"place": place, "answer": SAYS[place % 4]}).encode()
        try:
            opener.open(f"{server.address}say", body, timeout=60).close()
        except urllib.request.HTTPError as answer:
            if answer.code != 303:
                print(answer.read().decode(), file=sys.stderr)
                code = 2
                break
        os.write(told, f"{SAYS[place % 4]}\n".encode())
    server.shutdown()
    thread.join()
    return code


def lost(root: Path, run: Path) -> list[str]:
    """Returns what is wrong with the answers on the disk: those told to be saved are there, and at most one more."""
    saved, told = calirare.load(run), (root / TOLD).read_text().split() if (root / TOLD).exists() else []
    if not (run.parent / FILE).exists():
        return [f"{len(told)} answers are gone"] if told else []
    with Verdicts(run.parent / FILE, saved.fingerprint, saved.scorer.class_names) as verdicts:
        found = [each.answer for each in verdicts.latest().values()]
    right = found[: len(told)] == told and len(found) <= len(told) + 1 and found == list((SAYS * 2)[: len(found)])
    return [] if right else [f"told to be saved: {told}, found: {found}"]
