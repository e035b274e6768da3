"""The canonical error of one table of predictions by several copula families."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare_lab.multilabel.student import StudentCopula
from calirare_lab.multilabel.vine import VineCopula
from calirare_multilabel import CopulaOptions, canonical_calibration_error, noise_floor
from calirare_multilabel.families import Family
from calirare_multilabel.margins import CdfRule

RULES: tuple[CdfRule, ...] = ("printed", "midrank")


def family_readings(
    y_true: np.ndarray, p: np.ndarray, *, norm: float = 1, vine: bool = False, floors: int = 0, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Returns what each family reads, with ties taken as printed and by their mean ranks.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: probabilities f, [n, K], in [0, 1].
        norm: order of the norm.
        vine: regular vines too; they need pyvinecopulib.
        floors: draws for the noise floor of each reading, as "<family>_floor"; 0: none.
        seed: of those draws.

    Returns:
        Rule of the CDF -> family -> error per label.

    Raises:
        ValueError: shapes or ranges are wrong.
        ImportError: pyvinecopulib is not installed.
    """
    families: dict[str, Family | None] = {"gaussian": None, "student": StudentCopula()}
    families |= {"vine": VineCopula()} if vine else {}
    found: dict[str, dict[str, float]] = {rule: {} for rule in RULES}
    for rule in RULES:
        for name, family in families.items():
            options = CopulaOptions(family, cdf=rule, label_model="density")

            def reading(y: Any, f: Any, options: CopulaOptions = options) -> float:
                return canonical_calibration_error(y, f, norm=norm, options=options).mean

            found[rule][name] = reading(y_true, p)
            if floors:
                found[rule][f"{name}_floor"], _ = noise_floor(reading, p, repeats=floors, seed=seed)
    return found
