"""What a run of two classes and one of many have in common: calibrated probabilities, and a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.output import fresh_folder
from calirare.calibration import TARGETS, Calibrator, Target


class CalibratedRun(ABC):
    """A trained and calibrated detector."""

    logits: Tensor
    calibrators: dict[Target, Calibrator]

    def probabilities(self, target: Target | None = None) -> Tensor:
        """Returns every node's probabilities, float64 [n, k]: calibrated for `target`, the detector's own for None.

        Without calibration they are the detector's own for every target.

        Raises:
            ValueError: the target is unknown.
        """
        if target is not None and target not in TARGETS:
            known = ", ".join(map(str, TARGETS))
            raise ValueError(f"probabilities: target must be one of {known} or None, got {target!r}")
        return self.mapped_logits(self.logits, target)

    def mapped_logits(self, logits: Tensor, target: Target | None) -> Tensor:
        """Returns the probabilities of logits [m, k]."""
        return self.calibrators[target].transform(logits) if target in self.calibrators else torch.softmax(logits, 1)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the run's folder, as `calirare train` does.

        Args:
            path: the folder; it appears when all of it is written.
            overwrite: replace a run that is there.

        Raises:
            InputError: the folder exists and must not be replaced, or cannot be written.
        """
        with fresh_folder(Path(path), overwrite=overwrite) as folder:
            self.write(folder)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes what a run's folder holds into an empty folder."""
