"""What speaks against P(rare) of nodes without a label, whatever labels say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["trust", "caution", "do not trust"]


@dataclass(frozen=True)
class Doubt:
    """Why P(rare) of nodes without a label can be wrong.

    Attributes:
        sentence: in words; empty where nothing speaks for it.
        verdict: the best that P(rare) can have.
    """

    sentence: str = ""
    verdict: Verdict = "trust"

    def __post_init__(self) -> None:
        """Refuses a verdict that is none, as a damaged file has."""
        if self.verdict not in get_args(Verdict):
            raise ValueError(f"doubt: verdict must be one of {get_args(Verdict)}, got {self.verdict!r}")


NO_DOUBT = Doubt()


def sample_mend(kind: str | None) -> str:
    """Returns what to do about labels that are no random sample.

    Args:
        kind: name of the class that is told of; None: the rare one, whose prevalence can be said.
    """
    drawn = "put nodes drawn at random into the validation part (--calibrate-on val)"
    return drawn if kind else f"{drawn}, or give the prevalence (--prevalence)"
