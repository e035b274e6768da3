"""Networks and how each is trained (a `Detector`): the graph convolution, and GAT, GIN, GraphSAGE on PyG's layers."""

from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network, step_work, unflatten
from calirare.models.gcn_training import GcnTraining, fit
from calirare.models.module_fit import ModuleFit, fit_of, pyg_inputs
from calirare.models.pyg import GatTraining, GinTraining, PygTraining, SageTraining
from calirare.models.registry import DETECTORS, FITS

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
    "fit",
    "fit_of",
    "of_network",
    "pyg_inputs",
    "step_work",
    "unflatten",
]
