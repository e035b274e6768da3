"""Chromium with a mouse and a keyboard, spoken to through its pipe: for what a page does where one points at it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tests.helpers.browser import FLAGS, NONE, browser

NAMED = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37}  # keys and their numbers
LOADED = """new Promise(function (done) {
  if (document.readyState === "complete") { done(); } else { addEventListener("load", function () { done(); }); }
})"""


class Tab:
    """A page in a browser."""

    def __init__(self, answers: BinaryIO, commands: BinaryIO):
        self.reads, self.writes = answers, commands
        self.number, self.rest = 0, b""
        self.session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Returns what the browser answers to a command."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        message |= {} if self.session is None else {"sessionId": self.session}
        self.writes.write(json.dumps(message).encode() + b"\0")
        self.writes.flush()
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.reads.fileno(), 1 << 20)
                assert more, "the browser is gone"
                self.rest += more
            first, _, self.rest = self.rest.partition(b"\0")
            told = json.loads(first)
            if told.get("id") == self.number:
                assert "error" not in told, told
                return told["result"]

    def show(self, page: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Shows a file."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.as_uri())
        self.value(LOADED)

    def value(self, script: str) -> Any:
        """Returns what a script in the page is worth."""
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Moves the mouse to a place in the window."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Presses a key that has a name, once."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=NAMED[key])

    def picture(self, path: Path) -> None:
        """Writes what the window shows."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """Yields a page in a browser of its own, whose files go to a folder."""
    path = browser()
    assert path is not None, NONE
    (here, to), (out, there) = os.pipe(), os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (here, there)]  # not to be the 3 and 4 themselves
    flags = [flag for flag in FLAGS if "virtual-time" not in flag]
    script = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'  # it reads commands from 3 and answers on 4
    words = ["bash", "-c", script, path, *flags, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(words, pass_fds=ends, stderr=subprocess.DEVNULL)
    for end in (here, there, *ends):
        os.close(end)
    with os.fdopen(out, "rb") as answers, os.fdopen(to, "wb") as commands:
        try:
            tab = Tab(answers, commands)
            yield tab
        finally:
            process.kill()
            process.wait()
