"""How labels were drawn: which of them tell how common each class is, and which only tell the classes apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.arrays import brief

ABSENT = -700.0  # log of the share of a class that a draw left out: exp of it is 0 beside any other


@dataclass(frozen=True, eq=False)
class Sampling:
    """Where each label of a calibration sample came from; all of it on the CPU.

    Attributes:
        draw: int64 [m]: 0 for a label drawn without regard to its class; g >= 1 for one of the g-th draw with numbers
            fixed per class, such as 20 of each.
        log_rates: float64 [m, k], log of the share of each class that the label's draw took, up to a constant per row;
            0 where classes were drawn alike. Read for draw 0 alone: a draw with fixed numbers and known class totals
            is a draw 0 with log(k_c / n_c) here.
        elsewhere: float64 [k], how many other nodes of each class are known that represent the population: labels
            without a leave-one-out logit, or the totals of a register; zeros where there are none.
        sentence: what was assumed, for the user.

    Raises:
        ValueError: shapes differ, or a number is out of range.
    """

    draw: Tensor
    log_rates: Tensor
    elsewhere: Tensor
    sentence: str = ""

    __repr__ = brief

    def __post_init__(self) -> None:
        """Checks shapes and ranges."""
        m, k = self.log_rates.shape if self.log_rates.dim() == 2 else (-1, -1)
        if tuple(self.draw.shape) != (m,) or tuple(self.elsewhere.shape) != (k,):
            shapes = [tuple(x.shape) for x in (self.draw, self.log_rates, self.elsewhere)]
            raise ValueError(f"Sampling: shapes must be [m], [m, k] and [k], got {', '.join(map(str, shapes))}")
        if bool((self.draw < 0).any()) or not bool(torch.isfinite(self.log_rates).all()):
            raise ValueError("Sampling: draw must be >= 0 and log_rates finite")
        if not bool((torch.isfinite(self.elsewhere) & (self.elsewhere >= 0)).all()):
            raise ValueError("Sampling: elsewhere must be finite and >= 0")

    @classmethod
    def at_random(cls, m: int, n_classes: int) -> Sampling:
        """Returns the sampling of m labels that were drawn without regard to their classes."""
        rates = torch.zeros(m, n_classes, dtype=torch.float64)
        return cls(torch.zeros(m, dtype=torch.int64), rates, rates.new_zeros(n_classes))

    @property
    def representative(self) -> Tensor:
        """Which labels tell how common each class is, bool [m]."""
        return self.draw == 0

    def select(self, chosen: Tensor) -> Sampling:
        """Returns the sampling of some of the labels, given as bool [m] or int64 [c]."""
        chosen = chosen.cpu()
        return Sampling(self.draw[chosen], self.log_rates[chosen], self.elsewhere, self.sentence)

    def offsets(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Returns what sampling adds to each label's log-odds, float64 [m, k].

        Of draw 0 these are its rates. A draw with fixed numbers m_c of class c sees P(y = c) = m_c / m whatever the
        population is, so log m_c stands there in place of the population's log-share.
        """
        out = self.log_rates.to(weights).clone()
        for draw in self.draw.unique().tolist():
            if draw > 0:
                member = self.draw.to(labels.device) == draw
                number = torch.zeros_like(out[0]).index_add(0, labels[member], weights[member])
                out[member] = (number / number.sum()).log().clamp(min=ABSENT)
        return out
