"""Everything a run can be told, with the paper's values as defaults, read from and written to YAML."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from calirare._util.errors import InputError
from calirare.calibration import TARGETS, Target
from calirare.leave_one_out.methods import CONVENTIONS, Convention, LooSettings
from calirare.leave_one_out.methods import METHODS as LOO_METHODS
from calirare.leave_one_out.methods import Method as LooMethod
from calirare.models.gcn_fit import TrainingSettings
from calirare.training.selection import HOPS, WEIGHT_DECAYS

Method = Literal["jackknife", "calirare", "ts", "uncalibrated"]
METHODS: tuple[Method, ...] = ("jackknife", "calirare", "ts", "uncalibrated")
UNCERTAINTIES = ("auto", "map", "midpoint")

# What a run tells `calirare.datasets.load_dataset`, and the types of it; everything else is in `Settings`.
DATA: dict[str, tuple[type, ...]] = {
    "dataset": (str,),
    "root": (str,),
    "minority": (int, str),
    "label_rate": (int,),
    "split": (str,),
    "features": (str,),
    "label": (str,),
    "weight": (str,),
    "scale": (str,),
    "duplicates": (str,),
    "self_loops": (str,),
    "symmetrize": (bool,),
    "download": (bool,),
}
MAX_SEED = 2**63
# YAML 1.1 takes 5e-4 for text, because it has no point or no sign in its exponent.
SCIENTIFIC = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
MAY_BE_AUTO = ("epochs", "damping", "weight_decay", "hops", "uncertainty", "device")
# How a message calls what a setting takes, where its default does not show it.
KINDS = {
    "epochs": "a whole number or auto",
    "damping": "a number or auto",
    "weight_decay": "a number or auto",
    "hops": "a whole number or auto",
}


@dataclass(frozen=True)
class Settings:
    """How to train, calibrate and judge one network.

    Attributes:
        method: "jackknife" trains on all labels and calibrates on leave-one-out logits; "calirare" is the paper's
            Algorithm 2; "ts" trains on the training labels and fits a temperature on the validation labels;
            "uncalibrated" stops after training on the training labels.
        target: the population the calibrated probabilities are right for: "balanced" (classes equally common, what
            cost-sensitive training and Macro-ACE judge) or "population" (as it is).
        sharpen: of the balanced map: the sharpness at which each true class's mean confidence is its accuracy. Lower
            Macro-ACE, the same decisions; the probabilities are then right within classes and for no population.
        epochs: gradient steps (200 in Kipf & Welling 2017), or "auto": chosen by leave-one-out loss.
        hidden: width of the hidden layer (16, Kipf & Welling 2017).
        n_layers: layers (2, paper section 4.2).
        dropout: of the hidden units (0.5, Kipf & Welling 2017).
        learning_rate: of Adam (0.01, Kipf & Welling 2017).
        weight_decay: mu (5e-4, Kipf & Welling 2017), or "auto": of 5e-4 and its doubles up to 8e-3 the one with the
            lowest leave-one-out loss; five trainings.
        hops: how often features are propagated before the first weights (1, Kipf & Welling 2017), or "auto": of 1, 2
            and 3 the one with the lowest leave-one-out loss, after the weight decay; two trainings more.
        seed: of everything random.
        loo: how labels are left out (`leave_one_out.methods.LooSettings`): "alo", "influence", "newton", "retrain",
            "grouped" or "replicates".
        convention: "corrected"; "paper" or "official": the printed formulas or the authors' code, for reproduction.
        uncertainty: uncer(v) of the paper's Eq. 8: "map", "midpoint" or "auto", see `calirare.jackknife`.
        coverage: of the jackknife intervals (0.9, paper section 4.2).
        damping: of the leave-one-out step, or "auto": the weight decay, raised until leave-one-out loss agrees with
            cross-validation.
        folds: of the cross-validation that checks the leave-one-out loss; 0 leaves the check out.
        eice_weight: lambda of Algorithm 2 (0.1, paper section 4.2).
        device: "auto" (a GPU when there is one and the kernels were built for it), "cpu" or "cuda".
    """

    method: Method = "jackknife"
    target: Target = "balanced"
    sharpen: bool = False
    epochs: int | Literal["auto"] = "auto"
    hidden: int = 16
    n_layers: int = 2
    dropout: float = 0.5
    learning_rate: float = 0.01
    weight_decay: float | Literal["auto"] = 5e-4
    hops: int | Literal["auto"] = 1
    seed: int = 0
    loo: LooMethod = "alo"
    convention: Convention = "corrected"
    uncertainty: Literal["auto", "map", "midpoint"] = "auto"
    coverage: float = 0.9
    damping: float | Literal["auto"] = "auto"
    folds: int = 5
    eice_weight: float = 0.1
    device: str = "auto"

    def __post_init__(self) -> None:
        """Checks every setting.

        Raises:
            InputError: a setting is unknown or out of range.
        """
        for name in ("learning_rate", "weight_decay", "damping"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not math.isfinite(value):
                raise InputError(f"setting {name} must be finite, got {value}")
        if not 0 <= self.seed < MAX_SEED:
            raise InputError(f"setting seed must be from 0 to 2^63 - 1, got {self.seed}")
        _one_of("method", self.method, METHODS)
        _one_of("target", self.target, TARGETS)
        _one_of("loo", self.loo, LOO_METHODS)
        _one_of("convention", self.convention, CONVENTIONS)
        _one_of("uncertainty", self.uncertainty, UNCERTAINTIES)
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device):
            raise InputError(f"setting device must be auto, cpu, cuda or cuda:N, got {self.device!r}")
        if self.epochs != "auto" and not (isinstance(self.epochs, int) and self.epochs >= 1):
            raise InputError(f"setting epochs must be auto or a whole number of at least 1, got {self.epochs!r}")
        if self.damping != "auto" and not (isinstance(self.damping, int | float) and self.damping > 0):
            raise InputError(f"setting damping must be auto or a positive number, got {self.damping!r}")
        if isinstance(self.weight_decay, str) and self.weight_decay != "auto":
            raise InputError(f"setting weight_decay must be auto or a positive number, got {self.weight_decay!r}")
        if isinstance(self.hops, str) and self.hops != "auto":
            raise InputError(f"setting hops must be auto or a whole number of at least 1, got {self.hops!r}")
        for name in ("weight_decay", "hops"):
            if getattr(self, name) == "auto" and self.method == "calirare":
                raise InputError(f"setting {name} must be a number with method calirare, got 'auto'")
        if self.folds != 0 and self.folds < 2:
            raise InputError(f"setting folds must be 0 (no check) or at least 2, got {self.folds}")
        for name, value in (("coverage", self.coverage), ("eice_weight", self.eice_weight)):
            if not 0 < value < 1:
                raise InputError(f"setting {name} must be in (0, 1), got {value}")
        try:
            self.training(1)
        except ValueError as error:
            raise InputError(str(error).replace("TrainingSettings: ", "setting ")) from error

    def leaving_out(self) -> LooSettings:
        """Returns the settings of the leave-one-out."""
        return LooSettings(self.loo, self.convention, seed=self.seed)

    def training(self, epochs: int, weight_decay: float | None = None, hops: int | None = None) -> TrainingSettings:
        """Returns the settings of one training.

        Args:
            epochs: number of epochs.
            weight_decay: mu; None: as set, where that is "auto" the smallest it chooses among.
            hops: likewise.
        """
        if weight_decay is None:
            weight_decay = WEIGHT_DECAYS[0] if self.weight_decay == "auto" else self.weight_decay
        if hops is None:
            hops = HOPS[0] if self.hops == "auto" else self.hops
        return TrainingSettings(
            epochs=epochs,
            learning_rate=self.learning_rate,
            weight_decay=weight_decay,
            hidden=self.hidden,
            n_layers=self.n_layers,
            hops=hops,
            dropout=self.dropout,
            seed=self.seed,
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "settings") -> Self:
        """Returns settings from names and values.

        Args:
            values: any of the attributes.
            where: what the mapping is called in a message.

        Returns:
            The settings.

        Raises:
            InputError: a name is unknown, or a value has the wrong type or range.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        taken = dict(values)
        for name, value in values.items():
            if name not in known:
                raise _unknown(name, where)
            default = known[name].default
            real = isinstance(default, float) or name == "damping"
            if real and isinstance(value, str) and SCIENTIFIC.fullmatch(value):
                taken[name] = value = float(value)
            wanted = (int, float) if real else type(default)
            if name == "epochs":
                wanted = int
            flag = isinstance(default, bool)
            fits = isinstance(value, wanted) or (name in MAY_BE_AUTO and value == "auto")
            if isinstance(value, bool) != flag or not fits:
                raise InputError(f"{where}: {name} must be {KINDS.get(name, f'like {default!r}')}, got {value!r}")
        return cls(**taken)

    def to_mapping(self) -> dict[str, Any]:
        """Returns every setting by name."""
        return dataclasses.asdict(self)


def check_data(values: Mapping[str, Any], where: str) -> None:
    """Checks the types of what goes to `calirare.datasets.load_dataset`.

    Args:
        values: any of `DATA`; None stands for the default.
        where: what the mapping is called in a message.

    Raises:
        InputError: a name is unknown, or a value has the wrong type.
    """
    for name, value in values.items():
        if name not in DATA:
            raise _unknown(name, where)
        wanted = DATA[name]
        if value is None or (isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))):
            continue
        kinds = " or ".join({int: "a whole number", str: "text", bool: "true or false"}[kind] for kind in wanted)
        raise InputError(f"{where}: {name} must be {kinds}, got {value!r}")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file.

    Args:
        path: the file.

    Returns:
        Its names and values; empty for an empty file.

    Raises:
        InputError: the file is missing, is not YAML, or does not hold a mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"config {path}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"config {path}: is not YAML: {str(error).splitlines()[0]}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(
            f"config {path}: must hold names and values such as `epochs: 200`, got {type(values).__name__}"
        )
    return values


def _unknown(name: object, where: str) -> InputError:
    """Returns what says that there is no such setting."""
    settings = ", ".join(field.name for field in dataclasses.fields(Settings))
    return InputError(
        f"{where}: unknown setting {name!r}; the settings are {settings}; of the data (config files and command line) "
        f"{', '.join(DATA)}"
    )


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise InputError(f"setting {name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
