"""Networks beside the graph convolution: cost-sensitive GAT, GIN and GraphSAGE on PyTorch Geometric's layers."""

from calirare.models.pyg import PygSettings, fit_pyg, network

__all__ = ["PygSettings", "fit_pyg", "network"]
