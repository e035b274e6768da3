"""Every leave-one-out method behind one function."""

from __future__ import annotations

import dataclasses
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from calirare.curvature.directions import Forward
from calirare.curvature.module_tape import ModuleTape, Tape, Where, shallow
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.graph.labelled import check_nodes
from calirare.leave_one_out.alo import alo, choose_form
from calirare.leave_one_out.alo_steps import alo_steps, alo_steps_of_module
from calirare.leave_one_out.grouped import drawn, grouped, quantile_error, replicates
from calirare.leave_one_out.influence import SolverSettings, influence, newton
from calirare.leave_one_out.memory import check_memory, estimate_bytes
from calirare.leave_one_out.randomised import randomised
from calirare.leave_one_out.result import Diagnostics, LooChange
from calirare.leave_one_out.retrain import AnyFit, retrain
from calirare.models.crossfit import fold_of
from calirare.models.gcn_fit import Fit
from calirare.models.module_fit import ModuleFit
from calirare_ext import GcnTape, ReceptiveField

Method = Literal["alo", "influence", "newton", "retrain", "grouped", "replicates"]
METHODS: tuple[Method, ...] = ("alo", "influence", "newton", "retrain", "grouped", "replicates")
Convention = Literal["corrected", "paper", "official"]
CONVENTIONS: tuple[Convention, ...] = ("corrected", "paper", "official")
MOST_MODELS = 4000  # drawn at random where no number is given: the level of a quantile over them is off by .02 at most
OFFICIAL_DAMPING = 1e-2  # of the authors' code, in place of the weight decay
FORWARDS: tuple[Forward, ...] = ("linearised", "full")
Progress = Callable[[int], None] | None
FORMS = ("auto", "gram", "jacobian", "primal", "randomised")


@dataclass(frozen=True)
class LooSettings:
    """How labels are left out.

    Attributes:
        method: "alo" (default), "influence" (first order), "newton" (exact Hessian with leverage), "retrain" (the
            truth), "grouped" (leave-group-out) or "replicates" (`alo` for a random subset of the labels).
        convention: "corrected" (default); "paper": plain influence with the sign its Algorithm 1 prints, which
            correlates -.67 to -.90 with retraining; "official": the authors' code: plain influence with the right
            sign, exact Hessian and damping .01, which sees about 7 % of the change. The last two fix the method.
        damping: added to the curvature; None: the weight decay.
        form: of "alo": "auto", "gram", "jacobian", "primal" or "randomised".
        forward: "linearised" logits, or "full": the network evaluated at each leave-one-out model.
        steps: of "alo": quasi-Newton steps on the loss without each label from where `alo` leads, and the network
            evaluated there; 0: none. For networks trained to a minimum (`convergence.converge`).
        solver: of "influence" and "newton"; None: "cg" for influence, "lowrank" or "cg" for newton.
        n_groups: of "grouped".
        n_models: of "replicates", "retrain" and of `steps`: how many labels are left out, drawn at random; None: all,
            of "replicates" at most 4,000. `jackknife` takes "replicates" for "alo" where there are more labels.
        seed: of random choices.
        memory_limit: bytes; None: most of what is free.
        jobs: processes of "retrain".
        folder: of "retrain", see there.
    """

    method: Method = "alo"
    convention: Convention = "corrected"
    damping: float | None = None
    form: str = "auto"
    forward: Forward = "linearised"
    steps: int = 0
    solver: SolverSettings | None = None
    n_groups: int = 20
    n_models: int | None = None
    seed: int = 0
    memory_limit: int | None = None
    jobs: int = 1
    folder: str | Path | None = field(default=None)

    def __post_init__(self) -> None:
        """Checks words and numbers.

        Raises:
            ValueError: one is unknown or out of range.
        """
        for name, allowed in (
            ("method", METHODS),
            ("convention", CONVENTIONS),
            ("form", FORMS),
            ("forward", FORWARDS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"LooSettings: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if self.damping is not None:
            _check_damping("LooSettings", self.damping)
        if self.steps < 0:
            raise ValueError(f"LooSettings: steps must be at least 0, got {self.steps}")
        if self.steps and (self.method != "alo" or self.convention != "corrected" or self.form == "randomised"):
            raise ValueError(
                "LooSettings: steps start at method 'alo' with convention 'corrected', got another: take steps=0"
            )
        if self.n_groups < 2:
            raise ValueError(f"LooSettings: n_groups must be at least 2, got {self.n_groups}")
        if self.n_models is not None and self.n_models < 1:
            raise ValueError(f"LooSettings: n_models must be at least 1, got {self.n_models}")


def leave_one_out(
    trained: Fit | ModuleFit,
    graph: Graph | None = None,
    *,
    damping: float | None = None,
    nodes: Tensor | None = None,
    settings: LooSettings | None = None,
    progress: Progress = None,
    chosen: Tensor | None = None,
) -> LooChange:
    """Returns what leaving each labelled node out does to the logits.

    Args:
        trained: the network and its labels; a `ModuleFit` goes through reverse-mode derivatives: m (k - 1) backward
            passes, one more per left-out model, and m (k - 1) p numbers.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        damping: added to the curvature, in place of the settings'; None: theirs, or the weight decay.
        nodes: nodes to evaluate, int64 [n]; None: all.
        settings: the method; None: `alo`.
        progress: of "retrain" and of `steps`, called with the number of labels done.
        chosen: of "retrain" and of `steps`: distinct places of the labels to leave out, int64 [s]; None: as many as the
            settings say.

    Returns:
        The changes, with diagnostics.

    Raises:
        ValueError: a setting does not fit the network.
        InputError: it would not fit into memory.
        NotConvergedError: a solver did not converge.
    """
    settings = settings or LooSettings()
    started, peak = time.perf_counter(), _peak_bytes()
    everywhere = field_at(trained, graph, nodes)
    tape = trained.tape()
    asked = damping if damping is not None else settings.damping
    mu = damping_of(trained, settings, damping)
    reason = "the weight decay of training" if asked is None else "as asked for"
    if settings.convention == "official" and asked is None:
        mu, reason = OFFICIAL_DAMPING, "the authors' code"
    if isinstance(tape, ModuleTape):
        _check_module(settings)
    estimated = _check(tape, everywhere, settings)
    if _method(settings) == "retrain" or settings.steps:
        if chosen is None:
            chosen = drawn(tape.n_nodes, settings.n_models, settings.seed).to(tape.targets.device)
        check_nodes("leave_one_out", chosen, tape.n_nodes, "chosen")
        if chosen.numel() == 0:
            raise ValueError("leave_one_out: chosen must name at least one label, got none")
        one_by_one = _alo_steps if settings.steps else _retrain
        out = one_by_one(trained, everywhere, mu, settings, progress, chosen)
    elif chosen is not None:
        raise ValueError("leave_one_out: chosen must come with steps or method 'retrain', got another: leave it out")
    else:
        out = _METHODS[_method(settings)](trained, tape, everywhere, mu, settings)
    facts = out.diagnostics or Diagnostics("alo", _form(tape, settings), out.damping)
    if facts.damping_reason == "the weight decay of training":
        facts = dataclasses.replace(facts, damping_reason=reason)
    facts = dataclasses.replace(
        facts,
        seconds=time.perf_counter() - started,
        estimated_bytes=estimated,
        peak_bytes=max(0, _peak_bytes() - peak),
    )
    if settings.convention == "paper":  # a copy of the largest tensor only where the sign asks for it
        out = dataclasses.replace(out, change=-out.change, own=-out.own)
    at = everywhere if isinstance(everywhere, Tensor) else everywhere.nodes
    return dataclasses.replace(out, diagnostics=facts, nodes=at)


def few_enough(settings: LooSettings, m: int) -> tuple[LooSettings, str]:
    """Returns settings that leave out no more of m labels than a quantile needs, and a note if they were too many."""
    plain = settings.method == "alo" and settings.convention == "corrected" and settings.form in ("auto", "primal")
    n_models = settings.n_models or MOST_MODELS
    if not plain or settings.forward == "full" or settings.steps or m <= n_models:
        return settings, ""
    return dataclasses.replace(settings, method="replicates", n_models=n_models), (
        f"intervals rest on {n_models:,} of the {m:,} models without a label, drawn at random: the level of an end is "
        f"off by {quantile_error(n_models, m):.2f} at most, with 95 % confidence (in Python: LooSettings(n_models=...))"
    )


def models_drawn(settings: LooSettings, tape: Tape) -> Tensor | None:
    """Returns the places of the labels that "replicates" leaves out, int64 [s]; None with another method."""
    if settings.method != "replicates":
        return None
    return drawn(tape.n_nodes, settings.n_models or MOST_MODELS, settings.seed).to(tape.targets.device)


def damping_of(trained: AnyFit, settings: LooSettings, damping: float | None) -> float:
    """Returns what is added to the curvature: as asked for, else the settings', else the weight decay."""
    asked = damping if damping is not None else settings.damping
    if asked is not None:
        _check_damping("leave_one_out", asked)
        return asked
    if trained.weight_decay == 0 and settings.convention != "official":
        raise ValueError("leave_one_out: damping must be given where the weight decay is 0, got None")
    return trained.weight_decay


def _check_damping(where: str, damping: float) -> None:
    if not 0 < damping < math.inf:
        raise ValueError(f"{where}: damping must be positive and finite, got {damping}")


def field_at(trained: Fit | ModuleFit, graph: Graph | None, nodes: Tensor | None) -> Where:
    """Returns where a network is to be evaluated, at some nodes or at all; a `Fit` in `receptive_field_at`."""
    if isinstance(trained, ModuleFit):
        every = torch.arange(trained.logits().shape[0], device=trained.nodes.device)
        if nodes is None:
            return every
        check_nodes("leave_one_out", nodes, every.numel())
        return nodes
    if graph is None:
        raise ValueError("leave_one_out: graph must be given with a GCN, got None")
    return receptive_field_at(trained, graph, nodes)


def receptive_field_at(trained: Fit, graph: Graph, nodes: Tensor | None) -> ReceptiveField:
    """Returns the receptive field of some nodes, or of all without a copy of anything, in the network's dtype."""
    kept = propagation(graph, trained.model.hops).to(trained.model.weights[0].dtype)
    n_layers = trained.model.n_layers
    if nodes is not None:
        check_nodes("leave_one_out", nodes, graph.n_nodes)
        return kept.field(nodes, n_layers)
    every = torch.arange(graph.n_nodes, device=graph.device)
    return ReceptiveField((every,) * n_layers, kept.inputs, (kept.a_hat,) * (n_layers - 1))


def _method(settings: LooSettings) -> str:
    if settings.convention != "corrected":
        return "influence"
    return "randomised" if settings.method == "alo" and settings.form == "randomised" else settings.method


def _alo(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    return alo(tape, everywhere, mu, form=_form(tape, settings), forward=settings.forward)


def _alo_steps(
    trained: AnyFit, everywhere: Where, mu: float, settings: LooSettings, progress: Progress, chosen: Tensor
) -> LooChange:
    if trained.weight_decay == 0:
        raise ValueError("leave_one_out: steps must have a positive weight decay, got 0: there need not be a minimum")
    if isinstance(trained, ModuleFit):
        assert isinstance(everywhere, Tensor)
        return alo_steps_of_module(trained, everywhere, mu, settings.steps, progress, chosen)
    assert isinstance(everywhere, ReceptiveField)
    return alo_steps(trained, everywhere, mu, settings.steps, progress, chosen)


def _randomised(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    assert isinstance(tape, GcnTape)
    return randomised(tape, mu, seed=settings.seed)


def _influence(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    solver = settings.solver
    if solver is None and settings.convention != "corrected":
        solver = SolverSettings("lowrank" if shallow(tape) else "cg")
    return influence(tape, everywhere, mu, solver, forward=settings.forward)


def _newton(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    return newton(tape, everywhere, mu, settings.solver, forward=settings.forward)


def _retrain(
    trained: AnyFit, everywhere: Where, mu: float, settings: LooSettings, progress: Progress, chosen: Tensor
) -> LooChange:
    return retrain(trained, everywhere, chosen, jobs=settings.jobs, folder=settings.folder, progress=progress)


def _grouped(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    return grouped(tape, everywhere, mu, fold_of(tape.targets, min(settings.n_groups, tape.n_nodes), settings.seed))


def _replicates(trained: AnyFit, tape: Tape, everywhere: Where, mu: float, settings: LooSettings) -> LooChange:
    chosen = models_drawn(settings, tape)
    assert chosen is not None
    return replicates(tape, everywhere, mu, chosen)


_METHODS = {
    "alo": _alo,
    "randomised": _randomised,
    "influence": _influence,
    "newton": _newton,
    "grouped": _grouped,
    "replicates": _replicates,
}


def _form(tape: Tape, settings: LooSettings) -> str:
    if settings.form != "auto":
        return settings.form
    form = choose_form(tape)
    return "jacobian" if form == "gram" and settings.forward == "full" else form


def _check_module(settings: LooSettings) -> None:
    """Refuses what only a GCN of our own has: closed forms, and products made for samples."""
    for form in ("gram", "randomised"):
        if settings.form == form:
            raise ValueError(f"leave_one_out: form {form} must have a GCN, got another module: take form='auto'")
    if settings.solver is not None and settings.solver.solver == "lowrank":
        raise ValueError("leave_one_out: solver lowrank must have a GCN, got another module: take solver='cg'")


def _check(tape: Tape, everywhere: Where, settings: LooSettings) -> int:
    """Returns the memory a method will take; refuses what does not fit."""
    method = _method(settings)
    closed = shallow(tape)
    models = tape.n_nodes
    if method == "grouped":
        models, form = min(settings.n_groups, models), "gram" if closed else "jacobian"
    elif method in ("replicates", "retrain"):
        most = settings.n_models or (models if method == "retrain" else MOST_MODELS)
        models, form = min(most, models), choose_form(tape)
    elif method in ("influence", "newton"):
        default = "lowrank" if closed and (method == "newton" or settings.convention != "corrected") else "cg"
        form = default if settings.solver is None else settings.solver.solver
        form = ("gram" if closed else "jacobian") if form == "ggn" else form
    else:
        models = min(settings.n_models or models, models) if settings.steps else models
        form = "steps" if settings.steps else "randomised" if method == "randomised" else _form(tape, settings)
    needed = estimate_bytes(method, form, tape, everywhere, models)
    check_memory(needed, settings.memory_limit, tape.logits.device, _remedy(tape, everywhere, settings, form))
    return needed


def _remedy(tape: Tape, everywhere: Where, settings: LooSettings, form: str) -> str:
    """Returns the setting that needs least among those that still answer the question."""
    if form in ("dense", "lowrank", "jacobian", "primal", "cg") and shallow(tape):
        return "take method='alo' with form='gram', or fewer nodes"
    if isinstance(tape, ModuleTape):
        return "evaluate fewer nodes at a time, or leave fewer labels out with method='replicates'"
    own_only = estimate_bytes("alo", "randomised", tape, everywhere, 0)
    return (
        "evaluate fewer nodes at a time, or take form='randomised', which gives the labels' own logits alone in about "
        f"{own_only / 1e9:.2f} GB"
    )


def _peak_bytes() -> int:
    """Returns the largest resident set this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
