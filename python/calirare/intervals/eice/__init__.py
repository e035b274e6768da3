"""Algorithm 2 of the paper: training with the individual calibration error."""

from calirare.intervals.eice.algorithm2 import EiceRegulariser, EiceSettings, Epoch, GradientSteps, train_calirare
from calirare.intervals.eice.together import Together, change_together

__all__ = [
    "EiceRegulariser",
    "EiceSettings",
    "Epoch",
    "GradientSteps",
    "Together",
    "change_together",
    "train_calirare",
]
