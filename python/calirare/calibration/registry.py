"""Every calibrator by name, and files that hold a fitted one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from calirare._util.errors import InputError, check_one_of
from calirare.calibration.affine import JackknifeCalibrator, platt_scaling, temperature_scaling
from calirare.calibration.base import Calibrator, Target
from calirare.calibration.positive_only import PositiveOnlyCalibrator
from calirare.calibration.prior_platt import PriorPlattCalibrator

# A calibrator is one file and one line here.
CALIBRATORS: dict[str, Callable[[Target], Calibrator]] = {
    "temperature": temperature_scaling,
    "platt": platt_scaling,
    "prior-platt": lambda target: PriorPlattCalibrator(target=target),
    "jackknife": lambda target: JackknifeCalibrator(target=target),
}

# The classes by name, as files name them.
KINDS: dict[str, type[Calibrator]] = {
    kind.__name__: kind for kind in (type(make("population")) for make in CALIBRATORS.values())
} | {PositiveOnlyCalibrator.__name__: PositiveOnlyCalibrator}


def make_calibrator(name: str, target: Target = "population") -> Calibrator:
    """Returns the unfitted calibrator of that name in `CALIBRATORS`; another name is an InputError.

    `target` is the population the probabilities shall be right for, see `target_weights`.
    """
    check_one_of("make_calibrator", "name", name, CALIBRATORS)
    return CALIBRATORS[name](target)


def save_calibrator(calibrator: Calibrator, path: str | Path) -> Path:
    """Writes a fitted calibrator as JSON, in full precision, into a folder that exists; returns the path.

    TypeError where `load_calibrator` does not know its kind, or JSON a setting of it; RuntimeError where it is not
    fitted.
    """
    kind = type(calibrator).__name__
    if KINDS.get(kind) is not type(calibrator):
        raise TypeError(f"save_calibrator: calibrator must be one of {', '.join(KINDS)}, got {kind}")
    if calibrator.n_classes is None:
        raise RuntimeError(f"save_calibrator: calibrator must be fitted, call fit of the {kind} first")
    path = Path(path)
    text = json.dumps({"kind": kind, "state": calibrator.state()}, indent=1, default=_plain)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _plain(setting: object) -> object:
    """Returns the number of numpy's that a setting holds as Python's own, which is what JSON knows."""
    if not isinstance(setting, np.generic):
        raise TypeError(
            f"save_calibrator: a setting must be a number, a string or None, got {type(setting).__name__}: "
            "make the calibrator with one of these"
        )
    return setting.item()


def load_calibrator(path: str | Path) -> Calibrator:
    """Returns the calibrator that `save_calibrator` wrote.

    InputError where the file cannot be read, or does not hold a fitted calibrator.
    """
    try:
        # json reads NaN and Infinity, and a map may be of no use: both are found here, not at the first prediction.
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        json.dumps(data, allow_nan=False)
        calibrator = KINDS[data["kind"]].from_state(data["state"])
        calibrator.transform(torch.zeros(1, calibrator.n_classes or 2))
    except OSError as error:
        raise InputError(
            f"load_calibrator: {path} must be a file that save_calibrator wrote, but cannot be read: {error.strerror}"
        ) from None
    except (ValueError, LookupError, TypeError, RuntimeError, ArithmeticError) as error:
        raise InputError(
            f"load_calibrator: {path} must be a file that save_calibrator wrote, got something else ({error!r})"
        ) from None
    return calibrator
