"""The logits' difference of each detector, class 1 less class 0: one choice by kind, for both formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.calibration import Calibrator
from calirare.models import GCN, FoldedNetwork, GcnFit, HopColumns, HopsFit, Mixture, TreesFit
from calirare.training import Fitted

DIRECTED = (
    "export: the run's edges have directions or types, which no export holds yet: train without --directed and "
    "--relation, or score with `calirare predict`"
)

Layer = TypeVar("Layer")  # columns of every node, as one layer hands them to the next
Answer = TypeVar("Answer")  # the difference of the logits


class DetectorWriter(ABC, Generic[Layer, Answer]):
    """Writes detectors; columns that several read are made once.

    Args:
        features: the mapped features.
    """

    refused: ClassVar[str]  # what is said of a detector that cannot be written

    def __init__(self, features: Layer) -> None:
        self.features = features
        self._made: list[tuple[HopColumns, Layer]] = []

    def of(self, fit: Fitted) -> Answer:
        """Returns the difference of the logits.

        Raises:
            InputError: the detector is none that can be written.
        """
        match fit:
            case FoldedNetwork():
                return self.of(fit.network)
            case HopsFit():
                return self.network(fit.model, self.columns(fit.columns))
            case GcnFit():
                return self.network(fit.model, self.features)
            case TreesFit():
                return self.trees(fit)
            case Mixture():
                return self.mixture([(m.weight, m.spoken, self.of(m.fitted)) for m in fit.members])
        raise InputError(self.refused)

    def columns(self, columns: HopColumns) -> Layer:
        """Returns the hop columns as a detector reads them.

        Raises:
            InputError: they are more than hops of plain edges make.
        """
        for known, made in self._made:
            if known.same_as(columns):
                return made
        made = self.hop_columns(columns)
        self._made.append((columns, made))
        return made

    def network(self, model: GCN, h: Layer) -> Answer:
        """Returns what a graph convolution says, or a perceptron where nothing is propagated."""
        layers = [(weight.detach().double().numpy(), bias.detach().double().numpy()) for weight, bias in model.layers()]
        weight, bias = layers[-1]
        layers[-1] = ((weight[:, 1] - weight[:, 0])[:, None], bias[1:] - bias[:1])
        for i, (weight, bias) in enumerate(layers):
            hops = (model.hops if i == 0 else 1) if model.hops else 0
            h = self.layer(h if i == 0 else self.active(h), weight, bias, hops)
        return self.answer(h)

    @abstractmethod
    def hop_columns(self, columns: HopColumns) -> Layer:
        """Returns [x, M x, .., M^K x, log(1 + degree)], scaled."""

    @abstractmethod
    def layer(self, h: Layer, weight: NumpyArray, bias: NumpyArray, hops: int) -> Layer:
        """Returns A_hat^hops h W + b."""

    @abstractmethod
    def active(self, h: Layer) -> Layer:
        """Returns max(h, 0); what is missing stays so."""

    @abstractmethod
    def answer(self, h: Layer) -> Answer:
        """Returns the only column as the difference of the logits."""

    @abstractmethod
    def trees(self, fit: TreesFit) -> Answer:
        """Returns what boosted or randomised trees say."""

    @abstractmethod
    def mixture(self, members: Sequence[tuple[float, Calibrator | None, Answer]]) -> Answer:
        """Returns what detectors averaged by their weights say, each through a map of its own."""
