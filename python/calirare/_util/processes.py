"""Processes that share a task's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


@contextmanager
def workers(
    jobs: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Gives a pool of processes that end with whatever ends the work, and not when they have finished theirs.

    Args:
        jobs: processes.
        initializer: called in each process when it starts.
        initargs: with these.

    Yields:
        The pool.
    """
    # Spawned, not forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=initializer, initargs=initargs)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
