"""What speaks against P(rare) of nodes without a label, whatever labels say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Doubt:
    """Why P(rare) of nodes without a label can be wrong.

    Attributes:
        sentence: in words; empty where nothing speaks for it.
        verdict: the best that P(rare) can have.
    """

    sentence: str = ""
    verdict: Literal["trust", "caution", "do not trust"] = "trust"
