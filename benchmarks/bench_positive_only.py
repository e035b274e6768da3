"""The share of rare nodes from known rare ones alone: how often its interval holds, beside Elkan & Noto's constant.

python benchmarks/bench_positive_only.py [--repeats 300] [--counts 60] writes benchmarks/results/positive_only.json.
Scores are normal, those of rare nodes `apart` standard deviations higher; Elkan and Noto's constant is made of the true
P(known). The first `counts` draws are given a map too, and alerts where P(rare) is at least a half: do the 90 %
intervals of hits and misses hold?
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import record
import torch

from calirare import InputError
from calirare.calibration import (
    PositiveOnlyCalibrator,
    Prevalence,
    count_draws,
    rare_among_unlabelled,
)

SETS = ((15, 4000, 0.02), (50, 4000, 0.02), (50, 4000, 0.06), (200, 4000, 0.06), (75, 4000, 0.05))
APART = (2.0, 2.5, 3.0, 4.0, 5.0)
SEED = 101  # other draws than those that chose the constants


def drawn(rng: np.random.Generator, known: int, n: int, share: float, apart: float) -> tuple[np.ndarray, ...]:
    """Returns scores of known rare nodes and of others, and which of these are rare."""
    rare = rng.random(n) < share
    return rng.normal(apart, 1, known), rng.normal(0, 1, n) + apart * rare, rare


def p_known(scores: np.ndarray, known: int, n: int, share: float, apart: float) -> torch.Tensor:
    """Returns the true P(known) at scores."""
    ratio = known / (n * share + n * (1 - share) * np.exp(apart**2 / 2 - apart * scores))
    return torch.from_numpy(ratio / (1 + ratio))


def elkan_noto(p_of_known: torch.Tensor, p_of_others: torch.Tensor) -> torch.Tensor:
    """Returns P(rare) of nodes without a label with the mean of P(known) of known nodes as c (2008)."""
    c = float(p_of_known.mean())
    return ((1 - c) / c * p_of_others / (1 - p_of_others)).clamp(max=1.0)


def counts_held(own: np.ndarray, others: np.ndarray, rare: np.ndarray, share: Prevalence, apart: float) -> list[bool]:
    """Returns whether the 90 % intervals of misses and of hits hold."""
    odds = torch.from_numpy(apart * np.concatenate([own, others]) - apart**2 / 2)
    logits = torch.stack([torch.zeros_like(odds), odds], 1)
    known = torch.cat([torch.ones(len(own)), torch.zeros(len(others))]).long()
    made = {"target": "population", "trained_shares": [0.5, 0.5], "sentence": ""}
    fitted = PositiveOnlyCalibrator.fit_known(logits, known, share, **made)
    rest = logits[len(own) :]
    alerts = (fitted.transform(rest)[:, 1] >= 0.5).long()
    ends = np.quantile(count_draws(fitted, rest, alerts, 2)[1], [0.05, 0.95], axis=0)
    truth = np.bincount(alerts.numpy(), weights=rare, minlength=2)
    return ((ends[0] <= truth) & (truth <= ends[1])).tolist()


def measured(known: int, n: int, share: float, apart: float, repeats: int, counts: int) -> dict[str, float]:
    """Returns the ratio of estimates to truth, the coverage of intervals and how often there was a refusal."""
    rng, ratios, others_ratios, held, refused = np.random.default_rng(SEED), [], [], [], 0
    inside = list[list[bool]]()
    for _ in range(repeats):
        own, others, rare = drawn(rng, known, n, share, apart)
        truth = float(rare.mean())
        theirs = elkan_noto(*(p_known(z, known, n, share, apart) for z in (own, others)))
        others_ratios.append(float(theirs.mean()) / truth)
        try:
            found = rare_among_unlabelled(torch.from_numpy(own), torch.from_numpy(others))
        except InputError:
            refused += 1
            continue
        ratios.append(found.share / truth)
        held.append(found.low <= truth <= found.high)
        if len(inside) < counts:
            inside.append(counts_held(own, others, rare, found, apart))
    misses, hits = np.mean(inside, axis=0)
    low, high = np.quantile(ratios, [0.1, 0.9])
    return {
        "known": known,
        "unlabelled": n,
        "share": share,
        "apart": apart,
        "refused": refused / repeats,
        "held": statistics.fmean(held),
        "hits_held": float(hits),
        "misses_held": float(misses),
        "median_over_truth": statistics.median(ratios),
        "tenth": float(low),
        "nine_tenths": float(high),
        "elkan_noto_median_over_truth": statistics.median(others_ratios),
    }


def main() -> None:
    """Measures every set and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--counts", type=int, default=60)
    asked = parser.parse_args()
    repeats = asked.repeats
    rows = [measured(*one, apart, repeats, asked.counts) for apart in APART for one in SETS]
    for row in rows:
        print({key: round(value, 3) for key, value in row.items()})
    print(record.write("positive_only", {"repeats": repeats, "counts": asked.counts, "seed": SEED, "rows": rows}))


if __name__ == "__main__":
    main()
