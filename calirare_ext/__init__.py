"""CaliRare's compiled operators: propagation, per-node gradients, inverse-Hessian products, jackknife intervals."""

from calirare_ext.csr import Csr

__version__ = "0.1.0"

__all__ = ["Csr", "__version__"]
