"""Products of a first layer with what it reads: inputs W and inputs^T D, by whatever the inputs are stored as."""

from __future__ import annotations

from torch import Tensor

from calirare_ext.csr import Csr
from calirare_ext.inputs import Factored, Inputs
from calirare_ext.propagate import propagate


def times(inputs: Inputs, weight: Tensor) -> Tensor:
    """Returns inputs W [r, h] for W [d, h], differentiable in W."""
    if isinstance(inputs, Factored):
        return propagate(inputs.a, times(inputs.x, weight))
    return propagate(inputs, weight) if isinstance(inputs, Csr) else inputs @ weight


def turned_times(inputs: Inputs, delta: Tensor) -> Tensor:
    """Returns inputs^T D [d, h] for D [r, h]."""
    if isinstance(inputs, Factored):
        return turned_times(inputs.x, propagate(inputs.a.transpose(), delta))
    if isinstance(inputs, Csr):
        return propagate(inputs.transpose(), delta)
    return (delta.T @ inputs).T  # of few columns D several times faster than inputs^T D
