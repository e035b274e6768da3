"""Networks and how each is trained (a `Detector`): graph convolution, GAT, GIN, GraphSAGE; and trees on columns."""

from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network, step_work, unflatten
from calirare.models.gcn_training import GcnTraining, fit
from calirare.models.module_fit import ModuleFit, fit_of, pyg_inputs
from calirare.models.pyg import GatTraining, GinTraining, PygTraining, SageTraining
from calirare.models.registry import DETECTORS, FITS
from calirare.models.trees import TreesModel, TreesTraining

__all__ = [
    "DETECTORS",
    "FITS",
    "GCN",
    "GatTraining",
    "GcnFit",
    "GcnTraining",
    "GinTraining",
    "ModuleFit",
    "PygTraining",
    "SageTraining",
    "TreesModel",
    "TreesTraining",
    "fit",
    "fit_of",
    "of_network",
    "pyg_inputs",
    "step_work",
    "unflatten",
]
