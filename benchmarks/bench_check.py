"""The check of P(rare) on simulated logits: how often it says "trust", how often rightly, and its interval's ends.

    python benchmarks/bench_check.py [--runs 60]

As bench_probability draws them, with classes up to 7 standard deviations apart, as detectors that find nearly all have
them: labels drawn at random, a map fitted on them, P(rare) of each label by maps without its part, and the verdict,
held against mean P over the share of rare nodes among many others. Then the ends of the interval over those of the test
that counts events of unequal probabilities exactly (Poisson-binomial), half of the time with one or two false alarms
that are all but certain. Writes results/check.json and its table in docs/research/probability.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import record
import torch
from bench_probability import columns, ours, problem
from scipy.optimize import brentq
from scipy.special import expit, logit

from calirare.calibration import cross_fitted_probabilities, representative_labels
from calirare.metrics import PopulationCheck, population_check

RARE, PREVALENCES, SETUPS = (5, 8, 12, 20, 40, 80), (0.01, 0.03, 0.1), ("all-train", "50/25/25")
PAGE = record.ROOT / "docs" / "research" / "probability.md"
FARTHEST, RIGHT, TAIL, ENDS = 7.0, (2 / 3, 1.5), 0.025, 120


def checked(setup: str, prevalence: float, rare: int, seed: int) -> tuple[PopulationCheck, float] | None:
    """Returns the check of a run and mean P over the true share; None where one class has less than two labels."""
    run = problem(setup, prevalence, rare, seed, FARTHEST)
    if not 2 <= run.y.sum() <= len(run.y) - 2:
        return None
    fitted, y = ours(run), torch.from_numpy(run.y)
    used, sampling = representative_labels(y, torch.from_numpy(run.in_train), 2)
    z = torch.as_tensor(columns(run.z))
    p = cross_fitted_probabilities(fitted, z[used], y[used], sampling=sampling)
    at = sampling.representative
    true = float(np.asarray(fitted.transform(run.scored)).mean() / run.rare_scored.mean())
    return population_check((y[used][at] == 1).long(), p[at, 1]), true


def verdicts(rare: int, runs: int) -> dict[str, Any]:
    """Returns how often the check says what of runs with some rare labels, and how often its trust is right."""
    every = [checked(setup, share, rare, seed) for setup in SETUPS for share in PREVALENCES for seed in range(runs)]
    found = [each for each in every if each is not None]
    trusted = [true for check, true in found if check.verdict == "trust"]
    return {
        "rare_labels": rare,
        "runs": len(found),
        "trust": len(trusted) / len(found),
        "right": sum(RIGHT[0] <= true <= RIGHT[1] for true in trusted),
        "trusted": len(trusted),
        "do_not_trust": sum(check.verdict == "do not trust" for check, _ in found) / len(found),
    }


def tails(p: np.ndarray, events: int) -> tuple[float, float]:
    """Returns P(at most as many events) and P(at least as many) of independent ones, exactly."""
    counts = np.zeros(events + 1)
    counts[0] = 1
    for each in p:
        counts[1:] = counts[1:] * (1 - each) + counts[:-1] * each
        counts[0] *= 1 - each
    return float(counts.sum()), float(1 - counts[:-1].sum())


def ends_over_exact(seed: int) -> tuple[float, float] | None:
    """Returns both ends of a check's interval over those of the exact test; None without two rare labels."""
    rng = np.random.default_rng(seed)
    distance, prevalence, n = rng.uniform(1.5, FARTHEST), rng.choice(PREVALENCES), int(rng.choice([200, 600]))
    y = rng.random(n) < prevalence
    if y.sum() < 2:
        return None
    z = distance * (rng.normal(np.where(y, distance, 0), 1) - distance / 2) + logit(prevalence)
    if seed % 2:
        z[np.flatnonzero(~y)[: rng.integers(1, 3)]] = distance**2 / 2 + 8
    p, events = expit(z), int(y.sum())
    up = brentq(lambda by: tails(expit(z + by), events)[0] - TAIL, -60, 60)
    down = brentq(lambda by: tails(expit(z + by), events)[1] - TAIL, -60, 60)
    check = population_check(y.astype(np.int64), p)
    return check.low * expit(z + up).mean() / p.mean(), check.high * expit(z + down).mean() / p.mean()


def page(found: dict[str, Any]) -> str:
    """Returns the table and a sentence about the ends."""
    lines = ["| rare labels | runs | trust | of these right |", "| --- | --- | --- | --- |"]
    for row in found["verdicts"]:
        lines.append(
            f"| {row['rare_labels']} | {row['runs']} | {row['trust']:.0%} | {row['right']} of {row['trusted']} |"
        )
    low, high = (
        " to ".join(f"{ends[at]:.2f}" for at in ("5 %", "95 %"))
        for ends in (found["ends over exact"][end] for end in ("low", "high"))
    )
    about = (
        f"Ends over those of the exact test, 5th to 95th percentile of {found['checks']}: lower {low}, upper {high}. "
        "[check.json](../../benchmarks/results/check.json): `python benchmarks/bench_check.py`."
    )
    return "\n".join([*lines, "", about])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60, help="of each set-up and prevalence")
    runs = parser.parse_args().runs
    rows = []
    for rare in RARE:
        rows.append(verdicts(rare, runs))
        print(rows[-1], flush=True)
    ratios = np.array([each for seed in range(ENDS) if (each := ends_over_exact(seed)) is not None])
    percentiles = {
        end: dict(zip(("5 %", "50 %", "95 %"), np.percentile(ratios[:, i], [5, 50, 95]).tolist(), strict=True))
        for i, end in enumerate(("low", "high"))
    }
    print(percentiles)
    results = {"verdicts": rows, "ends over exact": percentiles, "checks": len(ratios)}
    print(record.write("check", results))
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, "<!-- check:begin -->", "<!-- check:end -->", page(results))


if __name__ == "__main__":
    main()
