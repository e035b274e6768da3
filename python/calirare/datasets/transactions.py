"""Simulated card transactions of any number, with the probability of fraud that each label was drawn with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError, check_one_of

if TYPE_CHECKING:
    import pandas as pd

DAY = 86_400
START = np.datetime64("2025-01-01", "s")
# Rows per card, per merchant and per fraud ring member, and the number of merchants that a card goes back to.
ROWS_PER_CARD, ROWS_PER_MERCHANT, FAVOURITES = 40, 200, 6
CATEGORIES = np.array(["food", "fuel", "travel", "clothing", "games", "electronics"], dtype=object)
# Log-odds of fraud: of an ordinary row, and what each circumstance adds to them.
ORDINARY, ONLINE, AMOUNT = -7.0, 0.5, 0.4
STOLEN, COMPROMISED, SKIMMED, RING = 7.5, 7.0, 4.5, 8.0


@dataclass(frozen=True)
class Law:
    """How fraud arises.

    Attributes:
        stolen: proportion of cards that are stolen once, in [0, 1]. The thief pays 12 times on average, mostly online,
            in unusual merchants and with large amounts, until the owner reports it.
        compromised: proportion of merchants with a compromised terminal for three weeks, in [0, 1]. Payments there are
            often fraud, and for a week afterwards so are those of the cards that paid there.
        rings: proportion of cards in rings of eight, in [0, 1]. For ten days, the cards of a ring pay similar amounts
            to two merchants, from two devices that they share.
        drift: what the log-odds of fraud grow by from the first row to the last, >= 0; thefts, compromises and rings
            begin at times with a density that grows with this power of time.
        report_after: mean number of days until a theft is reported, > 0: labels are known that much later.
    """

    stolen: float = 0.0
    compromised: float = 0.0
    rings: float = 0.0
    drift: float = 0.0
    report_after: float = 3.0


LAWS = {
    "stolen cards": Law(stolen=0.08),
    "compromised merchants": Law(compromised=0.12),
    "rings": Law(rings=0.08),
    "drift": Law(stolen=0.05, compromised=0.05, rings=0.04, drift=1.5),
}


def synthetic_transactions(
    rows: int, seed: int = 0, law: str = "stolen cards", days: int = 180
) -> tuple[pd.DataFrame, NumpyArray]:
    """Returns simulated card transactions in order of time, and the probability of fraud of each.

    Cards, merchants and devices are drawn first, then who is stolen, compromised or in a ring and when, then the
    transactions. The label of a row is drawn last, independently, with the probability that is returned. It is
    P(fraud | the row, which cards, merchants and rings are fraudulent at that time): no model can be better than it,
    and models do not see those states. It is no column of the frame, so that nothing is trained on it.

    Args:
        rows: number of transactions, >= 1,000.
        seed: of numpy's default generator, >= 0; the same seed gives the same transactions.
        law: "stolen cards", "compromised merchants", "rings" or "drift" (all three, more and more
            often), see `LAWS`.
        days: from the first transaction to the last, >= 30.

    Returns:
        The frame, with columns transaction (text), when (datetime64[s]), card, merchant, device, category, channel
        (text), amount (float64, > 0) and is_fraud (int64, 0 or 1); and the probabilities, float64 [rows].

    Raises:
        InputError: an argument is out of range.

    Cost: O(n log n) time, about 500 bytes per row.
    """
    for name, value, least in (("rows", rows, 1000), ("seed", seed, 0), ("days", days, 30)):
        if value < least:
            raise InputError(f"synthetic_transactions: {name} must be {least:,} or more, got {value!r}.")
    check_one_of("synthetic_transactions", "law", law, LAWS)
    return _Simulation(rows, days * DAY, LAWS[law], np.random.default_rng(seed)).run()


class _Simulation:
    """One draw of cards, merchants and transactions; columns are arrays over rows, parties are numbers."""

    def __init__(self, rows: int, span: int, law: Law, rng: np.random.Generator) -> None:
        self.n, self.span, self.law, self.rng = rows, span, law, rng
        self.n_cards, self.n_merchants = max(rows // ROWS_PER_CARD, 16), max(rows // ROWS_PER_MERCHANT, 12)
        self.card_scale = rng.normal(3.0, 0.5, self.n_cards)  # mean log amount
        self.merchant_scale = rng.normal(0.0, 0.6, self.n_merchants)
        self.favourites = self._merchants(self.n_cards * FAVOURITES).reshape(self.n_cards, FAVOURITES)

    def run(self) -> tuple[pd.DataFrame, NumpyArray]:
        """Returns the frame and the probabilities."""
        import pandas as pd

        parts = [self._thefts(), self._rings()]
        parts.append(self._ordinary(max(self.n - sum(len(part["time"]) for part in parts), self.n // 2)))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        # Where fraud alone would fill the table, some of all rows are left out.
        chosen = self.rng.permutation(len(columns["time"]))[: self.n]
        chosen = chosen[np.argsort(columns["time"][chosen], kind="stable")]
        columns = {name: values[chosen] for name, values in columns.items()}
        amount = np.round(np.exp(columns["log_amount"]), 2).clip(0.01)
        logit = ORDINARY + columns["logit"] + self._compromises(columns) + ONLINE * columns["online"]
        logit += AMOUNT * (columns["log_amount"] - columns["log_amount"].mean())
        posterior: NumpyArray = 1 / (1 + np.exp(-logit - self.law.drift * (columns["time"] / self.span - 0.5)))
        frame = {
            "transaction": _names("T", np.arange(self.n)),
            "when": START + columns["time"].astype("timedelta64[s]"),
            "card": _names("C", columns["card"]),
            "merchant": _names("M", columns["merchant"]),
            "device": _names("D", columns["device"]),
            "category": CATEGORIES[columns["merchant"] % len(CATEGORIES)],
            "channel": np.where(columns["online"], "online", "terminal").astype(object),
            "amount": amount,
            "is_fraud": (self.rng.random(self.n) < posterior).astype(np.int64),
        }
        return pd.DataFrame(frame), posterior

    def _merchants(self, n: int) -> NumpyArray:
        """Returns n merchants by popularity, a power law."""
        return (self.n_merchants * self.rng.random(n) ** 2).astype(np.int64)

    def _starts(self, n: int) -> NumpyArray:
        """Returns when n thefts, compromises or rings begin, in seconds."""
        return self.span * self.rng.random(n) ** (1 / (1 + self.law.drift))

    def _rows(self, card: NumpyArray, time: NumpyArray, merchant: NumpyArray, **other: Any) -> dict[str, NumpyArray]:
        """Returns rows of these parties, by default ordinary ones; times are in seconds, cut to the span."""
        n = len(card)
        given = {"device": card, "online": self.rng.random(n) < 0.3, "logit": np.zeros(n), "log_factor": np.zeros(n)}
        given |= other
        log_amount = self.card_scale[card] + self.merchant_scale[merchant] + self.rng.normal(0, 0.5, n)
        given["log_amount"] = log_amount + given.pop("log_factor")
        inside = time < self.span
        columns = {"card": card, "time": time.astype(np.int64), "merchant": merchant, **given}
        return {name: values[inside] for name, values in columns.items()}

    def _ordinary(self, n: int) -> dict[str, NumpyArray]:
        """Returns ordinary payments: by day more than by night, mostly to the card's own merchants."""
        rng = self.rng
        activity = np.cumsum(rng.gamma(1.5, size=self.n_cards))
        card = np.searchsorted(activity, rng.random(n) * activity[-1])
        hour = np.clip(rng.normal(14, 4, n), 0, 23.99) * 3600
        time = rng.integers(self.span // DAY, size=n) * DAY + hour
        own = self.favourites[card, rng.integers(FAVOURITES, size=n)]
        return self._rows(card, time, np.where(rng.random(n) < 0.8, own, self._merchants(n)))

    def _thefts(self) -> dict[str, NumpyArray]:
        """Returns what thieves pay between the theft of a card and its report."""
        rng = self.rng
        stolen = rng.permutation(self.n_cards)[: round(self.law.stolen * self.n_cards)]
        start = self._starts(len(stolen))
        length = rng.exponential(self.law.report_after, len(stolen)).clip(0.05) * DAY
        which = np.repeat(np.arange(len(stolen)), rng.poisson(12, len(stolen)))
        n = len(which)
        time, merchant = start[which] + length[which] * rng.random(n), rng.integers(self.n_merchants, size=n)
        online = rng.random(n) < 0.6
        more = {"online": online, "logit": np.full(n, STOLEN), "log_factor": rng.normal(0.8, 0.6, n)}
        return self._rows(stolen[which], time, merchant, **more)

    def _rings(self) -> dict[str, NumpyArray]:
        """Returns what the cards of rings pay to the merchants of their ring."""
        rng = self.rng
        n_rings = round(self.law.rings * self.n_cards / 8)
        members = rng.permutation(self.n_cards)[: n_rings * 8]
        ring = np.arange(len(members)) // 8
        start, level = self._starts(n_rings), rng.normal(3.5, 0.5, n_rings)
        who = np.repeat(np.arange(len(members)), rng.poisson(12, len(members)))
        card, of, n = members[who], ring[who], len(who)
        merchant = rng.integers(self.n_merchants, size=(n_rings, 2))[of, rng.integers(2, size=n)]
        device = self.n_cards + 2 * of + rng.integers(2, size=n)
        # The ring's own level of amounts takes the place of the card's and the merchant's.
        factor = level[of] - self.card_scale[card] - self.merchant_scale[merchant] - rng.normal(0, 0.1, n)
        time = start[of] + 10 * DAY * rng.random(n)
        return self._rows(card, time, merchant, device=device, logit=np.full(n, RING), log_factor=factor)

    def _compromises(self, columns: dict[str, NumpyArray]) -> NumpyArray:
        """Returns what compromised terminals add to the log-odds of rows, which are in order of time."""
        rng, time, card = self.rng, columns["time"], columns["card"]
        bad = rng.permutation(self.n_merchants)[: round(self.law.compromised * self.n_merchants)]
        start = np.full(self.n_merchants, np.inf)
        start[bad] = self._starts(len(bad))
        since = time - start[columns["merchant"]]
        here = (since >= 0) & (since < 21 * DAY)
        # When each card last paid at a compromised terminal, before this row.
        by_card = np.lexsort((time, card))
        visit = np.where(here, time, -np.inf)[by_card]
        first = np.diff(card[by_card], prepend=-1) > 0
        group = np.cumsum(first) * (2.0 * self.span)
        latest = np.maximum.accumulate(np.where(np.isfinite(visit), visit + group, group - self.span))
        before = np.where(first, -np.inf, np.append(-np.inf, latest[:-1]) - group)
        skimmed = np.empty(len(time), dtype=bool)
        skimmed[by_card] = time[by_card] - before < 7 * DAY
        return COMPROMISED * here + SKIMMED * (skimmed & ~here)


def _names(letter: str, numbers: NumpyArray) -> NumpyArray:
    """Returns names such as C00012 of numbers, text."""
    width = max(len(str(numbers.max(initial=0))), 5)
    names = np.array([f"{letter}{i:0{width}}" for i in range(int(numbers.max(initial=0)) + 1)], dtype=object)
    return names[numbers]
