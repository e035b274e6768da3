"""The share of rare nodes from known rare ones alone: how often its interval holds, beside Elkan & Noto's constant.

python benchmarks/bench_positive_only.py [--repeats 300] writes benchmarks/results/positive_only.json. Scores are
normal, those of rare nodes `apart` standard deviations higher; Elkan and Noto's constant is made of the true P(known).
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import record
import torch

from calirare import InputError
from calirare.calibration import positive_unlabelled, rare_among_unlabelled

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


def measured(known: int, n: int, share: float, apart: float, repeats: int) -> dict[str, float]:
    """Returns the ratio of estimates to truth, the interval's coverage and how often there was a refusal."""
    rng, ratios, others_ratios, held, refused = np.random.default_rng(SEED), [], [], [], 0
    for _ in range(repeats):
        own, others, rare = drawn(rng, known, n, share, apart)
        truth = float(rare.mean())
        theirs = positive_unlabelled(*(p_known(z, known, n, share, apart) for z in (own, others)))
        others_ratios.append(float(theirs.p_rare.mean()) / truth)
        try:
            found = rare_among_unlabelled(torch.from_numpy(own), torch.from_numpy(others))
        except InputError:
            refused += 1
            continue
        ratios.append(found.share / truth)
        held.append(found.low <= truth <= found.high)
    low, high = np.quantile(ratios, [0.1, 0.9])
    return {
        "known": known,
        "unlabelled": n,
        "share": share,
        "apart": apart,
        "refused": refused / repeats,
        "held": statistics.fmean(held),
        "median_over_truth": statistics.median(ratios),
        "tenth": float(low),
        "nine_tenths": float(high),
        "elkan_noto_median_over_truth": statistics.median(others_ratios),
    }


def main() -> None:
    """Measures every set and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    rows = [measured(*one, apart, repeats) for apart in APART for one in SETS]
    for row in rows:
        print({key: round(value, 3) for key, value in row.items()})
    print(record.write("positive_only", {"repeats": repeats, "seed": SEED, "rows": rows}))


if __name__ == "__main__":
    main()
