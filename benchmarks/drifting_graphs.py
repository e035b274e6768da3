"""A simulated month of accounts, as often as one likes from the same law, and what may go wrong with the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
import torch

from calirare.graph import Column, Graph, Split, csr_of_scipy

N_REGIONS = 30  # accounts of a region deal with each other and resemble each other: rows are not independent
REGION_SD = 0.5  # of a region's own mean, in standard deviations of an account
COUNTRIES = ("de", "fr", "it", "us")
TIMES = ("first_seen", "last_seen")  # days, numbers as any other
CHANNELS = tuple(f"shop {i}" for i in range(12))


@dataclass
class Month:
    """Everything of a simulated graph before it is one; a drift changes it.

    Attributes:
        rng: of everything random in it.
        y: 1 for fraud, [n].
        pairs: edges, [m, 2].
        columns: raw values by name: float64 [n].
    """

    rng: np.random.Generator
    y: np.ndarray
    pairs: np.ndarray
    columns: dict[str, np.ndarray]
    kinds: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"country": COUNTRIES, "channel": CHANNELS})

    def graph(self, n_labels: int = 0) -> Graph:
        """Returns the graph; with labels drawn at random, half of them to train and half to validate."""
        n = len(self.y)
        edges = self.pairs[self.pairs[:, 0] != self.pairs[:, 1]]
        ends = np.concatenate([edges, edges[:, ::-1]])
        a = sp.csr_matrix((np.ones(len(ends), dtype=np.float32), ends.T), shape=(n, n))
        a.sum_duplicates()
        a.data[:] = 1
        columns = tuple(
            Column(name, "categorical", self.kinds[name]) if name in self.kinds else Column(name)
            for name in self.columns
        )
        known = self.rng.permutation(n)[:n_labels]
        y = np.full(n, -1)
        y[known] = self.y[known]
        half = torch.from_numpy(known)
        split = Split(half[: n_labels // 2], half[n_labels // 2 :], half[:0], "drawn") if n_labels else None
        return Graph(
            csr_of_scipy(a),
            torch.from_numpy(np.stack(list(self.columns.values()), 1).astype(np.float32)),
            torch.from_numpy(y) if n_labels else None,
            class_names=("fine", "fraud") if n_labels else (),
            split=split,
            minority=1 if n_labels else None,
            name="month",
            feature_names=tuple(self.columns),
            columns=columns,
        )


def month(seed: int, n: int = 1500, share: float = 0.05) -> Month:
    """Returns a month drawn from the law.

    Args:
        seed: of numpy's default generator.
        n: number of accounts.
        share: of fraud.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.int64)
    region = rng.integers(N_REGIONS, size=n)
    mean = REGION_SD * rng.standard_normal((N_REGIONS, 3))
    shop = (1 / np.arange(1, 13)) / (1 / np.arange(1, 13)).sum()
    income = 2000 * np.exp(0.5 * (rng.standard_normal(n) + mean[region, 0]))
    income[rng.random(n) < 0.1] = np.nan
    first_seen = 30 * rng.random(n)
    columns = {
        "amount": 50 * np.exp(rng.standard_normal(n) + 1.5 * y),
        "score": rng.standard_normal(n) + 1.5 * y,
        "age": 40 + 10 * (rng.standard_normal(n) + mean[region, 1]),
        "income": income,
        "clicks": rng.poisson(4 + 4 * y).astype(float),
        "balance": rng.standard_t(4, n) + mean[region, 2],
        "insured": (rng.random(n) < 0.3).astype(float),
        "first_seen": first_seen,
        "last_seen": first_seen + 5 * rng.random(n) * rng.random(n),
        "country": rng.choice(4, n, p=[0.6, 0.25, 0.1, 0.05]).astype(float),
        "channel": rng.choice(12, n, p=shop).astype(float),
    }
    return Month(rng, y, _pairs(rng, y, region), columns)


def _pairs(rng: np.random.Generator, y: np.ndarray, region: np.ndarray, degree: float = 6.0) -> np.ndarray:
    """Returns edges: half within the region, a fifth of fraud's with fraud, else with anybody; popularity varies."""
    n = len(y)
    popular = rng.pareto(2.0, n) + 1
    first = rng.choice(n, round(n * degree / 2), p=popular / popular.sum())
    second = rng.choice(n, len(first), p=popular / popular.sum())
    kind = rng.random(len(first))
    for group in range(N_REGIONS):
        members, at = np.flatnonzero(region == group), np.flatnonzero((region[first] == group) & (kind < 0.5))
        if len(members):
            second[at] = rng.choice(members, len(at))
    rings, at = np.flatnonzero(y == 1), np.flatnonzero((y[first] == 1) & (kind > 0.8))
    if len(rings):
        second[at] = rng.choice(rings, len(at))
    return np.stack([first, second], 1)


def _column(name: str, change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Callable[[Month], Month]:
    def apply(given: Month) -> Month:
        return replace(given, columns=given.columns | {name: change(given.columns[name], given.rng)})

    return apply


def _swapped(given: Month) -> Month:
    columns = dict(given.columns)
    columns["amount"], columns["age"] = columns["age"], columns["amount"]
    return replace(given, columns=columns)


def _later(given: Month) -> Month:
    """Returns the month after: its times are numbers beyond all that were."""
    return replace(given, columns=given.columns | {name: given.columns[name] + 30 for name in TIMES})


def _new_country(given: Month) -> Month:
    moved = _column("country", lambda x, rng: np.where(rng.random(len(x)) < 0.15, 4.0, x))(given)
    return replace(moved, kinds=moved.kinds | {"country": (*COUNTRIES, "jp")})


def _dense(given: Month) -> Month:
    n = len(given.y)
    return replace(given, pairs=np.concatenate([given.pairs, given.rng.integers(n, size=(6 * n, 2))]))


def _bare(given: Month) -> Month:
    kept = given.pairs[given.rng.random(len(given.pairs)) < 0.3]
    return replace(given, pairs=kept)


def _component(given: Month) -> Month:
    """Joins a ring of accounts of another kind, a quarter as many, that deal with each other alone."""
    n = len(given.y) // 4
    other = month(int(given.rng.integers(1 << 30)), n, 0.01)
    other.columns["age"] = 20 + given.rng.random(n)
    pairs = np.concatenate([given.pairs, other.pairs + len(given.y)])
    columns = {name: np.concatenate([x, other.columns[name]]) for name, x in given.columns.items()}
    return replace(given, y=np.concatenate([given.y, other.y]), pairs=pairs, columns=columns)


def _shuffled(given: Month) -> Month:
    """Deals the edges out anew: ends are as popular as they were, but nobody's neighbours resemble them."""
    ends = given.rng.permutation(given.pairs.ravel())
    return replace(given, pairs=ends.reshape(-1, 2))


# What goes wrong, and where the report must see it: a name in its sentence, or any of several.
DRIFTS: dict[str, tuple[Callable[[Month], Month], tuple[str, ...]]] = {
    "next month's times": (_later, TIMES),
    "another currency": (_column("amount", lambda x, rng: 100 * x), ("amount",)),
    "two columns swapped": (_swapped, ("amount", "age")),
    "a sign turned": (_column("clicks", lambda x, rng: -x), ("clicks",)),
    "gaps": (_column("income", lambda x, rng: np.where(rng.random(len(x)) < 0.5, np.nan, x)), ("income",)),
    "gaps filled with 0": (_column("income", lambda x, rng: np.nan_to_num(x)), ("income",)),
    "a new country": (_new_country, ("country",)),
    "other shops": (_column("channel", lambda x, rng: 11 - x), ("channel",)),
    "a column that stands still": (_column("score", lambda x, rng: np.zeros_like(x)), ("score",)),
    "outliers in 3 %": (
        _column("balance", lambda x, rng: np.where(rng.random(len(x)) < 0.03, 1e6, x)),
        ("balance",),
    ),
    "twice as many edges and more": (_dense, ("number of neighbours",)),
    "most edges lost": (_bare, ("number of neighbours", "isolated nodes")),
    "a new component": (_component, ("age", "nodes apart from the main part")),
}


def tripled(seed: int, n: int = 1500) -> Month:
    """Returns a month with three times as much fraud, each class as it was."""
    return month(seed, n, 0.15)
