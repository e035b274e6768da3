"""Several processes on one job: who they are, what they are sent, and what is said when one of them dies."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.startup import PARENT, WAITING
from calirare._util.store import key_of

TIMEOUT = timedelta(hours=24)  # the others wait while the first trains
JOIN_SECONDS = 600.0  # for all processes to be there: a cluster may start them one after the other
SAID_SECONDS = 5.0  # after which a wait for the others is worth a line
SHOWN, LISTED, NAMED = 12, 32, 6  # digits of a checksum, characters and processes that a message tells
LOOK_SECONDS = 0.2  # between two looks whether the launcher is still there
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RankLostError(RuntimeError):
    """Another process of the job ended before its share was done."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a job. Rank 0 trains, judges and writes; all evaluate blocks of nodes.

    Attributes:
        rank: this process, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    def wait(self) -> None:
        """Waits until every process is here.

        Raises:
            RankLostError: one ended.
        """
        if self.size > 1:
            self._call(dist.barrier)

    def send(self, what: Any) -> None:
        """Sends an object to every other process; rank 0 alone calls it. None ends them.

        Raises:
            RankLostError: a process ended.
        """
        if self.size > 1:
            self._call(lambda: dist.broadcast_object_list([what], src=0))

    def receive(self) -> Any:
        """Returns what rank 0 sent.

        Raises:
            RankLostError: a process ended.
        """
        held: list[Any] = [None]
        self._call(lambda: dist.broadcast_object_list(held, src=0))
        return held[0]

    def gather_all(self, what: Any) -> list[Any]:
        """Returns an object of every process, in their order; every process calls it.

        Raises:
            RankLostError: a process ended.
        """
        held: list[Any] = [what] * self.size
        if self.size > 1:
            self._call(lambda: dist.all_gather_object(held, what))
        return held

    def check_alike(self, told: dict[str, Any], mend: str) -> None:
        """Checks that every process tells the same; every process calls it.

        Args:
            told: plain values by their names.
            mend: what to do, put behind a message.

        Raises:
            InputError: one tells something else.
            RankLostError: a process ended.
        """
        every = self.gather_all(told)
        for name in dict.fromkeys(name for each in every for name in each):
            values = [each.get(name) for each in every]
            others = [rank for rank, value in enumerate(values) if value != values[0]]
            if others:
                named = ", ".join(map(str, others[:NAMED])) + (" and others" if len(others) > NAMED else "")
                raise InputError(
                    f"ranks: {name} must be the same for all, got {_shown(values[0])} for rank 0 and "
                    f"{_shown(values[others[0]])} for rank {named}: {mend}"
                )

    def exchange(
        self, rows: Tensor, give: list[int], take: list[int], at_once: int, which: Tensor | None = None
    ) -> Tensor:
        """Returns rows of every process, one process after the other; every process calls it.

        Args:
            rows: of a matrix, [.., h].
            give: how many rows each process gets, in their order.
            take: how many come from each.
            at_once: most of them in one message: larger ones are sent in turns.
            which: the rows to give, int64 [sum(give)]; None: the first ones, as they are.

        Raises:
            RankLostError: a process ended.
        """
        out = rows.new_empty(sum(take), rows.shape[1])
        starts, places = _starts(give), _starts(take)
        turns = max(self.gather_all(max([*give, *take], default=0)))
        for turn in range(0, turns, at_once):
            going, coming = ([max(0, min(at_once, many - turn)) for many in sizes] for sizes in (give, take))
            picked = [slice(start + turn, start + turn + size) for start, size in zip(starts, going, strict=True)]
            sent = torch.cat([rows[some] if which is None else rows[which[some]] for some in picked])
            came = self.all_to_all(sent, going, coming)
            for start, part in zip(places, came.split(coming), strict=True):
                out[start + turn : start + turn + len(part)] = part
        return out

    def all_to_all(self, sent: Tensor, going: list[int], coming: list[int]) -> Tensor:
        """Returns rows of every process for rows that each gets, one process after the other; every process calls it.

        Raises:
            RankLostError: a process ended.
        """
        came = sent.new_empty(sum(coming), sent.shape[1])
        self._call(lambda: dist.all_to_all_single(came, sent, coming, going))
        return came

    def _call(self, work: Callable[[], object]) -> None:
        try:
            _interruptible(work)
        except RuntimeError as error:
            raise RankLostError(
                f"rank {self.rank} of {self.size} lost another process of the job, which ended before its share was "
                "done: its own message says why; where it was killed, start the same command again, finished blocks "
                "are kept"
            ) from error


def _shown(value: Any) -> str:
    """Returns a value as a message tells it; of a long one its beginning and a checksum."""
    text = str(value)
    return text if len(text) <= LISTED else f"{text[:LISTED]}.. (checksum {key_of(text)[:6]})"


def _starts(sizes: list[int]) -> list[int]:
    """Returns where each of several stretches begins that follow on each other."""
    return [0, *accumulate(sizes)][:-1]


def join(device: str = "auto", patience: timedelta = TIMEOUT) -> Ranks:
    """Joins the processes started by torchrun: nccl where each has a GPU, else gloo.

    Args:
        device: as in the settings; a GPU adds nccl to gloo.
        patience: how long a process waits for another one that says nothing, as a machine that lost its power does.

    Returns:
        The processes; this one alone where there is no other.

    Raises:
        InputError: the variables that torchrun sets are there in part, or are no numbers.
        RankLostError: another process did not come.
    """
    rank, size = _place()
    if size <= 1:
        return Ranks()
    on_gpu = device.startswith("cuda") and torch.cuda.is_available() and torch.cuda.device_count() > 0
    if on_gpu:
        torch.cuda.set_device(_number("LOCAL_RANK", "0") % torch.cuda.device_count())
    if not dist.is_initialized():
        # Objects travel by gloo; nothing large is sent from GPU to GPU, blocks lie in files.
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        alone = "to run alone, unset RANK and WORLD_SIZE"
        try:
            _interruptible(
                lambda: dist.init_process_group(backend, timeout=patience),
                f"rank {rank} waits for the other {size - 1} of {size} processes at {where}; {alone}",
                JOIN_SECONDS,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise RankLostError(
                f"rank {rank} of {size} did not find the other processes of the job at {where} ({error}): start all of "
                f"them with torchrun; {alone}"
            ) from error
    return Ranks(dist.get_rank(), dist.get_world_size())


def _place() -> tuple[int, int]:
    """Returns the rank of this process and how many there are, from the variables that torchrun sets."""
    size = _number("WORLD_SIZE", "1")
    if size <= 1 or "RANK" not in os.environ:
        return 0, 1
    rank, missing = _number("RANK", "0"), [name for name in NEEDED if name not in os.environ]
    if missing:
        raise InputError(
            f"ranks: RANK and WORLD_SIZE are set, as torchrun sets them, but {missing[0]} is not: start the command "
            "with torchrun, or unset RANK and WORLD_SIZE to run alone"
        )
    _number("MASTER_PORT", "0")
    if not 0 <= rank < size:
        raise InputError(f"ranks: RANK must be from 0 to WORLD_SIZE - 1 = {size - 1}, got {rank}: unset both")
    return rank, size


def _number(name: str, default: str) -> int:
    value = os.environ.get(name, default)
    if not value.isdecimal() or len(value) > 9:
        raise InputError(f"ranks: the variable {name} must be a whole number, got {value!r}: unset it")
    return int(value)


def _interruptible(work: Callable[[], object], waiting: str = "", seconds: float = float("inf")) -> None:
    """Runs what waits for other processes so that signals are still heard, and the end of the launcher is noticed.

    Args:
        work: called in a thread of its own, which is left behind where it does not end.
        waiting: what is said where it takes long; empty: nothing.
        seconds: how long it may take.

    Raises:
        RuntimeError: the launcher has gone, or the time is over; and what `work` raises.
    """
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    ended, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a property of the thread
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    began, said = time.monotonic(), not waiting
    WAITING.append(ended)
    threading.Thread(target=run, daemon=True).start()
    while not ended.wait(LOOK_SECONDS):
        spent = time.monotonic() - began
        if _orphaned():
            raise RuntimeError("the launcher has ended")
        if spent > seconds:
            raise RuntimeError(f"nothing was heard for {seconds:.0f} s")
        if spent > SAID_SECONDS and not said:
            print(f"calirare: {waiting}", file=sys.stderr, flush=True)
            said = True
    WAITING.remove(ended)
    if failed:
        raise failed[0]


def _orphaned() -> bool:
    """Returns whether torchrun, which ends its processes when it is asked to end, was killed without a chance to."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != PARENT


def leave() -> None:
    """Ends the connection to the other processes, unless a thread that waits for them still holds it."""
    if dist.is_available() and dist.is_initialized() and not WAITING:
        dist.destroy_process_group()
