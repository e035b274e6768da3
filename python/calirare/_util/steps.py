"""Progress of long work: loops report steps, a listener of the caller shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int], None]  # stage, steps done, steps in all
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def step_listener(listener: Listener) -> Iterator[None]:
    """Passes the steps of a block's work to a listener, on this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_step(stage: str, done: int, total: int) -> None:
    """Reports how many steps of a stage are done; 0 begins it, all of them end it."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)


@contextmanager
def one_step(stage: str) -> Iterator[None]:
    """Reports a block's work as a stage of one step."""
    report_step(stage, 0, 1)
    yield
    report_step(stage, 1, 1)


def progress(stage: str, items: Sequence[T]) -> Iterator[T]:
    """Yields items, each a step of a stage."""
    for done, item in enumerate(items):
        report_step(stage, done, len(items))
        yield item
    report_step(stage, len(items), len(items))


def counted(stage: str, items: Iterable[T], total: int) -> Iterator[T]:
    """Yields items as they are made, each a step of a stage of so many."""
    report_step(stage, 0, total)
    for done, item in enumerate(items, 1):
        report_step(stage, done, total)
        yield item
