"""Decision rules: from probabilities to the threshold from which a node is an alert."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from calirare._util.amounts import amount
from calirare._util.arrays import equal_to
from calirare._util.errors import InputError
from calirare.calibration.decisions.guarantees import Labelled, precision_threshold, recall_threshold


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
            f"{amount(self.nodes, 'node')} have the same P(rare), {self.p:.3g}, at the end of the budget, and only "
            f"{self.wanted - self.alerts:,} of them would fit: none of them is an alert. "
            f"A budget of {self.alerts + self.nodes:,} includes them all"
        )


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """Says which nodes are alerts: those whose P(rare) times `weights` is at least the threshold.

    Attributes:
        name: in `RULES`.
    """

    name: ClassVar[str]

    @abstractmethod
    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns the threshold for nodes with P(rare) = p, float64 [n], n >= 1; above all where none is an alert.

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

    def costs(self) -> tuple[Any, float]:
        """Returns what a missed rare node, a number or one per node [n], and a false alarm cost."""
        return 1.0, 1.0

    @property
    def weights(self) -> Any:
        """1; where misses differ in cost that of a miss and a false alarm together, float64 [n].

        Of all sets of as many alerts those with the largest P(rare) times it are expected to cost least.
        """
        miss, alarm = self.costs()
        return miss + alarm if isinstance(miss, np.ndarray) else 1.0

    def cut(self, threshold: float) -> str:
        """Returns from which P(rare) on a node is an alert, in words."""
        miss, alarm = self.costs()
        digits = 6 if 0.9995 <= threshold < 1 else 3
        return f"{threshold:.{digits}g}" + (f" / (amount + {alarm:g})" if isinstance(miss, np.ndarray) else "")


NONE = math.nextafter(1.0, 2.0)  # no node is an alert


@dataclass(frozen=True, kw_only=True)
class Balanced(Rule):
    """Alerts where P(rare) is above the prevalence: the largest mean of both classes' recalls, if P is right."""

    name: ClassVar[str] = "balanced"

    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns the mean of P."""
        return float(p.mean())

    @property
    def sentence(self) -> str:
        """What was asked for."""
        return "both classes count equally, however many nodes they have"


@dataclass(frozen=True, kw_only=True)
class Cost(Rule):
    """Alerts where a missed rare node would cost more than a false alarm (Elkan 2001).

    Attributes:
        miss: what a missed rare node costs, > 0; where nodes differ, such as by their amounts, an array [n], >= 0.
        alarm: what a false alarm costs, > 0.

    Raises:
        InputError: a cost is not positive, or in an array negative or missing.
    """

    name: ClassVar[str] = "cost"
    miss: Any = 1.0
    alarm: float = 1.0

    def __post_init__(self) -> None:
        """Checks the costs."""
        if self._differ and (wrong := int((~((self.miss >= 0) & (self.miss < math.inf))).sum())):
            raise InputError(
                f"decision: a missed case costs its amount, but amounts of {wrong:,} of {len(self.miss):,} rows are "
                "negative or missing: leave these rows out, such as refunds, or give one cost (--cost-fn 100)"
            )
        for name in ("alarm",) if self._differ else ("miss", "alarm"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"decision: the cost of a {name} must be positive, got {getattr(self, name)}")

    @property
    def _differ(self) -> bool:
        return isinstance(self.miss, np.ndarray)

    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns alarm / (alarm + miss), of an array alarm: there the costs (1 - P) alarm and P miss are equal."""
        return self.alarm if self._differ else 1 / (1 + self.miss / self.alarm)

    @property
    def sentence(self) -> str:
        """What was asked for."""
        miss = "its amount" if self._differ else f"{self.miss:g}"
        return f"a missed rare node costs {miss}, a false alarm {self.alarm:g}"

    def costs(self) -> tuple[Any, float]:
        """Returns both costs."""
        return self.miss, self.alarm


@dataclass(frozen=True, kw_only=True)
class Budget(Rule):
    """Alerts are the nodes with the largest P(rare), as many as can be looked at, and never more.

    Nodes that share a P(rare) are all alerts, or none where the budget ends among them (`Rule.tie`).

    Attributes:
        alerts: how many, a whole number >= 1, or a share of the nodes in (0, 1).

    Raises:
        InputError: the number is neither.
    """

    name: ClassVar[str] = "budget"
    alerts: float = 100

    def __post_init__(self) -> None:
        """Checks the number."""
        if not (0 < self.alerts < 1 or (1 <= self.alerts < math.inf and self.alerts == int(self.alerts))):
            raise InputError(f"decision: budget must be a whole number or a share in (0, 1), got {self.alerts}")

    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns a P with at most so many nodes above it, half way to the next: tied ones are all alerts or none."""
        k = self.wanted(p)
        if k >= len(p):
            return 0.0
        above = np.sort(p)[len(p) - k - 1]  # the first node that must be left out
        kept = p[p > above + equal_to(above)]
        return _below(p, kept.min()) if len(kept) else NONE

    def wanted(self, p: np.ndarray) -> int:
        """Returns the budget, of a share the whole number of nodes below it."""
        return int(self.alerts if self.alerts >= 1 else self.alerts * len(p))

    @property
    def sentence(self) -> str:
        """What was asked for."""
        return (
            amount(int(self.alerts), "alert")
            if self.alerts >= 1
            else f"alerts for {100 * self.alerts:g} % of the nodes"
        )


@dataclass(frozen=True, kw_only=True)
class _Proportion(Rule):
    """A proportion that the alerts must reach."""

    at_least: float = 0.8
    confidence: float | None = None

    def __post_init__(self) -> None:
        """Checks ranges."""
        if not 0 < self.at_least < 1:
            raise InputError(f"decision: {self.name} must be in (0, 1), got {self.at_least}")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise InputError(f"decision: confidence must be in (0, 1), got {self.confidence}")

    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns the threshold at which the alerts' P(rare) reach the proportion, or that labels prove."""
        if self.confidence is None:
            return self._expected(p)
        if labelled is None:
            raise InputError("decision: a confidence needs labels drawn at random: leave it out, or give some")
        return self._proved(labelled, self.at_least, self.confidence)

    @abstractmethod
    def _expected(self, p: np.ndarray) -> float:
        """Returns the threshold by P(rare)."""

    @abstractmethod
    def _proved(self, labelled: Labelled, at_least: float, confidence: float) -> float:
        """Returns the threshold that labels prove."""

    @property
    def sentence(self) -> str:
        """What was asked for."""
        how = " on average" if self.confidence is None else f" with confidence {self.confidence:g}"
        return f"a {self.name} of at least {self.at_least:g}{how}"


@dataclass(frozen=True, kw_only=True)
class Precision(_Proportion):
    """As many alerts as possible, of which a given proportion is rare; see `precision_threshold` for a confidence."""

    name: ClassVar[str] = "precision"
    _proved = staticmethod(precision_threshold)

    def _expected(self, p: np.ndarray) -> float:
        """Returns the lowest threshold at which the mean P of the alerts is the target."""
        wanted = self._most(p)
        if not wanted:
            return NONE
        last = -np.sort(-p)[wanted - 1]
        if (p >= last - equal_to(last)).sum() > wanted:  # tied nodes would bring it below the target
            above = p[p > last + equal_to(last)]
            return _below(p, above.min()) if len(above) else NONE
        return _below(p, last)

    def wanted(self, p: np.ndarray) -> int | None:
        """Returns the largest number of nodes, from the highest P down, whose mean P is the target."""
        return self._most(p) if self.confidence is None else None

    def _most(self, p: np.ndarray) -> int:
        enough = (-np.sort(-p)).cumsum() >= self.at_least * np.arange(1, len(p) + 1)
        return int(np.flatnonzero(np.append(True, enough))[-1])


@dataclass(frozen=True, kw_only=True)
class Recall(_Proportion):
    """As few alerts as possible that hold a given proportion of the rare nodes; see `recall_threshold`."""

    name: ClassVar[str] = "recall"
    _proved = staticmethod(recall_threshold)

    def _expected(self, p: np.ndarray) -> float:
        """Returns the highest threshold at which alerts hold the target's share of sum P."""
        largest = -np.sort(-p)
        found = largest.cumsum()
        return _below(p, largest[min(int(np.searchsorted(found, self.at_least * found[-1])), len(p) - 1)])


@dataclass(frozen=True, kw_only=True)
class Capped(Rule):
    """The alerts of another rule; of too many the likeliest, where misses differ in cost those that save most.

    Attributes:
        of: the rule.
        most: how many alerts there may be.
    """

    of: Rule
    most: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the rule."""
        return self.of.name

    def threshold(self, p: np.ndarray, labelled: Labelled | None) -> float:
        """Returns the higher one of both thresholds."""
        return max(self.of.threshold(p, labelled), self._capped(p)[-1])

    def tie(self, p: np.ndarray, threshold: float) -> Tie | None:
        """Returns the ties of the rule that the threshold is of."""
        cap, worth, scale, least = self._capped(p)
        tie = (cap if least >= threshold else self.of).tie(worth, threshold / scale)
        return None if tie is None else replace(tie, p=float(p[np.abs(worth - tie.p).argmin()]))

    def _capped(self, p: np.ndarray) -> tuple[Budget, np.ndarray, float, float]:
        """Returns the rule that makes so many, P times weights in [0, 1] of their scale, and its threshold."""
        cap, scale = Budget(alerts=self.most), float(np.max(self.weights))
        worth = p * (self.weights / scale)
        return cap, worth, scale, scale * cap.threshold(worth, None)

    @property
    def sentence(self) -> str:
        """What was asked for."""
        return f"{self.of.sentence}; at most {amount(self.most, 'alert')}"

    def costs(self) -> tuple[Any, float]:
        """Returns the costs of the rule."""
        return self.of.costs()


# A rule is one class and one line here.
RULES: dict[str, type[Rule]] = {kind.name: kind for kind in (Balanced, Cost, Budget, Precision, Recall)}


def make_rule(name: str, **options: Any) -> Rule:
    """Returns the rule of that name in `RULES`; another name, or an option it does not have, is an InputError."""
    if name not in RULES:
        raise InputError(f"decide must be one of {', '.join(RULES)}, got {name!r}")
    try:
        return RULES[name](**options)
    except TypeError:
        known = ", ".join(field.name for field in fields(RULES[name])) or "none"
        raise InputError(f"decide={name}: options must be among {known}, got {', '.join(options)}") from None


def _below(p: np.ndarray, least: np.floating) -> float:
    """Returns a threshold for which `least` is the lowest P of an alert: half way to the next P below it."""
    lower = p[p < least]
    if not len(lower):
        return float(least)
    next_ = lower.max()
    between = float(next_) + (float(least) - float(next_)) / 2
    return between if next_ < p.dtype.type(between) else float(least)  # where none lies between, the least itself
