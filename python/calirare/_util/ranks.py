"""Several processes on one job: who they are, what they are sent, and what is said when one of them dies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = timedelta(hours=24)  # the others wait while the first trains


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

    def _call(self, work: Any) -> None:
        try:
            work()
        except RuntimeError as error:
            raise RankLostError(
                f"rank {self.rank} of {self.size} lost another process of the job, which ended before its share was "
                "done: its own message says why; where it was killed, start the same command again, finished blocks "
                "are kept"
            ) from error


def join(device: str = "auto") -> Ranks:
    """Joins the processes started by torchrun: nccl where each has a GPU, else gloo.

    Args:
        device: as in the settings; "cpu" keeps to gloo.

    Returns:
        The processes; this one alone where there is no other.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in os.environ:
        return Ranks()
    on_gpu = device != "cpu" and torch.cuda.is_available() and torch.cuda.device_count() > 0
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not dist.is_initialized():
        # Objects travel by gloo; nothing large is sent from GPU to GPU, blocks lie in files.
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    return Ranks(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """Ends the connection to the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
