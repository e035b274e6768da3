"""What a soak takes for a leak: not steps, warm-up and fluctuation, but what goes on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.campaigns import growth, soak
from tests.campaigns.growth import HELD, KIB, Reading, judge, leaks, slope_per_job
from tests.campaigns.soak import MODELS

JOBS = 65  # readings of a soak of 75 jobs
KINDS = [MODELS[i % len(MODELS)] for i in range(JOBS)]
LIMIT = HELD["in_use"].limit


def noisy(rng):
    """Returns KiB in use of a soak without a leak: warm-up, a step, fluctuation that lasts, and little growth.

    Steps and fluctuation are larger than any that were measured: 150 and 10 KiB.
    """
    jobs = np.arange(JOBS)
    level = rng.uniform(0, 5_000, len(MODELS))[jobs % len(MODELS)]
    warm_up = rng.uniform(0, 3_000) * (1 - np.exp(-jobs / rng.uniform(2, 12)))
    step = rng.uniform(-8_000, 8_000) * (jobs >= rng.integers(JOBS))
    shocks, lasting = rng.normal(0, rng.uniform(1, 100), JOBS), np.zeros(JOBS)
    for i in range(1, JOBS):
        lasting[i] = 0.5 * lasting[i - 1] + shocks[i]
    return 160_000 + level + warm_up + step + lasting + rng.uniform(0, 8) * jobs


def test_noise_is_no_leak_and_a_planted_leak_is_found():
    rng, growing = np.random.default_rng(0), 100 * np.arange(JOBS)
    soaks = [noisy(rng) for _ in range(300)]
    assert sum(leaks(KINDS, soak, LIMIT) for soak in soaks) < 4
    assert all(leaks(KINDS, soak + growing, LIMIT) for soak in soaks[:60])


def test_slope_and_interval_of_a_line_by_hand():
    line = 3.0 * np.arange(JOBS)
    assert slope_per_job(KINDS, line) == pytest.approx((3, 3, 3))
    with_outlier = line.copy()
    with_outlier[20] = 1e9
    lower, slope, upper = slope_per_job(KINDS, with_outlier)
    assert lower == slope == upper == 3
    # Six jobs of one kind: slopes 1 to 9. S has the variance 9 - 8 / 3, so the ends are the first and the last.
    squares = np.arange(6.0) ** 2
    assert slope_per_job(["gcn"] * 6, squares) == (1, 5, 9)
    assert slope_per_job(["gcn"] * 4, squares[:4]) == (-np.inf, 3, np.inf)


def readings(**changes):
    return [
        Reading(kind, *(changes[name](i) if name in changes else 7 for name in HELD)) for i, kind in enumerate(KINDS)
    ]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"threads": lambda i: 1 + (i % 9 == 0)}, None),  # momentary ones
        ({"files": lambda i: 6 + (i >= 30)}, None),  # opened once
        ({"files": lambda i: 6 + (i + 4) // 5}, "the number of open files grows by 0.2 files per job"),
        ({"threads": lambda i: i}, "the number of threads grows by 1 threads per job"),
        ({"in_use": lambda i: 40 * KIB * i}, "memory in use grows by 40 KiB per job"),
        ({"in_use": lambda i: 10 * KIB * i}, None),  # less than the limit
        ({"resident": lambda i: 40 * KIB * i}, None),
        ({"resident": lambda i: 140 * KIB * i}, "memory of the process grows by 140 KiB per job"),
    ],
)
def test_what_grows_is_reported_with_its_slope(changes, found):
    judged = judge(readings(**changes))
    assert len(judged["findings"]) == (found is not None)
    assert found is None or judged["findings"][0].startswith(found)


@pytest.mark.slow
def test_readings_show_what_jobs_keep(monkeypatch):
    monkeypatch.setattr(soak, "MODELS", ("gcn", "hops"))
    monkeypatch.setattr(soak, "WARM", 2)
    monkeypatch.setattr(growth, "LEAST", 10)
    kept, files = [], []

    def job(number, model):
        kept.append(b"x" * (100 * KIB))
        files.append(open("/dev/null"))  # noqa: SIM115

    judged = judge(soak.watched(job, 0))
    for each in files:
        each.close()
    assert judged["in_use"]["growth_per_job"][1] == pytest.approx(100, rel=0.1)
    found = [finding.split(" grows")[0] for finding in judged["findings"]]
    assert found == ["memory in use", "memory of the process", "the number of open files"]
    assert "the number of open files grows by 1 files per job" in judged["findings"][2]
