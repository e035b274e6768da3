"""The values a run ends with: the trained and calibrated network and everything computed on the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn

from calirare._util.arrays import brief
from calirare._util.torch_state import plain_torch
from calirare.calibration import TARGETS, Calibrator, Target
from calirare.drift import Reference
from calirare.features import FeatureMap
from calirare.graph import Graph, nodes_not_to_review
from calirare.leave_one_out import Agreement, JackknifeResult
from calirare.models import Fitted
from calirare.run.choice import Choice
from calirare.run.deciding import Decided, review_order
from calirare.run.periods import newest
from calirare.run.probabilities import LIKELIER, Probabilities, p_rare
from calirare.run.ranges import Ranges
from calirare.run.settings import Settings
from calirare.run.verdict import UNJUDGED, Verdict


@dataclass(frozen=True, eq=False)
class RareView:
    """What a run has of its rare class, and no run of many classes has.

    Attributes:
        jackknife: intervals and errors of every node, under the chosen target's map.
        decision: the threshold from which a node is an alert, and what to expect of it.
        ranges: intervals of the true P(rare), and label sets; None: the detector has no models without a fold.
    """

    jackknife: JackknifeResult
    decision: Decided
    ranges: Ranges | None = None

    __repr__ = brief

    def cpu(self) -> RareView:
        """Returns the same with every tensor on the CPU."""
        return dataclasses.replace(self, jackknife=self.jackknife.cpu())


@dataclass(eq=False)
class RunResult:
    """A trained and calibrated detector with everything computed on the way.

    Attributes:
        graph: the graph, with labels and split.
        mapped: the same as the detector took it.
        features: what its features became.
        settings: how it was made, as requested.
        fit: the detector and the labels it was trained on.
        logits: of every node [n, k].
        own_logits: of each training label from the model without it, [m, k]; None where no label was left out.
        held_out: each label's logits by the network without its fold, [m, k]; None where the detector has its folds, or
            there was no cross-validation.
        calibrators: the fitted calibrator of each target; empty without calibration.
        rare: what there is of the rare class; None where every class is taken as it is.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        damping: of the leave-one-out step of a network; 0 where there is none.
        choice: what was chosen among detectors, and why; None where one was requested.
        notes: sentences a user should read (fallbacks, warnings).
        seconds: wall time of each stage.
        verdict: whether probabilities can be read as such, and on what evidence.
    """

    graph: Graph
    mapped: Graph
    features: FeatureMap
    settings: Settings
    fit: Fitted
    logits: Tensor
    own_logits: Tensor | None
    held_out: Tensor | None
    calibrators: dict[Target, Calibrator]
    rare: RareView | None
    agreement: Agreement | None
    damping: float
    choice: Choice | None
    notes: list[str]
    seconds: dict[str, float]
    verdict: Verdict = UNJUDGED

    __repr__ = brief

    def probabilities(self, target: Target | Literal["run"] | None = "run") -> Tensor:
        """Returns every node's probabilities, float64 [n, k].

        Args:
            target: what they are calibrated for; "run": the run's target; None: the detector's own, not calibrated.
                Without calibration they are the detector's own for every target.

        Raises:
            ValueError: the target is unknown.
        """
        if target == "run":
            target = self.settings.calibration.calibrate_for
        if target is not None and target not in TARGETS:
            known = ", ".join(map(str, TARGETS))
            raise ValueError(f"probabilities: target must be one of {known}, 'run' or None, got {target!r}")
        return self.mapped_logits(self.logits, target)

    @plain_torch()
    def mapped_logits(self, logits: Tensor, target: Target | None) -> Tensor:
        """Returns the probabilities of logits [m, k]; of a network's own, not calibrated, in its precision."""
        logits = logits.double() if self.settings.many else logits
        return self.calibrators[target].transform(logits) if target in self.calibrators else torch.softmax(logits, 1)

    def on_cpu(self) -> Self:
        """Returns the same with every tensor on the CPU, where all that follows training is done."""
        if self.logits.device.type == "cpu":
            return self
        run: Any = self  # of a dataclass
        parts = {field.name: _on_cpu(getattr(run, field.name)) for field in dataclasses.fields(run)}
        return cast(Self, dataclasses.replace(run, **parts))

    @property
    def of_rare(self) -> RareView:
        """What there is of the rare class.

        Raises:
            InputError: every class was taken as it is.
        """
        self.settings.check_rare("what is asked of the run", "take probabilities, metrics and to_frame")
        assert self.rare is not None
        return self.rare

    @property
    def jackknife(self) -> JackknifeResult:
        """Intervals and errors of every node, see `RareView`."""
        return self.of_rare.jackknife

    @property
    def decision(self) -> Decided:
        """The threshold from which a node is an alert, see `RareView`."""
        return self.of_rare.decision

    @property
    def threshold(self) -> float:
        """From which P(rare) nodes are alerts, see `Deciding.thresholds`; of many classes that of equal costs."""
        return LIKELIER if self.rare is None else self.rare.decision.threshold

    @property
    def model(self) -> nn.Module:
        """The trained network.

        Raises:
            AttributeError: the detector is not a network.
        """
        if self.fit.closed_form is None:
            raise AttributeError(f"model: a {type(self.fit).__name__} is not one network, take `fit`")
        return self.fit.closed_form.model

    @property
    def epochs(self) -> int:
        """Epochs trained; 0 where the detector has none."""
        return self.fit.epochs

    @property
    def calibrator(self) -> Calibrator | None:
        """The map of the chosen target, or None."""
        return self.calibrators.get(self.settings.calibration.calibrate_for)

    @cached_property
    def reference(self) -> Reference:
        """What the run remembers of its graph, which others are compared with."""
        if self.rare is None:
            nobody = torch.empty(0, dtype=torch.int64)
            return Reference.of(self.graph, self.features, torch.zeros(self.graph.n_nodes), nobody)
        taught, rest = nodes_not_to_review(self.graph), self.graph.scored_nodes
        rest = rest if taught is None else rest[~torch.isin(rest, taught)]
        return Reference.of(self.graph, self.features, p_rare(self.logits, self.calibrators), rest, newest(self.graph))

    def for_tables(self) -> Probabilities:
        """Returns what tables say of the class of each node."""
        logits = self.logits.double() if self.settings.many else self.logits
        threshold = self.settings.decision.thresholds(self.threshold, self.graph)
        return Probabilities.of(logits, self.calibrators, self.settings.calibration.calibrate_for, threshold)

    def review(self) -> Tensor:
        """Returns the nodes to look at, see `Outcome.review`, which also orders by what a label is worth."""
        result = None if self.rare is None else self.rare.jackknife
        return review_order(self.settings.decision, self.graph, self.for_tables(), result)


def _on_cpu(part: Any) -> Any:
    """Returns a field of a run on the CPU; what holds no tensor as it is."""
    if isinstance(part, Tensor | RareView):
        return part.cpu()
    if isinstance(part, Graph):
        return part.to("cpu")
    return part.on_cpu() if isinstance(part, Fitted) else part
