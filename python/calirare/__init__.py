"""Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs."""

from calirare import startup  # noqa: F401  # isort: skip  (first: what follows takes seconds)

from importlib import import_module
from types import ModuleType

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

# Imported when first asked for: they take seconds, or need what not every user has.
_LATER = ("algorithm2", "baselines", "models", "multilabel", "paper")


def __getattr__(name: str) -> ModuleType:
    if name in _LATER:
        return import_module(f"calirare.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
