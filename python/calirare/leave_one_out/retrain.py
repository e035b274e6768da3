"""True leave-one-out by retraining: the judge of every other method. Parallel, warm-started, resumable."""

from __future__ import annotations

import copy
import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.processes import workers
from calirare.curvature.module_tape import Where
from calirare.leave_one_out.result import Diagnostics, LooChange, models_of
from calirare.models.convergence import minimise, minimise_module
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import Fit
from calirare.models.module_fit import ModuleFit
from calirare_ext import Csr, ReceptiveField

TOLERANCE, MAX_STEPS = 1e-6, 400
NONE_LEFT_OUT = -1
AnyFit = Fit | ModuleFit


@dataclass(frozen=True)
class Retrained:
    """A network trained on without one label, or with all.

    Attributes:
        logits: at the nodes v and, last, at the left-out one, [n_v + 1, k]; with all labels at the m of them.
        gradient_norm: |grad| of its penalised loss.
    """

    logits: np.ndarray
    gradient_norm: float


Task = Callable[[int], Retrained]


def retrain(
    trained: AnyFit,
    everywhere: Where,
    chosen: Tensor,
    *,
    jobs: int = 1,
    folder: str | Path | None = None,
    tolerance: float = TOLERANCE,
    max_steps: int = MAX_STEPS,
    progress: Callable[[int], None] | None = None,
) -> LooChange:
    """Returns what leaving some labels out really does: each network is trained on without one label.

    Every retraining starts at the full fit and minimises the same loss with that label's weight at 0. What it moves is
    measured from the full fit trained on in the same way with every label: a loss that stands still on kinks goes on
    falling by little, and the logits by more. The fit must be near a minimum all the same (`convergence.converge`).

    Args:
        trained: the network at a minimum, better in float64.
        everywhere: receptive field of the nodes v, in the dtype of the network; of a module the nodes themselves.
        chosen: distinct places of labelled nodes to leave out, int64 [s].
        jobs: processes, >= 1.
        folder: keeps each finished node; a second call with the same network takes up where the first ended.
        tolerance: on the gradient's norm.
        max_steps: L-BFGS steps per node.
        progress: called with the number of nodes done after each.

    Returns:
        Changes with s models; own changes of labels that were not chosen are NaN.

    Raises:
        ValueError: there is no process, or no weight decay.
        InputError: the folder belongs to another network, or a file in it is damaged.
    """
    if jobs < 1:
        raise ValueError(f"retrain: jobs must be at least 1, got {jobs}")
    if trained.weight_decay == 0:
        raise ValueError("retrain: weight decay must be positive, got 0: without it there need not be a minimum")
    store = _Store(folder, trained, everywhere, (tolerance, max_steps))
    places = [NONE_LEFT_OUT, *chosen.tolist()]
    found = {i: store.read(i) for i in places if store.has(i)}
    todo = [i for i in places if i not in found]
    task = _task(trained, everywhere, tolerance, max_steps)
    done = len(found.keys() - {NONE_LEFT_OUT})
    if progress is not None and done:
        progress(done)
    for i, one in _run(task, todo, jobs):
        store.write(i, one)
        found[i] = one
        if i == NONE_LEFT_OUT:
            continue
        done += 1
        if progress is not None:
            progress(done)
    kept = found.pop(NONE_LEFT_OUT)
    unconverged = sum(one.gradient_norm > tolerance for one in found.values()) / max(len(found), 1)
    return _assemble(trained, chosen, kept, found, unconverged)


def _assemble(
    trained: AnyFit, chosen: Tensor, kept: Retrained, found: dict[int, Retrained], unconverged: float
) -> LooChange:
    """Returns the changes from the logits of each model and of the one with all labels."""
    m = trained.nodes.numel()
    before, own_before = _differences(torch.from_numpy(kept.logits).to(trained.nodes.device)).tensor_split([-m])
    k = own_before.shape[1]
    change = before.new_empty(before.shape[0], k, chosen.numel())
    own = torch.full_like(own_before, float("nan"))
    for column, i in enumerate(chosen.tolist()):
        after = _differences(torch.from_numpy(found[i].logits).to(before))
        change[:, :, column] = after[:-1] - before
        own[i] = after[-1] - own_before[i]
    model_of = models_of(m, chosen.to(before.device))
    leverage = torch.full((m,), float("nan"), dtype=torch.float64, device=before.device)
    reason = "the weight decay of training; retraining has no damping beside it"
    facts = Diagnostics("retrain", "L-BFGS", trained.weight_decay, reason, unconverged=unconverged)
    return LooChange(change, own, leverage, trained.weight_decay, model_of, facts)


def logits_at(trained: AnyFit, everywhere: Where) -> Tensor:
    """Returns the logits of the nodes to evaluate, [n_v, k], without gradient."""
    if isinstance(trained, ModuleFit):
        assert isinstance(everywhere, Tensor)
        return trained.logits(everywhere)
    assert isinstance(everywhere, ReceptiveField)
    with torch.no_grad():
        return trained.model(everywhere)


def _differences(logits: Tensor) -> Tensor:
    return logits[:, 1:] - logits[:, :1]


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


def _task(trained: AnyFit, everywhere: Where, tolerance: float, max_steps: int) -> Task:
    if isinstance(trained, ModuleFit):
        assert isinstance(everywhere, Tensor)
        return _ModuleTask(trained, everywhere, tolerance, max_steps)
    assert isinstance(everywhere, ReceptiveField)
    return _Task(trained, everywhere, tolerance, max_steps)


@dataclass(frozen=True)
class _ModuleTask:
    """Retrains any module without one label."""

    trained: ModuleFit
    where: Tensor
    tolerance: float
    max_steps: int

    def __call__(self, left_out: int) -> Retrained:
        weights, own = _left_out(self.trained.sample_weights, left_out)
        model = copy.deepcopy(self.trained.model)
        without = replace(self.trained, model=model, sample_weights=weights)
        end = minimise_module(without, tolerance=self.tolerance, max_steps=self.max_steps, warm=True)
        where = torch.cat([self.where, self.trained.nodes[own]])
        return Retrained(without.logits(where).cpu().numpy(), end.gradient_norm)


class _Task:
    """Retrains a GCN without one label."""

    def __init__(self, trained: Fit, everywhere: ReceptiveField, tolerance: float, max_steps: int) -> None:
        self.model = copy.deepcopy(trained.model)
        self.field, self.everywhere = trained.field, everywhere
        self.targets, self.weights = trained.targets, trained.sample_weights
        self.weight_decay, self.tolerance, self.max_steps = trained.weight_decay, tolerance, max_steps

    def __call__(self, left_out: int) -> Retrained:
        model: GCN = copy.deepcopy(self.model)
        weights, own = _left_out(self.weights, left_out)
        end = minimise(
            model,
            self.field,
            self.targets,
            weights,
            self.weight_decay,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            warm=True,
        )
        with torch.no_grad():
            logits = torch.cat([model(self.everywhere), model(self.field)[own]]).cpu().numpy()
        return Retrained(logits, end.gradient_norm)


def _bytes_of(part: Any) -> Iterator[bytes]:
    """Yields what tells a part of the problem from another: numbers of tensors, whatever holds them."""
    if isinstance(part, ReceptiveField):
        part = (*part.rows, part.inputs, *part.blocks)
    if isinstance(part, Csr):
        part = (part.indptr, part.indices, part.values, part.n_cols)
    if isinstance(part, Tensor) and part.layout == torch.strided:
        yield f"{part.dtype}{list(part.shape)}".encode()
        yield part.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(part, Tensor):
        coo = part.detach().to_sparse_coo().coalesce()
        yield from _bytes_of((coo.indices(), coo.values(), str(part.shape)))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _bytes_of(inner)
    else:
        yield pickle.dumps(part)


def _left_out(weights: Tensor, place: int) -> tuple[Tensor, slice]:
    """Returns the weights without a label, or all, and the places whose own logits are asked for."""
    if place == NONE_LEFT_OUT:
        return weights, slice(None)
    without = weights.clone()
    without[place] = 0.0
    return without, slice(place, place + 1)


_TASK: list[Task] = []


def _prepare(task: Task) -> None:
    torch.set_num_threads(1)
    _TASK[:] = [task]


def _work(left_out: int) -> Retrained:
    return _TASK[0](left_out)


class _Store:
    """One file per finished node in a folder that remembers which problem it is about."""

    def __init__(self, folder: str | Path | None, trained: AnyFit, everywhere: Where, how: tuple[float, int]) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        seen = trained.inputs if isinstance(trained, ModuleFit) else trained.field
        labels = (trained.nodes, trained.targets, trained.sample_weights, trained.weight_decay)
        digest = hashlib.sha256()
        for part in _bytes_of((*trained.model.parameters(), *trained.model.buffers(), labels, seen, everywhere, how)):
            digest.update(part)
        name = self.folder / "network.sha256"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not name.exists():
            name.write_text(digest.hexdigest() + "\n")
        elif name.read_text().strip() != digest.hexdigest():
            raise InputError(
                f"{self.folder}: the folder holds retrainings of another network, graph or weight decay: give another"
            )

    def _file(self, i: int) -> Path:
        assert self.folder is not None
        return self.folder / ("with_all.npz" if i == NONE_LEFT_OUT else f"without_{i}.npz")

    def has(self, i: int) -> bool:
        return self.folder is not None and self._file(i).is_file()

    def read(self, i: int) -> Retrained:
        try:
            with np.load(self._file(i), allow_pickle=False) as stored:
                return Retrained(stored["logits"], float(stored["gradient_norm"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{self._file(i)}: the file is damaged ({error}): delete it and run again") from error

    def write(self, i: int, one: Retrained) -> None:
        if self.folder is None:
            return
        part = self._file(i).with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, logits=one.logits, gradient_norm=one.gradient_norm)
        part.replace(self._file(i))  # a file that is there is whole
