"""Every trained detector that a file can hold, by its kind: the one place where a new one is entered."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from calirare.models.folded import FoldedNetwork
from calirare.models.gcn_fit import GcnFit
from calirare.models.given import GivenFit
from calirare.models.hops import HopsFit
from calirare.models.mixture import Mixture
from calirare.models.neighbours import NeighbourPool
from calirare.models.tree_fit import TreesFit
from calirare.training import Fitted


class Stored(Protocol):
    """A kind of trained detector that a file can hold."""

    def from_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Fitted:
        """Returns what `Fitted.state` told."""
        ...


def on_cpu(fitted: Fitted) -> Fitted:
    """Returns a detector on the CPU, without what it can work out again; of a kind that no file holds, itself."""
    if fitted.nodes.device.type == "cpu" or type(fitted).__name__ not in FITS:
        return fitted
    tensors, facts = fitted.state()
    return FITS[type(fitted).__name__].from_state({name: tensor.cpu() for name, tensor in tensors.items()}, facts)


FITS: dict[str, Stored] = {
    "GcnFit": GcnFit,
    "HopsFit": HopsFit,
    "TreesFit": TreesFit,
    "GivenFit": GivenFit,
    "FoldedNetwork": FoldedNetwork,
    "Mixture": Mixture,
    "NeighbourPool": NeighbourPool,
}
