"""What the command line needs before its imports: what Ctrl-C does meanwhile, and how idle threads wait.

An exception raised by a signal in the middle of an import ends in a traceback, is swallowed, or aborts inside a C++
library. Nothing is written to disk before the imports are done, so the process may as well end on the spot.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTED = 130  # a shell's code for Ctrl-C
STOPPED: dict[str, int] = {}  # "by": the exit code of the signal that ends the command now running


def leave(number: int, frame: object) -> None:
    """Ends the process at once, with a shell's exit code."""
    if number == signal.SIGINT:
        os.write(2, b"calirare: interrupted\n")
    os._exit(128 + number)


def is_command() -> bool:
    """Returns whether this process is the `calirare` script or `python -m calirare`, not a program that uses us."""
    first = next((word for word in sys.orig_argv[1:] if not word.startswith("-")), "")
    return os.path.basename(first) in ("calirare", "calirare.exe")


def handle(handlers: dict[str, Any]) -> None:
    """Sets handlers by the signals' names; a signal that is ignored, as under nohup, stays ignored."""
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def end_if_stopped() -> None:
    """Ends the command that a signal wanted to end: what its handler raised is dropped within a callback of C."""
    by = STOPPED.get("by")
    if by == INTERRUPTED:
        raise KeyboardInterrupt
    if by is not None:
        sys.exit(by)


def occupy_closed_streams() -> None:
    """Opens nothing in the place of closed standard streams, whose numbers a data file would get otherwise."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


if is_command():
    occupy_closed_streams()
    handle(dict.fromkeys(NAMES, leave))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait sleep: most work is in small steps
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the same of NumPy's own threads
