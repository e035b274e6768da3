"""The main job: train, leave every label out, calibrate, judge. `calirare.train` is this module's `train`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.ranges import named
from calirare.calibration import TARGETS, AffineCalibrator, Calibrator, JackknifeCalibrator, Target, target_weights
from calirare.curvature.ggn import logit_differences
from calirare.datasets import scale_note
from calirare.graph.graph import Graph, check_trainable
from calirare.intervals.algorithm1 import jackknife
from calirare.intervals.ends import LogitMap
from calirare.intervals.streaming import Streaming, streams
from calirare.leave_one_out.agreement import Agreement, choose_damping
from calirare.leave_one_out.methods import LooSettings, leave_one_out
from calirare.leave_one_out.own_logits import OwnLogits
from calirare.leave_one_out.result import LooChange
from calirare.models.crossfit import cross_fitted_logits
from calirare.models.gcn_fit import Fit, fit
from calirare.run.ignored import ignored
from calirare.run.outcome import Outcome
from calirare.run.settings import Settings
from calirare.training.selection import HOPS, WEIGHT_DECAYS, choose_hops, choose_weight_decay, loo_loss

MAX_EPOCHS = 400
CHECKPOINT_EVERY = 50
PATIENCE = 3  # checkpoints without a lower leave-one-out loss before training stops
Report = Callable[[str, int, int], None]  # stage, done, of how many
StreamingMaker = Callable[[Graph, Report], Streaming]


def train(
    graph: Graph,
    settings: Settings | None = None,
    *,
    report: Report | None = None,
    streaming: StreamingMaker | None = None,
    **changes: Any,
) -> Outcome:
    """Trains, calibrates and explains a network on a graph with a split.

    Args:
        graph: a graph with labels and a split (`load_dataset`, `Graph.from_data`, ...).
        settings: how; None: the defaults.
        report: called as stages proceed: name, steps done, steps in all.
        streaming: makes what evaluates a large graph in blocks, from the graph on its device; None: one without files.
        **changes: settings by name, over `settings`; for example `epochs=200, target="population"`.

    Returns:
        The outcome.

    Raises:
        InputError: the graph cannot be trained on, or a setting does not suit it.

    Example:
        >>> import calirare
        >>> outcome = calirare.train(calirare.load_dataset("digits"), epochs=100, folds=0)
        >>> outcome.probabilities("balanced").shape
        torch.Size([1797, 2])
    """
    if not isinstance(graph, Graph):
        got = type(graph).__name__
        raise TypeError(f"train: graph must be a calirare.Graph, got {got}: take Graph.from_data, from_networkx, ...")
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"train: settings must be Settings, got {type(settings).__name__}: or give them by name")
    values = (settings or Settings()).to_mapping() | changes
    settings = Settings.from_mapping(values, "train")
    check_trainable(graph)
    graph = graph.to(choose_device(settings.device))
    job = _Job(graph, settings, report or (lambda stage, done, total: None), streaming)
    return job.run()


class _Job:
    """One run of the pipeline; each stage times itself and reports."""

    def __init__(
        self, graph: Graph, settings: Settings, report: Report, streaming: StreamingMaker | None = None
    ) -> None:
        self.graph, self.settings, self.report = graph, settings, report
        self.notes = [note for note in (scale_note(graph), *ignored(settings)) if note]
        self.seconds: dict[str, float] = {}
        self.evaluator: Streaming | None = None
        self.change: LooChange | None = None  # of methods other than `alo`
        if self._timed("prepare", lambda: streams(graph, settings.n_layers, graph.n_classes)):
            self.evaluator = Streaming(graph, report=report) if streaming is None else streaming(graph, report)
        assert graph.split is not None
        assert graph.y is not None
        self.split, self.labels = graph.split, graph.y
        with_val = settings.method == "jackknife"
        self.nodes = torch.cat([self.split.train, self.split.val]) if with_val else self.split.train
        # The nodes that represent the population: drawn at random, not so many per class.
        self.judges = torch.zeros(self.nodes.numel(), dtype=torch.bool, device=graph.device)
        self.judges[self.split.train.numel() :] = True
        if not bool(self.judges.any()):
            self.judges[:] = True

    def run(self) -> Outcome:
        """Runs every stage."""
        if self.settings.method in ("ts", "calirare") and self.split.val.numel() == 0:
            raise InputError(
                f"graph {self.graph.name!r}: method {self.settings.method} needs validation nodes, but the split has "
                "none: take method jackknife (command line: --method jackknife), which needs none"
            )
        trained = self._timed("train", self._train)
        with torch.no_grad():
            # A large graph's logits come with its intervals; until then those of the nodes a map is fitted on will do.
            some = None if self.evaluator is None else self.split.val if self.split.val.numel() else self.nodes
            logits = self._timed("predict", lambda: trained.model(self.graph, some))
        self._check_finite(logits)
        agreement, damping, loo_logits = self._timed("check", lambda: self._damping(trained))
        calibrators = self._timed("calibrate", lambda: self._calibrate(logits, loo_logits))
        chosen = cast(LogitMap | None, calibrators.get(self.settings.target))
        coverage = self.settings.coverage
        result = self._timed(
            "jackknife",
            lambda: jackknife(
                trained,
                self.graph,
                coverage=coverage,
                calibrator=chosen,
                damping=damping,
                change=self.change,
                settings=self.settings.leaving_out(),
                uncertainty=self.settings.uncertainty,
                judges=self.judges,
                evaluator=self.evaluator,
            ),
        )
        if self.settings.method == "jackknife" and result.note and result.note not in self.notes:
            self.notes.append(result.note)
        if self.evaluator is not None:
            assert self.evaluator.logits is not None
            logits = self.evaluator.logits
            self._check_finite(logits)
        return Outcome(
            self.graph,
            self.settings,
            trained,
            len(trained.losses),
            logits,
            calibrators,
            result,
            agreement,
            self.notes,
            self.seconds,
        )

    def _check_finite(self, logits: Tensor) -> None:
        if not bool(torch.isfinite(logits).all()):
            raise InputError(
                f"graph {self.graph.name!r}: training ran away, the network's outputs are not finite: lower the "
                "learning rate or scale the features"
            )

    def _timed(self, stage: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        with named(stage):
            out = work()
        self.seconds[stage] = time.perf_counter() - started
        return out

    def _train(self) -> Fit:
        if self.settings.method == "calirare":
            return self._train_calirare()
        trained = self._train_with_weight_decay()
        return self._with_chosen_hops(trained) if self.settings.hops == "auto" else trained

    def _with_chosen_hops(self, first: Fit) -> Fit:
        """Returns the network with the number of hops of the lowest leave-one-out loss, at the first one's decay."""
        fits = {HOPS[0]: first}

        def loss(hops: int) -> float:
            self.report("hops", len(fits), len(HOPS))
            if hops not in fits:
                fits[hops] = self._train_with(first.weight_decay, hops)
            return self._loo_loss(fits[hops])

        chosen = choose_hops(loss)
        self.report("hops", len(fits), len(HOPS))
        return fits[chosen]

    def _train_with_weight_decay(self) -> Fit:
        if self.settings.weight_decay != "auto":
            return self._train_with(self.settings.weight_decay)
        fits: dict[float, Fit] = {}

        def loss(decay: float) -> float:
            self.report("weight decay", len(fits), len(WEIGHT_DECAYS))
            fits[decay] = self._train_with(decay)
            return self._loo_loss(fits[decay])

        chosen = choose_weight_decay(loss)
        self.report("weight decay", len(fits), len(WEIGHT_DECAYS))
        return fits[chosen]

    def _train_with(self, weight_decay: float, hops: int | None = None) -> Fit:
        if self.settings.epochs == "auto":
            return self._train_with_chosen_epochs(weight_decay, hops)
        epochs = self.settings.epochs
        settings = self.settings.training(epochs, weight_decay, hops)
        return fit(self.graph, self.nodes, settings, progress=lambda e: self.report("train", e, epochs))

    def _train_calirare(self) -> Fit:
        from calirare.eice.algorithm2 import EiceSettings, train_calirare

        epochs = 200 if self.settings.epochs == "auto" else self.settings.epochs
        options = EiceSettings(weight=self.settings.eice_weight, coverage=self.settings.coverage)
        if epochs <= options.start:
            self.notes.append(
                f"the EICE term counts from epoch {options.start + 1} on, so {epochs} epochs trained without it"
            )
        return train_calirare(
            self.graph,
            self.settings.training(epochs),
            options,
            progress=lambda e: self.report("train", e, epochs),
        )

    def _train_with_chosen_epochs(self, weight_decay: float, hops: int | None) -> Fit:
        """Trains once and keeps the checkpoint with the smallest leave-one-out loss for the target population."""
        best: tuple[float, int] = (float("inf"), 0)
        state: dict[str, Tensor] = {}
        waited = 0

        def look(epoch: int, so_far: Fit) -> bool:
            nonlocal best, state, waited
            loss = self._loo_loss(so_far)
            waited += 1
            if loss < best[0]:
                best, waited = (loss, epoch), 0
                state = {name: value.clone() for name, value in so_far.model.state_dict().items()}
            return waited >= PATIENCE

        trained = fit(
            self.graph,
            self.nodes,
            self.settings.training(MAX_EPOCHS, weight_decay, hops),
            every=CHECKPOINT_EVERY,
            at_checkpoint=look,
            progress=lambda e: self.report("train", e, MAX_EPOCHS),
        )
        if not state:
            raise InputError(
                f"graph {self.graph.name!r}: the leave-one-out loss is not finite at any checkpoint: lower the "
                "learning rate or scale the features"
            )
        trained.model.load_state_dict(state)
        self.report("train", MAX_EPOCHS, MAX_EPOCHS)
        return Fit(
            trained.model,
            trained.field,
            trained.targets,
            trained.sample_weights,
            trained.weight_decay,
            trained.losses[: best[1]],
        )

    def _weights(self, targets: Tensor) -> Tensor:
        """Returns each label's weight in the target population, of which the judges are the sample; 0 for others."""
        weights = torch.zeros(targets.numel(), dtype=torch.float64, device=targets.device)
        weights[self.judges] = target_weights(targets[self.judges], self.graph.n_classes, self.settings.target)
        return weights

    def _loo_loss(self, trained: Fit) -> float:
        tape = trained.tape()
        own = OwnLogits(tape)(self._start_damping(trained))
        return loo_loss(own[self.judges], trained.targets[self.judges], self.settings.target)

    def _start_damping(self, trained: Fit) -> float:
        return trained.weight_decay if self.settings.damping == "auto" else float(self.settings.damping)

    def _damping(self, trained: Fit) -> tuple[Agreement | None, float | None, Tensor]:
        """Returns the check, the damping and the logits to calibrate on, [m, k]."""
        if self.settings.leaving_out() != LooSettings(seed=self.settings.seed):
            return self._other_leave_one_out(trained)
        tape, start = trained.tape(), self._start_damping(trained)
        own_logits = OwnLogits(tape)
        agreement, damping = None, start
        if self.settings.method == "jackknife" and self.settings.folds and self.settings.damping == "auto":
            folds = min(self.settings.folds, self.nodes.numel())
            held_out = cross_fitted_logits(
                self.graph,
                self.nodes,
                self.settings.training(max(len(trained.losses), 1), trained.weight_decay, trained.model.hops),
                n_folds=folds,
                progress=lambda k: self.report("check", k, folds),
            )
            weights = self._weights(trained.targets)
            agreement = choose_damping(own_logits, start, held_out, self.judges, weights)
            damping = agreement.damping
            if agreement.verdict == "do not trust":
                self.notes.append(f"{agreement.reason}: the map was fitted on cross-validated logits instead")
                return agreement, damping, held_out
        return agreement, damping, own_logits(damping)

    def _other_leave_one_out(self, trained: Fit) -> tuple[None, float | None, Tensor]:
        """Returns the same for a method other than `alo`; a label without a model judges nothing."""
        wanted = None if self.settings.damping == "auto" else float(self.settings.damping)
        m = trained.nodes.numel()
        self.change = leave_one_out(
            trained,
            self.graph,
            damping=wanted,
            settings=self.settings.leaving_out(),
            progress=lambda done: self.report("retrain", done, m),
        )
        tape = trained.tape()
        own = logit_differences(tape.logits) + self.change.own
        self.judges = self.judges & torch.isfinite(own).all(1)
        return None, wanted, torch.cat([own.new_zeros(own.shape[0], 1), own], 1)

    def _calibrate(self, logits: Tensor, loo_logits: Tensor) -> dict[Target, Calibrator]:
        """Returns the fitted map for each target."""
        if self.settings.method == "ts":
            val = self.split.val
            z = logits[val] if self.evaluator is None else logits
            return {t: AffineCalibrator(with_bias=False, target=t).fit(z, self.labels[val]) for t in TARGETS}
        if self.settings.method != "jackknife":
            return {}
        maps: dict[Target, Calibrator] = {}
        targets = self.labels[self.nodes][self.judges]
        for target in TARGETS:
            sharpen = self.settings.sharpen and target == "balanced"
            fitted = JackknifeCalibrator(target=target, sharpen=sharpen).fit(loo_logits[self.judges], targets)
            if fitted.note_ and fitted.note_ not in self.notes:
                self.notes.append(fitted.note_)
            if fitted.note_ and sharpen:
                self.notes.append("sharpen changed nothing: a temperature has no sharpness of its own")
            maps[target] = fitted
        if self.split.val.numel() == 0:
            self.notes.append(
                "no validation nodes: the map was fitted on the training nodes, which may not represent the population"
            )
        return maps
