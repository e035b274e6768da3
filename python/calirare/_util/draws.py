"""How many draws are affordable: as many as go through so many samples in all, and no fewer than give an interval."""

from __future__ import annotations

WORK, RESAMPLES, DRAWS, LEAST = 20_000_000, 1000, 200, 50


def resamples_for(samples: int) -> int:
    """Returns how many resamples of an interval take about a second."""
    return max(LEAST, min(RESAMPLES, WORK // max(samples, 1)))


def draws_for(samples: int) -> int:
    """Returns how many draws of a noise floor take about a second; of k classes a row counts as k samples."""
    return max(LEAST, min(DRAWS, WORK // max(samples, 1)))
