"""What a leave-one-out method is: a frozen dataclass of its own options that turns a problem into a result."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from calirare.curvature import Linearisation
from calirare.leave_one_out.result import LooResult, Size
from calirare.models import FittedNetwork

Progress = Callable[[int], None] | None
WEIGHT_DECAY, AS_ASKED = "the weight decay of training", "as asked for"
LESS_MEMORY = "take method='alo' with form='auto', fewer of its n_models, or fewer nodes at a time"


@dataclass(frozen=True, eq=False)
class Problem:
    """Which labels of which network are left out, and where that is evaluated.

    Attributes:
        fitted: the network and its labels.
        field: the evaluation field, see `FittedNetwork.evaluation_field`.
        damping: mu > 0, added to the curvature.
        progress: called with the number of labels done, by methods that leave out one after the other.
    """

    fitted: FittedNetwork
    field: Any
    damping: float
    progress: Progress = None

    @property
    def linearised(self) -> Linearisation:
        """The network at its labelled nodes."""
        return self.fitted.linearisation

    @property
    def n_labels(self) -> int:
        """Number of labelled nodes, m."""
        return self.fitted.nodes.numel()

    @property
    def size(self) -> Size:
        """The numbers that memory depends on."""
        return Size.of(self.linearised, self.field)


@dataclass(frozen=True, kw_only=True)
class LeaveOneOutMethod(abc.ABC):
    """A way to leave labels out. A new one is a subclass in a file of its own and its name in `leave_one_out.METHODS`.

    Attributes:
        damping: mu, added to the curvature; None: the weight decay.
        memory_limit: bytes; None: most of what is free.
    """

    name: ClassVar[str]

    damping: float | None = None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            ValueError: one is unknown or out of range.
        """
        if self.damping is not None and not 0 < self.damping < math.inf:
            raise ValueError(f"{self.name}: damping must be positive and finite, got {self.damping}")

    @property
    def one_by_one(self) -> bool:
        """Whether one label is left out after the other, which takes long."""
        return False

    @abc.abstractmethod
    def estimate_bytes(self, problem: Problem) -> int:
        """Returns an upper estimate of the memory `run` allocates, in bytes."""

    @abc.abstractmethod
    def run(self, problem: Problem) -> LooResult:
        """Returns what leaving each label out does to the logits."""

    def damping_for(self, fitted: FittedNetwork) -> tuple[float, str]:
        """Returns the damping mu and why: as asked for, else the weight decay.

        Raises:
            ValueError: there is neither.
        """
        if self.damping == "auto":
            raise ValueError("leave_one_out: damping 'auto' is for torch modules: give a number or None")
        if self.damping is not None:
            return self.damping, AS_ASKED
        if fitted.weight_decay == 0:
            raise ValueError("leave_one_out: damping must be given where the weight decay is 0, got None")
        return fitted.weight_decay, WEIGHT_DECAY

    def for_labels(self, m: int, n_nodes: int = 0) -> tuple[LeaveOneOutMethod, str]:
        """Returns the method that leaves out no more of m labels than a quantile needs, and a note if it is another.

        Args:
            m: labels.
            n_nodes: nodes that get an interval.
        """
        return self, ""

    def seeded(self, seed: int) -> Self:
        """Returns the method with this seed of random choices where it has one of its own choosing."""
        if getattr(self, "seed", 0) is None:
            return dataclasses.replace(self, **{"seed": seed})
        return self


def drawn(m: int, n_models: int | None, seed: int | None) -> Tensor:
    """Returns the places of labels drawn at random, ascending; of all m where no number of them is given.

    Args:
        m: labels.
        n_models: how many; None: all.
        seed: of the draw; None: 0.

    Returns:
        int64 [min(n_models, m)].
    """
    order = torch.randperm(m, generator=torch.Generator().manual_seed(seed or 0))
    return order[: m if n_models is None else min(n_models, m)].sort().values


def check_at_least(name: str, option: str, value: int | None, low: int) -> None:
    """Raises ValueError where an option is given and too small."""
    if value is not None and value < low:
        raise ValueError(f"{name}: {option} must be at least {low}, got {value}")
