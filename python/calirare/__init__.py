"""Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs."""

from calirare._util import startup  # noqa: F401  # isort: skip  (first: what follows takes seconds)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calirare._util.errors import InputError as InputError
    from calirare._util.errors import NotConvergedError as NotConvergedError
    from calirare.datasets import load_dataset as load_dataset
    from calirare.graph.graph import Graph as Graph
    from calirare.graph.splits import Split as Split
    from calirare.intervals.algorithm1 import jackknife as jackknife
    from calirare.intervals.result import JackknifeResult as JackknifeResult
    from calirare.models.gcn import GCN as GCN
    from calirare.models.module_fit import ModuleFit as ModuleFit
    from calirare.pipeline import train as train
    from calirare.run.outcome import Outcome as Outcome
    from calirare.run.settings import Settings as Settings
    from calirare_ext import __version__ as __version__

# Where each public name is made: imported when it is first asked for.
_HOME = {
    "GCN": "calirare.models.gcn",
    "Graph": "calirare.graph.graph",
    "InputError": "calirare._util.errors",
    "JackknifeResult": "calirare.intervals.result",
    "ModuleFit": "calirare.models.module_fit",
    "NotConvergedError": "calirare._util.errors",
    "Outcome": "calirare.run.outcome",
    "Settings": "calirare.run.settings",
    "Split": "calirare.graph.splits",
    "__version__": "calirare_ext",
    "jackknife": "calirare.intervals.algorithm1",
    "load_dataset": "calirare.datasets",
    "train": "calirare.pipeline",
}
_PACKAGES = (
    "calibration",
    "datasets",
    "eice",
    "graph",
    "intervals",
    "leave_one_out",
    "metrics",
    "models",
    "multilabel",
    "plots",
    "training",
)

__all__ = [*_HOME, *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"calirare.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
