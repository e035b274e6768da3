"""True leave-one-out by retraining: the judge of every other method. Parallel, warm-started, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES
from calirare._util.store import key_of
from calirare.curvature import HOPS, GgnInverse, around, closed_form, logit_differences
from calirare.graph import check_nodes
from calirare.leave_one_out import (
    Diagnostics,
    LeaveOneOutMethod,
    LooResult,
    Problem,
    check_at_least,
    drawn,
    keep_constants,
    loo_coefficients,
    models_of,
)
from calirare.models import FittedNetwork, GcnFit, ModuleFit, minimise
from calirare_lab.jobs import Store, workers

TOLERANCE, MAX_STEPS = 1e-6, 400
# Where a network is far from linear, a few of `alo`'s models have a loss far above the fit's.
TOO_FAR, HALVINGS = 1.5, 5
NONE_LEFT_OUT = -1
Task = Callable[[int], "Retrained"]  # from the place of a label, or NONE_LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class Retrain(LeaveOneOutMethod):
    """Every label's network trained on without it, from the full fit: the truth, at seconds to minutes a label.

    Attributes:
        n_models: how many labels are left out, drawn at random; None: all.
        jobs: processes, >= 1.
        folder: keeps each finished label; a second call with the same network takes up where the first ended.
        tolerance: on the gradient's norm.
        max_steps: L-BFGS steps per label.
        seed: of the draw; None: 0.
        chosen: distinct places of the labels to leave out, int64 [s]; None: `n_models` at random.
    """

    name: ClassVar[str] = "retrain"

    n_models: int | None = None
    jobs: int = 1
    folder: str | Path | None = None
    tolerance: float = TOLERANCE
    max_steps: int = MAX_STEPS
    seed: int | None = None
    chosen: Tensor | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        for option in ("n_models", "jobs", "max_steps"):
            check_at_least("retrain", option, getattr(self, option), 1)

    @property
    def one_by_one(self) -> bool:
        """One label after the other."""
        return True

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        size = problem.size
        return size.change(min(self.n_models or size.m, size.m)) + 100 * size.p * size.bytes + BLOCK_BYTES

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        return retrain(
            problem.fitted,
            problem.field,
            chosen_positions(problem, self.chosen, self.n_models, self.seed),
            jobs=self.jobs,
            folder=self.folder,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            progress=problem.progress,
        )


@dataclass(frozen=True, kw_only=True)
class Steps(LeaveOneOutMethod):
    """Quasi-Newton steps on the loss without each label from where `ALO` leads; the network is evaluated there.

    Attributes:
        steps: how many, >= 1.
        n_models: labels to leave out, drawn at random; None: all.
        seed: of the draw; None: 0.
        chosen: distinct places of the labels to leave out, int64 [s]; None: `n_models` at random.
    """

    name: ClassVar[str] = "steps"

    steps: int = 10
    n_models: int | None = None
    seed: int | None = None
    chosen: Tensor | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        for option in ("steps", "n_models"):
            check_at_least("steps", option, getattr(self, option), 1)

    @property
    def one_by_one(self) -> bool:
        """One label after the other."""
        return True

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        size = problem.size
        working = (3 * size.dual + 60) * size.p * size.bytes + 5 * size.dual * size.dual * 8
        return size.change(min(self.n_models or size.m, size.m)) + working + 3 * BLOCK_BYTES

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        places = chosen_positions(problem, self.chosen, self.n_models, self.seed)
        return alo_steps(problem.fitted, problem.field, problem.damping, self.steps, problem.progress, places)


def chosen_positions(problem: Problem, chosen: Tensor | None, n_models: int | None, seed: int | None) -> Tensor:
    """Returns the places of the labels to leave out, as chosen or drawn, int64 [s].

    Raises:
        ValueError: none is named, or one does not exist.
    """
    m = problem.n_labels
    if chosen is None:
        return drawn(m, n_models, seed).to(problem.fitted.targets.device)
    check_nodes("leave_one_out", chosen, m, "chosen")
    if chosen.numel() == 0:
        raise ValueError("leave_one_out: chosen must name at least one label, got none")
    return chosen


def alo_steps(
    fitted: FittedNetwork,
    field: Any,
    damping: float,
    steps: int,
    progress: Callable[[int], None] | None = None,
    chosen: Tensor | None = None,
) -> LooResult:
    """Returns the change of every logit after some quasi-Newton steps of each leave-one-out model, from `alo`'s.

    `alo` foresees a label's own logits; on the way its network leaves the pattern of ReLUs it was linearised in, and
    other nodes' logits are foreseen worse. The steps go on from there on the true loss
    sum_{j != i} w_j l_j / m + mu / 2 |theta|^2, one label after the other, preconditioned by the Gauss-Newton inverse
    of each start, or of the full fit where there is no closed form and each would cost m (k - 1) backward passes. A
    start whose loss is half again that of the full fit is moved back towards it. What a label moves is measured from
    the network moved by as many steps with every label.

    Args:
        fitted: the network, near a minimum of its loss: from elsewhere the steps lead away with or without a label.
        field: the evaluation field of the nodes v.
        damping: of the starts; the steps themselves minimise the loss of training.
        steps: how many, >= 1.
        progress: called with the number of labels done.
        chosen: distinct positions of labels to leave out, int64 [s]; None: all.

    Returns:
        The changes of the network evaluated at each of s models; own changes of other labels are NaN.
        `Diagnostics.unconverged` is the fraction of models whose gradient stayed above 1e-6, as at kinks of ReLU units.
    """
    if fitted.weight_decay == 0:
        raise ValueError("steps: the network must have a positive weight decay, got 0: there need not be a minimum")
    linearised, m = fitted.linearisation, fitted.nodes.numel()
    chosen = torch.arange(m, device=fitted.targets.device) if chosen is None else chosen.to(fitted.targets.device)
    coefficients, leverage = loo_coefficients(linearised, linearised.kernel, damping)
    starts = coefficients.T.reshape(m, m, -1).to(linearised.logits)
    out = retrain(fitted, field, chosen, starts=starts, max_steps=steps, progress=progress)
    unconverged = 0.0 if out.diagnostics is None else out.diagnostics.unconverged
    facts = Diagnostics("steps", f"{steps} steps", damping, unconverged=unconverged)
    return replace(out, leverage=leverage, damping=damping, diagnostics=facts)


@dataclass(frozen=True)
class Retrained:
    """A network trained on without one label, or with all.

    Attributes:
        logits: at the nodes v and, last, at the left-out one, [n_v + 1, k]; with all labels at the m of them.
        gradient_norm: |grad| of its penalised loss.
    """

    logits: np.ndarray
    gradient_norm: float


def retrain(
    fitted: FittedNetwork,
    field: Any,
    chosen: Tensor,
    *,
    jobs: int = 1,
    folder: str | Path | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
    progress: Callable[[int], None] | None = None,
    starts: Tensor | None = None,
) -> LooResult:
    """Returns what leaving some labels out really does: each network is trained on without one label.

    Every retraining starts at the full fit and minimises the same loss with that label's weight at 0. What it moves is
    measured from the full fit trained on in the same way with every label: a loss that stands still on kinks goes on
    falling by little, and the logits by more. The fit must be near a minimum all the same (`training.converge`).

    Args:
        fitted: the network at a minimum, better in float64.
        field: the evaluation field of the nodes v.
        chosen: distinct places of labelled nodes to leave out, int64 [s].
        jobs: processes, >= 1.
        folder: keeps each finished node; a second call with the same network takes up where the first ended.
        tolerance: on the gradient's norm.
        max_steps: L-BFGS steps per node.
        progress: called with the number of nodes done after each.
        starts: where each label's retraining starts, as coefficients u of J^T u, [m, m, k - 1]; None: at the full fit.
            Not with a folder. The inverse that preconditions the steps is then shared where it has no closed form.

    Returns:
        Changes with s models; own changes of labels that were not chosen are NaN.

    Raises:
        ValueError: there is no process, or no weight decay.
        InputError: the folder belongs to another network, or a file in it is damaged.
    """
    if jobs < 1:
        raise ValueError(f"retrain: jobs must be at least 1, got {jobs}")
    if fitted.weight_decay == 0:
        raise ValueError("retrain: weight decay must be positive, got 0: without it there need not be a minimum")
    store = None if folder is None else _store(Path(folder), fitted, field, (tolerance, max_steps))
    places = [NONE_LEFT_OUT, *chosen.tolist()]
    found = {} if store is None else {i: store.read(_file(i), _load) for i in places if store.has(_file(i))}
    todo = [i for i in places if i not in found]
    task = partial(_retrained, fitted, field, tolerance, max_steps, starts)
    done = len(found.keys() - {NONE_LEFT_OUT})
    if progress is not None and done:
        progress(done)
    for i, one in _run(task, todo, jobs):
        if store is not None:
            store.write(_file(i), partial(np.savez, logits=one.logits, gradient_norm=one.gradient_norm))
        found[i] = one
        if i == NONE_LEFT_OUT:
            continue
        done += 1
        if progress is not None:
            progress(done)
    kept = found.pop(NONE_LEFT_OUT)
    unconverged = sum(one.gradient_norm > tolerance for one in found.values()) / max(len(found), 1)
    return _assemble(fitted, chosen, kept, found, unconverged)


def _assemble(
    fitted: FittedNetwork, chosen: Tensor, kept: Retrained, found: dict[int, Retrained], unconverged: float
) -> LooResult:
    """Returns the changes from the logits of each model and of the one with all labels."""
    m = fitted.nodes.numel()
    before, own_before = logit_differences(torch.from_numpy(kept.logits).to(fitted.nodes.device)).tensor_split([-m])
    k = own_before.shape[1]
    change = before.new_empty(before.shape[0], k, chosen.numel())
    own = torch.full_like(own_before, float("nan"))
    for column, i in enumerate(chosen.tolist()):
        after = logit_differences(torch.from_numpy(found[i].logits).to(before))
        change[:, :, column] = after[:-1] - before
        own[i] = after[-1] - own_before[i]
    model_of = models_of(m, chosen.to(before.device))
    leverage = torch.full((m,), float("nan"), dtype=torch.float64, device=before.device)
    reason = "the weight decay of training; retraining has no damping of its own"
    facts = Diagnostics("retrain", "L-BFGS", fitted.weight_decay, reason, unconverged=unconverged)
    return LooResult(change, own, leverage, fitted.weight_decay, model_of, facts)


def _retrained(
    fitted: FittedNetwork, field: Any, tolerance: float, max_steps: int, starts: Tensor | None, left_out: int
) -> Retrained:
    """Returns the network trained on without one label, or with all."""
    weights, own = fitted.sample_weights.clone(), slice(None)
    if left_out != NONE_LEFT_OUT:
        weights[left_out], own = 0.0, slice(left_out, left_out + 1)
    without = fitted.copy(sample_weights=weights)
    if starts is not None and left_out != NONE_LEFT_OUT:
        direction = fitted.linearisation.vjp(starts[left_out][None])[0]
        without.move_to(near_start(without, direction))
    inverse = None if starts is None else _inverse_at_fit(fitted)
    near = near_labels(without)
    if isinstance(without, ModuleFit):
        keep_constants(without.model, {})
    end = minimise(near, tolerance=tolerance, max_steps=max_steps, warm=True, first_inverse=inverse)
    logits = (without.logits_at(field), without.logits_at_labels()[own])
    return Retrained(torch.cat(logits).cpu().numpy(), end.gradient_norm)


def _inverse_at_fit(fitted: FittedNetwork) -> GgnInverse | None:
    """Returns the Gauss-Newton inverse at the full fit, made once in a process; None where that of a start is cheap.

    A label less changes it by a matrix of rank k - 1. Without a closed form each costs m (k - 1) backward passes.
    """
    linearised = fitted.linearisation
    if closed_form(linearised):
        return None
    if "_inverse" not in vars(linearised):
        vars(linearised)["_inverse"] = GgnInverse(linearised, fitted.weight_decay)
    return vars(linearised)["_inverse"]


def near_start(fitted: FittedNetwork, direction: Tensor) -> Tensor:
    """Returns theta + direction [p], the direction halved until the loss is at most TOO_FAR times that of theta."""
    theta = fitted.theta
    most = TOO_FAR * fitted.objective(theta)[0]
    for halving in range(HALVINGS + 1):
        point = theta + direction / 2**halving
        if fitted.objective(point)[0] <= most:
            return point
    return theta


def _run(task: Task, places: list[int], jobs: int) -> Iterator[tuple[int, Retrained]]:
    """Yields each place with its network, as they are done."""
    if jobs == 1 or len(places) < 2:
        for i in places:
            yield i, task(i)
        return
    with workers(jobs, _prepare, (task,)) as pool:
        futures = {pool.submit(_work, i): i for i in places}
        for done in as_completed(futures):
            yield futures[done], done.result()


_TASK: list[Task] = []


def _prepare(task: Task) -> None:
    torch.set_num_threads(1)
    _TASK[:] = [task]


def _work(left_out: int) -> Retrained:
    return _TASK[0](left_out)


def _store(folder: Path, fitted: FittedNetwork, at: Any, how: tuple[float, int]) -> Store:
    """Returns where finished labels are kept, for this network and graph alone."""
    network = (*fitted.model.parameters(), *fitted.model.buffers())
    labels = (fitted.nodes, fitted.targets, fitted.sample_weights, fitted.weight_decay)
    key = key_of(network, labels, _inputs(fitted), at, how)
    return Store(folder, key, "a retraining", "network, graph or weight decay")


def _file(i: int) -> str:
    return "with_all.npz" if i == NONE_LEFT_OUT else f"without_{i}.npz"


def _load(file: BinaryIO) -> Retrained:
    with np.load(file, allow_pickle=False) as stored:
        return Retrained(stored["logits"], float(stored["gradient_norm"]))


def near_labels(fitted: FittedNetwork) -> FittedNetwork:
    """Returns a module, shared, with the inputs of some hops around its labels, where these give the same logits."""
    if not isinstance(fitted, ModuleFit):
        return fitted
    wanted = fitted.logits_at_labels()
    for hops in range(1, HOPS + 1):
        part = around(fitted.inputs, fitted.nodes, hops)
        if part is None:
            return fitted
        with torch.no_grad():
            found = fitted.model(*part[0])[part[1]]
        if torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max())):
            return replace(fitted, inputs=part[0], nodes=part[1])
    return fitted


def _inputs(fitted: FittedNetwork) -> tuple[Any, ...]:
    """Returns what a network reads, for a checksum."""
    if isinstance(fitted, ModuleFit):
        return fitted.inputs
    return (fitted.field,) if isinstance(fitted, GcnFit) else ()
