"""Every detector by its name: the one place where a new one is entered."""

from __future__ import annotations

from collections.abc import Callable

from calirare.models.gcn_training import GcnTraining
from calirare.models.pyg import GatTraining, GinTraining, SageTraining
from calirare.training import Detector

DETECTORS: dict[str, Callable[..., Detector]] = {
    "gcn": GcnTraining,
    "gat": GatTraining,
    "gin": GinTraining,
    "sage": SageTraining,
}
