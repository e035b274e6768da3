"""Everything a run can be set to, with the paper's values as defaults, read from and written to YAML."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from calirare._util.errors import InputError
from calirare.calibration import CalibrateOn
from calirare.graph import Order
from calirare.leave_one_out import ALO, LeaveOneOutMethod, UncertaintyName
from calirare.leave_one_out.eice import EiceSettings
from calirare.models import DETECTORS, GcnTraining, model_names, networks, trained_here
from calirare.run.data_settings import Data
from calirare.run.deciding import Deciding, check_decision, with_rule
from calirare.run.schema import changed, check_words, to_mapping

Method = Literal["jackknife", "calirare", "ts", "uncalibrated"]
IntervalNodes = Literal["auto", "all", "alerts"]
Preset = Literal["default", "paper"]
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "model": "gcn",
        "hops": 1,
        "calibrate_for": "balanced",
        "map": "platt",
        "scale": "stored",
        "order": "propagated",
        "sort_by": "uncertainty",
    },
}
MAX_SEED = 2**63
# From and to; beyond these a training does not end, does not fit or leaves float32.
RANGES: dict[str, tuple[float, float]] = {
    "epochs": (1, 10**7),
    "hidden": (1, 10**5),
    "n_layers": (1, 50),
    "hops": (1, 100),
    "learning_rate": (1e-30, 1e6),
    "weight_decay": (1e-30, 1e6),
}
CHOSEN = ("epochs",)  # which labels may choose


@dataclass(frozen=True)
class Training:
    """How the detector is trained.

    Attributes:
        model: "auto" (trees, forest, linear with and without edges, hops, gcn and label propagation, weighted by
            out-of-fold log loss), or one: "gcn" (the paper's graph convolution), "hops" (a perceptron on a node's own
            features and its neighbours' means), "trees" (gradient boosting on the same columns), "forest" (extra
            trees); "given": logits of your own network, only in Python (`calirare.train(graph, given=...)`).
        epochs: gradient steps (200 in Kipf & Welling 2017), or "auto": chosen by leave-one-out loss.
        hidden: width of the hidden layer, or "auto": 16 of a gcn (Kipf & Welling 2017), 64 of hops.
        n_layers: layers (2, paper section 4.2).
        dropout: of the hidden units, in [0, 1) (0.5, Kipf & Welling 2017).
        learning_rate: of Adam (0.01, Kipf & Welling 2017).
        weight_decay: penalty mu / 2 |theta|^2 (5e-4, Kipf & Welling 2017).
        hops: how often features are propagated before the first weights; none: 1 of a gcn (Kipf & Welling 2017), 2 of
            the columns of hops, trees and forest.
        order: of the products with sparse features: "auto", the cheapest by count; "propagated", the features first, to
            the last bit the numbers published with the paper's tables.
        chosen: "epochs" where a run has chosen them by its labels, as its config.yaml says: these are taken, but
            `calirare update` chooses again.
    """

    model: str = field(default="auto", metadata={"words": model_names})
    epochs: int | Literal["auto"] = "auto"
    hidden: int | Literal["auto"] = "auto"
    n_layers: int = 2
    dropout: float = 0.5
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    hops: int | None = None
    order: Order = "auto"
    chosen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            InputError: a setting is out of range.
        """
        check_words(self)
        if not set(self.chosen) <= set(CHOSEN):
            raise InputError(
                f"setting chosen must be among {', '.join(CHOSEN)}, got {', '.join(map(str, self.chosen))}"
            )
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value not in ("auto", None) and not low <= value <= high:
                raise InputError(f"setting {name} must be from {low:g} to {high:g}, got {value}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"setting dropout must be in [0, 1), got {self.dropout}")

    def resolved(self, found: dict[str, Any]) -> Self:
        """Returns the settings with what was found in the place of what was left open, and which of it labels chose."""
        chosen = tuple(name for name in CHOSEN if name in found and getattr(self, name) == "auto")
        return dataclasses.replace(self, **found, chosen=chosen or self.chosen)

    @property
    def requested(self) -> dict[str, Any]:
        """The requested values of what labels chose, by name."""
        return dict.fromkeys(self.chosen, "auto") | ({"chosen": ()} if self.chosen else {})

    @property
    def reach(self) -> int:
        """How many hops a detector reads: as set, or as the kind of detector has it."""
        if self.hops is not None:
            return self.hops
        return DETECTORS[self.model].hops if self.model in DETECTORS else 1

    def detector(self, seed: int, epochs: int = 1) -> GcnTraining:
        """Returns how one network is trained.

        Args:
            seed: of weights and dropout.
            epochs: number of epochs.
        """
        entry = DETECTORS[self.model if self.model in networks() else "gcn"]  # the latter for Algorithm 2
        hidden = entry.hidden if self.hidden == "auto" else self.hidden
        fixed = {
            name: getattr(self, name) for name in ("n_layers", "dropout", "learning_rate", "weight_decay", "order")
        }
        assert entry.network is not None
        return entry.network(epochs=epochs, hops=self.reach, hidden=hidden, seed=seed, **fixed)


@dataclass(frozen=True)
class Calibration:
    """How probabilities are calibrated, and the calibration checked.

    Attributes:
        calibrate_for: what probabilities are calibrated for: "population" (the true base rate) or "balanced" (equal
            class sizes, as cost-sensitive training and Macro-ACE assume).
        folds: number of folds of the cross-validation that checks the leave-one-out loss; 0: no check.
        map: calibrator: "prior" (Platt scaling with a prior that corrects for class weights, also for few rare labels)
            or "platt" (without a prior; temperature scaling with fewer than 25 labels of the rarest class).
        calibrate_on: labels that are a random sample of the nodes: "val", "all", "random" (those not sampled per
            class), or "auto", inferred from the class counts of training and validation labels.
        prevalence: base rate of the rare class among all nodes, if known; none: estimated from the labels.
    """

    calibrate_for: Literal["balanced", "population"] = "population"
    folds: int = 5
    map: Literal["prior", "platt"] = "prior"
    calibrate_on: CalibrateOn = "auto"
    prevalence: float | None = None

    def __post_init__(self) -> None:
        """Checks words and ranges.

        Raises:
            InputError: a setting is unknown or out of range.
        """
        check_words(self)
        if self.prevalence is not None and not 0 < self.prevalence < 1:
            raise InputError(f"setting prevalence must be in (0, 1), got {self.prevalence}")
        if self.prevalence is not None and self.map != "prior":
            raise InputError("setting prevalence needs map prior, got map platt: leave out one of them")
        if self.folds != 0 and self.folds < 2:
            raise InputError(f"setting folds must be 0 (no check) or at least 2, got {self.folds}")


@dataclass(frozen=True)
class Intervals:
    """The jackknife intervals (Algorithm 1).

    Attributes:
        coverage: nominal coverage of the intervals, in (0, 1) (0.9, paper section 4.2).
        uncertainty: uncer(v) of the paper's Eq. 8: "map" or "midpoint", see `calirare.jackknife`.
        interval_nodes: which nodes get an interval: "all"; "alerts" (the likeliest alerts, the nodes review.csv begins
            with, and the labelled and test nodes); or "auto", alerts where a model of columns takes a graph in blocks,
            and of 50,000 nodes or more where `predict` scores them or each interval takes the model of every fold.
    """

    coverage: float = 0.9
    uncertainty: UncertaintyName = "map"
    interval_nodes: IntervalNodes = "auto"

    def __post_init__(self) -> None:
        """Checks words and ranges.

        Raises:
            InputError: a setting is unknown or out of range.
        """
        check_words(self)
        if not 0 < self.coverage < 1:
            raise InputError(f"setting coverage must be in (0, 1), got {self.coverage}")
        if self.interval_nodes == "alerts" and self.uncertainty == "midpoint":
            raise InputError("setting uncertainty midpoint needs the interval of every node: take interval_nodes all")


@dataclass(frozen=True)
class Settings:
    """How to train, calibrate and judge one detector.

    Attributes:
        preset: what other settings start from: "default", or "paper" (the paper's graph convolution on unscaled
            features, calibrated for equal class sizes).
        method: "jackknife" trains on all labels and calibrates on leave-one-out logits; "calirare" is the paper's
            Algorithm 2; "ts" trains on the training labels and fits a temperature on the validation labels;
            "uncalibrated" stops after training on the training labels.
        seed: of all random numbers.
        device: "cpu", "cuda" or "cuda:N"; "auto" is the CPU; a GPU is faster for very many intervals.
        training: the network and its training.
        loo: how labels are left out, such as `ALO(n_models=1000)` or `Grouped()`. Its damping None: the weight decay,
            raised until leave-one-out loss agrees with cross-validation.
        calibration: the maps and their check.
        intervals: the jackknife intervals.
        decision: which nodes are alerts.
        eice: of method "calirare": the regulariser.
        data: the graph, where none is given.
    """

    preset: Preset = "default"
    method: Method = "jackknife"
    seed: int = 0
    device: str = "auto"
    training: Training = field(default_factory=Training)
    loo: LeaveOneOutMethod = field(default_factory=ALO)
    calibration: Calibration = field(default_factory=Calibration)
    intervals: Intervals = field(default_factory=Intervals)
    decision: Deciding = field(default_factory=Deciding)
    eice: EiceSettings = field(default_factory=EiceSettings)
    data: Data = field(default_factory=Data)

    def __post_init__(self) -> None:
        """Checks every setting.

        Raises:
            InputError: a setting is unknown or out of range.
        """
        check_words(self)
        if self.loo.damping == "auto":  # as with None: raised until leave-one-out agrees with cross-validation
            object.__setattr__(self, "loo", dataclasses.replace(self.loo, damping=None))
        if not 0 <= self.seed < MAX_SEED:
            raise InputError(f"setting seed must be from 0 to 2^63 - 1, got {self.seed}")
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise InputError(f"setting device must be auto, cpu, cuda or cuda:N, got {self.device!r}")
        if self.method == "calirare" and self.training.model not in ("auto", "gcn"):
            raise InputError(f"setting model must be gcn with method calirare, got {self.training.model!r}")
        check_decision(self.decision, self.method, self.calibration.map)
        if self.decision.sort_by == "value-of-label" and self.training.model == "given":
            raise InputError(
                f"setting by value-of-label needs model {trained_here()}, got 'given': of others nobody can tell what "
                "a label would do without training"
            )
        if self.positive_only and (self.method != "jackknife" or self.calibration.map != "prior"):
            got = f"method {self.method}, map {self.calibration.map}"
            raise InputError(f"setting positive_only needs method jackknife and map prior, got {got}")

    @property
    def many(self) -> bool:
        """Whether every class is taken as it is, and none is the rare one."""
        return self.data.task == "classes"

    def check_rare(self, what: str, instead: str = "leave it out, or train with task rare") -> None:
        """Raises an InputError where what is asked for is for a rare class, and every class was taken as it is."""
        if self.many:
            raise InputError(f"{what} is for a rare class, and the run was trained with task classes: {instead}")

    @property
    def positive_only(self) -> bool:
        """Whether known rare nodes are the only labels."""
        return self.data.positive_only

    @property
    def model(self) -> str:
        """The kind of detector; of method "calirare", which regularises a graph convolution, always that."""
        return "gcn" if self.method == "calirare" else self.training.model

    @property
    def leave_one_out(self) -> LeaveOneOutMethod:
        """How labels are left out, with the run's seed where the method has none of its own."""
        return self.loo.seeded(self.seed)

    @property
    def plain_alo(self) -> bool:
        """Whether labels are left out by `ALO` as it is, whose logits are known in closed form at any damping."""
        return dataclasses.replace(self.loo, damping=None) == ALO()

    @classmethod
    def of(cls, **changes: Any) -> Self:
        """Returns the defaults with some changed, as `Settings.of(epochs=200, target="population")`; see `changed`.

        Raises:
            InputError: a name is unknown, or a value has a wrong type or range.
        """
        return cls().but(**changes)

    def but(self, where: str = "settings", /, **changes: Any) -> Self:
        """Returns the settings with some changed, see `of`; `where` stands in front of a message."""
        changes = with_rule(changes)
        base = changed(self, PRESETS.get(str(changes.get("preset")), {}), where)
        return changed(base, changes, where) if changes else self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "settings") -> Self:
        """Returns settings from nested names and values, such as a YAML file holds.

        Args:
            values: any settings, as `but` takes them.
            where: what the mapping is called in a message.

        Raises:
            InputError: a name is unknown, or a value has a wrong type or range.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"{where}: it must hold names and values, got {values!r}")
        return cls().but(where, **{str(name): value for name, value in values.items()})

    def to_mapping(self) -> dict[str, Any]:
        """Returns every setting by name, nested, as plain values."""
        return to_mapping(self)
