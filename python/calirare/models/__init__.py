"""Networks beside the graph convolution: cost-sensitive GAT and GIN on PyTorch Geometric's layers."""

from calirare.models.pyg import PygSettings, fit_pyg, network, pyg_inputs

__all__ = ["PygSettings", "fit_pyg", "network", "pyg_inputs"]
