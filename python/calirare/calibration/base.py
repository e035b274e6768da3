"""What every calibrator is: fitted on logits and labels, then logits in, probabilities out."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from calirare._util.arrays import EQUAL, all_finite, to_tensor
from calirare._util.errors import InputError, shown

if TYPE_CHECKING:
    from sklearn.utils import Tags

Numbers = TypeVar("Numbers", np.ndarray, Tensor)
Target = Literal["balanced", "population"] | float
TARGETS: tuple[Target, ...] = ("balanced", "population")
EXPONENTS = {"balanced": 1.0, "population": 0.0}
USUAL_SPREAD = (0.1, 1e3)  # of logits between classes: the priors, which pull to the identity, are made for these
SPREAD = 2.0  # what others are brought to
USUAL_LEVEL = (0.1, 20.0)  # of a median logit, however little the logits differ
APART = 2.0  # widths of the logits' range by which other medians must lie beyond 0 to be a level of their own


class Calibrator(ABC):
    """A map from logits to calibrated probabilities, fitted on labelled logits; scikit-learn can clone it.

    Logits are a numpy array or a torch tensor: [n, k] of k classes, or [n] = z_1 - z_0 of two. The probabilities are of
    the same kind, dtype, device and shape; those of [n] are P(class 1).

    A subclass stores each argument of its constructor under its own name and sets what it fits as `<name>_`.

    Attributes:
        fitted: names of what is fitted, without the underscore, and how each is read from plain numbers.
    """

    fitted: ClassVar[dict[str, Callable[[Any], Any]]] = {}

    @property
    @abstractmethod
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""

    @abstractmethod
    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fits the map on checked logits [n, k] and labels int64 [n]."""

    @abstractmethod
    def _transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k] of checked logits, in their dtype."""

    def check_settings(self) -> None:  # noqa: B027 (most have nothing to check)
        """Checks the arguments of the constructor, at construction and, since they may be set later, before fitting."""

    def fit(self, logits: Numbers, labels: Numbers) -> Self:
        """Fits the map on logits, [n, k] or [n], and labels in [0, k), integers [n]; returns self."""
        self._fit(*self._checked(logits, labels))
        return self

    def _checked(self, logits: np.ndarray | Tensor, labels: np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
        """Returns checked logits [n, k] and labels int64 [n] on their device; the settings are checked too."""
        self.check_settings()
        op = type(self).__name__
        z = logits_matrix(op, logits)
        y = to_tensor(op, "labels", labels).to(z.device) if isinstance(labels, np.ndarray) else labels
        if isinstance(labels, np.ndarray) and labels.dtype.kind in "bui":
            y = y.long()
        check_labelled(op, z, y)
        return z, y

    def transform(self, logits: Numbers) -> Numbers:
        """Returns calibrated probabilities of the kind, shape and dtype of the logits."""
        p = self.predict_proba(logits)
        return p[:, 1] if logits.ndim == 1 else p

    def predict_proba(self, logits: Numbers) -> Numbers:
        """Returns calibrated probabilities [n, k], of logits [n] too."""
        op = type(self).__name__
        z = logits_matrix(op, logits)
        check_logits(op, z)
        self.check_classes(z)
        p = self._transform(z)
        return p.cpu().numpy() if isinstance(logits, np.ndarray) else p

    @classmethod
    def _settings(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the arguments of the constructor, as scikit-learn asks for them; `deep` changes nothing."""
        return {name: getattr(self, name) for name in self._settings()}

    def set_params(self, **params: Any) -> Self:
        """Sets arguments of the constructor, which are checked; returns self. Others are a ValueError."""
        for name in params:
            if name not in self._settings():
                known = ", ".join(self._settings())
                raise ValueError(f"{type(self).__name__}: parameters must be among {known}, got {name}")
        type(self)(**(self.get_params() | params)).check_settings()
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The fitted classes, 0 to k - 1, as scikit-learn asks for them; AttributeError before fitting."""
        if self.n_classes is None:
            raise AttributeError(f"{type(self).__name__}: classes_ is there after fit")
        return np.arange(self.n_classes)

    def __sklearn_is_fitted__(self) -> bool:
        return self.n_classes is not None

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=ClassifierTags(),
            regressor_tags=None,
            input_tags=InputTags(one_d_array=True),
        )

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({settings})"

    def state(self) -> dict[str, Any]:
        """Returns settings and fitted map as plain numbers, lists and strings, for a run's files."""
        return self.get_params() | {name: _plain(getattr(self, f"{name}_")) for name in self.fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from."""
        out = cls(**{name: state[name] for name in cls._settings()})
        for name, read in cls.fitted.items():
            setattr(out, f"{name}_", None if state[name] is None else read(state[name]))
        return out

    def check_classes(self, logits: Tensor) -> None:
        """Checks that logits [n, k] have the classes of the fitted map.

        RuntimeError where it is not fitted, ValueError where there are more or fewer classes than were fitted.
        """
        op, k = type(self).__name__, self.n_classes
        if k is None:
            raise RuntimeError(f"{op}: call fit before transform")
        if logits.shape[-1] != k:
            raise ValueError(f"{op}: logits must have as many classes as those fitted, {k}, got {logits.shape[-1]}")


def float64(numbers: list[Any]) -> Tensor:
    """Returns plain numbers as a tensor."""
    return torch.tensor(numbers, dtype=torch.float64)


def logits_matrix(op: str, logits: np.ndarray | Tensor) -> Tensor:
    """Returns logits of numpy or torch as a tensor, [n] = z_1 - z_0 as the two columns 0 and z."""
    if not isinstance(logits, np.ndarray | Tensor):
        raise TypeError(f"{op}: logits must be a numpy array or a torch tensor, got {type(logits).__name__}")
    z = to_tensor(op, "logits", logits)
    return torch.stack([torch.zeros_like(z), z], 1) if z.dim() == 1 else z


def _plain(fitted: Any) -> Any:
    if isinstance(fitted, Calibrator):
        return fitted.state()
    return fitted.tolist() if isinstance(fitted, Tensor) else fitted


def softmax_after(mapping: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Returns softmax(mapping(logits)) [n, k] of finite logits, also where the mapped ones leave the logits' dtype."""
    mapped = mapping(logits)
    if not all_finite(mapped):
        limits = torch.finfo(torch.float64)
        mapped = mapping(logits.double()).clamp(limits.min, limits.max)
    return torch.softmax(mapped, 1).to(logits.dtype)


def check_prior(op: str, prior: float) -> None:
    """Checks that the weight of a prior is finite and not negative (ValueError)."""
    if not 0 <= prior < math.inf:
        raise ValueError(f"{op}: prior must be at least 0 and finite, got {prior}")


def check_labelled(op: str, logits: Tensor, labels: Tensor) -> None:
    """Checks logits and labels as `check_logits` does; labels that are not there are a TypeError."""
    if labels is None:
        raise TypeError(f"{op}: labels must be a numpy array or a torch tensor, got None")
    check_logits(op, logits, labels)


def check_logits(op: str, logits: Tensor, labels: Tensor | None = None) -> None:
    """Checks logits [n, k >= 2], floating point and finite, and labels int64 [n] in [0, k).

    TypeError for a kind or dtype, ValueError for a shape or range, InputError where there is no label to fit on.
    """
    for name, values in (("logits", logits), *([] if labels is None else [("labels", labels)])):
        if not isinstance(values, Tensor):
            raise TypeError(f"{op}: {name} must be a numpy array or a torch tensor, got {type(values).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"{op}: logits must be floating point, got {str(logits.dtype).removeprefix('torch.')}")
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise ValueError(f"{op}: logits must have shape [n, k] with k >= 2, or [n], got {list(logits.shape)}")
    if not all_finite(logits):
        raise ValueError(f"{op}: logits must be finite, row {int((~torch.isfinite(logits)).nonzero()[0, 0])} is not")
    if labels is None:
        return
    if labels.dtype != torch.int64:
        raise TypeError(f"{op}: labels must be int64, got {str(labels.dtype).removeprefix('torch.')}")
    if labels.shape != (logits.shape[0],):
        raise ValueError(f"{op}: labels must have shape [{logits.shape[0]}], got {list(labels.shape)}")
    if labels.numel() == 0:
        raise InputError(f"{op}: there is no labelled node to fit on; give at least one")
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(
            f"{op}: labels must be in [0, {logits.shape[1]}), got {int(labels.min())} to {int(labels.max())}"
        )


def unit_of(logits: Tensor) -> float:
    """Returns what to divide logits [n, k] by so that they spread as logits usually do; 1 where they do already.

    The spread is the median over the rows of largest minus smallest logit. Outside `USUAL_SPREAD` it is brought to the
    nearer end: a map that starts at the identity would not find its way to a scale of thousands. Logits that differ by
    less than 1e-290 count as equal: their scale would be infinite.
    """
    half_spread = _half_spread(logits.detach().double() / 2)
    low, high = USUAL_SPREAD
    return half_spread / min(max(half_spread, low / 2), high / 2) if half_spread > 1e-290 else 1.0


def is_far(logits: Tensor) -> bool:
    """Whether logits [n, k] lie at a level of their own, far from the 0 that usual ones are about.

    A class's median is then `APART` times as far from 0 as the logits are wide, and outside `USUAL_LEVEL`. Equal logits
    are not far: nothing tells what they are.
    """
    halves = logits.detach().double() / 2  # the difference of the largest numbers would be infinite
    level, width = halves.median(0).values.abs().max(), (halves.amax(0) - halves.amin(0)).max()
    low, high = USUAL_LEVEL
    return bool(level > APART * width) and float(width) > 1e-290 and not low / 2 <= float(level) <= high / 2


def standard_of(logits: Tensor, *, centred: bool = True) -> tuple[Tensor, float]:
    """Returns a level to take off logits [n, k], float64 [k], and what to divide the rest by: usual logits follow.

    A map with a weak prior gives nearly the same probabilities for z, z + 1000 and 1e9 z where it is fitted to these.
    Usual logits stay as they are: level 0, unit 1. Where they are far from 0 (`is_far`), or spread by numbers outside
    `USUAL_SPREAD` (see `unit_of`), the level is each class's median; what is left is brought to a spread of `SPREAD` if
    it is not a usual one. Not `centred`: the level is 0.
    """
    halves = logits.detach().double() / 2
    level = torch.zeros_like(halves[0])
    if centred and (is_far(logits) or not _is_usual(_half_spread(halves))):
        level = halves.median(0).values
    half_spread = _half_spread(halves - level, EQUAL * float(level.abs().max()))
    return 2 * level, 1.0 if _is_usual(half_spread) else half_spread / (SPREAD / 2)


def _is_usual(half_spread: float) -> bool:
    """Whether logits spread as usual, or not at all."""
    return half_spread <= 1e-290 or USUAL_SPREAD[0] <= 2 * half_spread <= USUAL_SPREAD[1]


def _half_spread(halves: Tensor, rounding: float = 0.0) -> float:
    """Returns the median difference of a row's largest and smallest number; the mean one where that is rounding."""
    spreads = halves.amax(1) - halves.amin(1)
    median = float(spreads.median())
    return median if median > rounding else float((spreads / len(spreads)).sum())


def target_weights(labels: Tensor, n_classes: int, target: Target) -> Tensor:
    """Returns each label's weight, proportional to (share of its class)^-t, float64 [n], mean 1.

    Target "balanced" (t = 1) gives every class that occurs the same total (the population that cost-sensitive training
    and Macro-ACE judge), "population" (t = 0) every node the same weight; a number t in [0, 1] lies in between. Another
    one is a ValueError.
    """
    counts = torch.bincount(labels, minlength=n_classes).double()
    weights = (labels.numel() / counts[labels]) ** balance_of(target)
    return weights / weights.mean()


def balance_of(target: Target) -> float:
    """Returns t in [0, 1] of a target, see `target_weights`; another one is a ValueError."""
    balance = EXPONENTS.get(target) if isinstance(target, str) else target
    if balance is None or not 0 <= balance <= 1:
        raise ValueError(f"target must be one of {', '.join(EXPONENTS)}, or a number in [0, 1], got {shown(target)}")
    return balance
