"""The detectors that a run may name: the one place where a new one is entered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from calirare.models.fitted import Detector
from calirare.models.gcn_training import GcnTraining
from calirare.models.mlp import MlpTraining
from calirare.models.trees import TreesTraining


@dataclass(frozen=True)
class Entry:
    """A detector that a run may name.

    Attributes:
        make: how it is trained, by seed and hops.
        hops: how far it reads where nothing is said.
        convolves: whether it propagates over the graph, and a large graph is evaluated in blocks.
        by_order: whether it reads the order of numbers alone, so that scaling changes nothing.
        network: of one network how it is trained, by all settings of `GcnTraining`; None of others.
        hidden: width of a network's hidden layer where none is given.
    """

    make: Callable[..., Detector]
    hops: int = 2
    convolves: bool = False
    by_order: bool = False
    network: type[GcnTraining] | None = None
    hidden: int = 16


DETECTORS: dict[str, Entry] = {
    "gcn": Entry(GcnTraining, hops=1, network=GcnTraining, convolves=True),  # hops and width of Kipf & Welling 2017
    "hops": Entry(MlpTraining, network=MlpTraining, hidden=64),
    "trees": Entry(partial(TreesTraining, kind="boosting"), by_order=True),
    "forest": Entry(partial(TreesTraining, kind="extra"), by_order=True),
}
AVERAGE, GIVEN = "auto", "given"  # of several detectors; and logits that were trained elsewhere


def model_names() -> tuple[str, ...]:
    """Returns every name that the setting model takes."""
    return (AVERAGE, *DETECTORS, GIVEN)


def trained_here() -> str:
    """Returns the names of the average and of all detectors, as a sentence has them: "auto, gcn or hops"."""
    *most, last = (AVERAGE, *DETECTORS)
    return f"{', '.join(most)} or {last}"


def networks() -> tuple[str, ...]:
    """Returns the names of the detectors that are one network."""
    return tuple(name for name, entry in DETECTORS.items() if entry.network is not None)
