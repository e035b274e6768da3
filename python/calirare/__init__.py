"""Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs."""

from calirare import startup  # noqa: F401  # isort: skip  (first: what follows takes seconds)

from calirare import calibration, datasets, metrics, plots
from calirare.config import Settings
from calirare.datasets import load_dataset
from calirare.errors import InputError, NotConvergedError
from calirare.graph import Graph
from calirare.jackknife_result import JackknifeResult
from calirare.module_fit import ModuleFit
from calirare.nn import GCN
from calirare.pipeline import Outcome, train
from calirare.splits import Split
from calirare_ext import __version__

# Last: the function takes the place of the module of the same name.
from calirare.jackknife import jackknife  # isort: skip

__all__ = [
    "GCN",
    "Graph",
    "InputError",
    "JackknifeResult",
    "ModuleFit",
    "NotConvergedError",
    "Outcome",
    "Settings",
    "Split",
    "__version__",
    "calibration",
    "datasets",
    "jackknife",
    "load_dataset",
    "metrics",
    "plots",
    "train",
]
