"""Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs."""

from calirare._util import startup  # isort: skip  (first: what follows takes seconds)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calirare import calibration as calibration
    from calirare import curvature as curvature
    from calirare import datasets as datasets
    from calirare import drift as drift
    from calirare import engines as engines
    from calirare import features as features
    from calirare import graph as graph
    from calirare import leave_one_out as leave_one_out
    from calirare import metrics as metrics
    from calirare import models as models
    from calirare import plots as plots
    from calirare import run as run
    from calirare import transactions as transactions
    from calirare._util.errors import InputError as InputError
    from calirare._util.errors import NotConvergedError as NotConvergedError
    from calirare.datasets import load_dataset as load_dataset
    from calirare.graph import Graph as Graph
    from calirare.graph import Split as Split
    from calirare.leave_one_out import ALO as ALO
    from calirare.leave_one_out import Grouped as Grouped
    from calirare.leave_one_out import JackknifeResult as JackknifeResult
    from calirare.leave_one_out import Tangent as Tangent
    from calirare.leave_one_out import influence as influence
    from calirare.leave_one_out import jackknife as jackknife
    from calirare.leave_one_out import quality as quality
    from calirare.models import GCN as GCN
    from calirare.models import fit as fit
    from calirare.models import fit_of as fit_of
    from calirare.run import NodeScorer as Scorer
    from calirare.run import Outcome as Outcome
    from calirare.run import Settings as Settings
    from calirare.run import load as load
    from calirare.run import train as train
    from calirare.transactions import Transactions as Transactions
    from calirare_ext import __version__ as __version__

# Where each public name is made: imported when it is first asked for, so that a command line starts at once.
_HOMES = {
    "_util.errors": ("InputError", "NotConvergedError"),
    "datasets": ("load_dataset",),
    "graph": ("Graph", "Split"),
    "leave_one_out": (
        "ALO",
        "Grouped",
        "JackknifeResult",
        "Tangent",
        "influence",
        "jackknife",
        "quality",
    ),
    "models": ("GCN", "fit", "fit_of"),
    "run": ("Outcome", "Scorer", "Settings", "load", "train"),
    "transactions": ("Transactions",),
}
_CALLED = {"Scorer": "NodeScorer"}  # in its own room, where there is a scorer of whole graphs
_HOME = {name: f"calirare.{home}" for home, names in _HOMES.items() for name in names} | {"__version__": "calirare_ext"}
_PACKAGES = (
    "calibration",
    "curvature",
    "datasets",
    "drift",
    "explain",
    "features",
    "graph",
    "leave_one_out",
    "metrics",
    "models",
    "plots",
    "run",
    "transactions",
)

_OPTIONAL = ("engines",)  # packages that need more than the library does, which a star does not import

__all__ = [*_HOME, *_PACKAGES, "Scorer"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), _CALLED.get(name, name))
    elif name in (*_PACKAGES, *_OPTIONAL):
        value = import_module(f"calirare.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
