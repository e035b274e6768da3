"""What a rule of decision is: from probabilities to the threshold above which a node is an alert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calirare._util.amounts import amount
from calirare._util.arrays import brief, equal_to, to_tensor
from calirare._util.errors import InputError


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labels that a guarantee rests on: drawn at random from the population, their P(rare) made without them.

    Attributes:
        p: P(rare) by leave-one-out, cross-fitted or held-out logits, float64 [m], in [0, 1].
        rare: which of them are rare, bool [m].

    Raises:
        InputError: shapes differ, a probability is out of range, or a label is neither 0 nor 1.
        TypeError: these are no numbers.
    """

    p: np.ndarray
    rare: np.ndarray

    __repr__ = brief

    def __post_init__(self) -> None:
        """Checks shapes and ranges."""
        p = to_tensor("Labelled", "p", self.p).detach().double().cpu().numpy()
        object.__setattr__(self, "p", p)
        given = to_tensor("Labelled", "rare", self.rare).detach().cpu().numpy()
        object.__setattr__(self, "rare", given == 1)
        if self.p.ndim != 1 or self.p.shape != self.rare.shape:
            raise InputError(f"Labelled: p and rare must have one shape [m], got {self.p.shape} and {self.rare.shape}")
        if not bool(((self.p >= 0) & (self.p <= 1)).all()):
            raise InputError("Labelled: p must lie in [0, 1]")
        if not bool(((given == 0) | (given == 1)).all()):
            raise InputError("Labelled: rare must hold 0 and 1 or false and true: leave nodes without a label out")


@dataclass(frozen=True)
class Tie:
    """Nodes of one P(rare) of which a rule takes some and not all: none of them is an alert.

    Attributes:
        nodes: how many share it.
        p: their P(rare).
        wanted: how many alerts the rule would make if no two P(rare) were equal.
        alerts: how many it makes.
    """

    nodes: int
    p: float
    wanted: int
    alerts: int

    @property
    def sentence(self) -> str:
        """How many nodes share which P(rare), and what becomes of them."""
        return (
            f"{amount(self.nodes, 'node')} share P(rare) {self.p:.3g} at the cut and only "
            f"{self.wanted - self.alerts:,} of them would fit: none of them is an alert; "
            f"{amount(self.alerts + self.nodes, 'alert')} would include them all"
        )


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """Says which nodes are alerts: those whose P(rare) is at least the threshold.

    Attributes:
        name: in `RULES`.
    """

    name: ClassVar[str]

    @abstractmethod
    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns the threshold for nodes with P(rare) = p, float64 [n], n >= 1; above 1 where none is an alert.

        `labelled` is what a guarantee rests on; a rule without one does not look at it.
        """

    def wanted(self, p: np.ndarray) -> int | None:
        """Returns how many alerts there would be if no two P were equal; None: the rule asks for no number."""
        return None

    def tie(self, p: np.ndarray, threshold: float) -> Tie | None:
        """Returns the nodes that are no alerts since only some of them could be; None where there are none.

        `threshold` is that of the rule for nodes with P(rare) = p, [n].
        """
        wanted, below = self.wanted(p), p[p < threshold]
        alerts = len(p) - len(below)
        if wanted is None or wanted <= alerts or not len(below):
            return None
        return Tie(int((below >= below.max() - equal_to(below.max())).sum()), float(below.max()), wanted, alerts)

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What was asked for."""

    def costs(self) -> tuple[float, float]:
        """Returns what a missed rare node and a false alarm cost."""
        return 1.0, 1.0
