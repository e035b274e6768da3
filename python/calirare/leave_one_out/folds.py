"""Networks trained without folds of the labels, and how well a leave-one-out method foresees them."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.curvature import logit_differences
from calirare.leave_one_out.held_out import Retraining, retrained_modules
from calirare.leave_one_out.trust import gradient_ratio
from calirare.models import ModuleFit, converge, evaluating

FOLDS = 10
MOST_LABELS, MOST_NODES = 5_000, 200_000  # beyond these the library trains no networks by itself
RATE, MOST_EPOCHS, LOOK_EVERY = 0.02, 400, 5  # of Adam, until the loss is the given network's
LOOKED_AT = 1_000  # nodes at which changes are compared
AT_MINIMUM = 0.1  # gradient over that of the weight decay, up to which a network is trained on to its new minimum
BY_US, BY_USER = "Adam, new parameters, until the loss is the given network's", "retrain"
BY_DESCENT = "from the given network to the minimum without the fold"


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """What networks trained without each fold of the labels say.

    Attributes:
        fold: of each label, int64 [m], 0 to K - 1.
        logits: of each label by the network without its fold, [m, k].
        own: how each label's logit differences change without its fold, [m, k - 1].
        nodes: other nodes, int64 [n].
        change: how theirs change without each fold, [n, k - 1, K].
        how: they were trained.
        seconds: for all of them.
    """

    fold: Tensor
    logits: Tensor
    own: Tensor
    nodes: Tensor
    change: Tensor
    how: str
    seconds: float

    __repr__ = brief

    @property
    def number(self) -> int:
        """Number of folds, K."""
        return self.change.shape[2]

    def likeness(self, own: Tensor, change: Tensor) -> tuple[float, float]:
        """Returns the correlation of estimated changes with these, at the labels [m, k - 1] and at `nodes`."""
        return correlation(own, self.own), correlation(change, self.change)


def correlation(ours: Tensor, theirs: Tensor) -> float:
    """Returns the correlation of two tensors of one shape over all entries; 0 where one is constant."""
    a, b = (each.flatten().double() - each.double().mean() for each in (ours, theirs))
    size = float(a.norm() * b.norm())
    return float(a @ b) / size if size > 0 and math.isfinite(size) else 0.0


def fold_networks(
    fitted: ModuleFit, retrain: Retraining | None = None, folds: int = FOLDS, seed: int = 0
) -> FoldNetworks | None:
    """Returns networks trained without each fold of the labels; None where the library cannot train them by itself.

    Args:
        fitted: the network with its labels.
        retrain: trains a network as this one was trained on the labelled nodes it is given, from the same random
            numbers at each call, and returns it; changes are measured from the one that it trains on all labels. None:
            a network at a minimum goes on from there by L-BFGS; another is trained by Adam with the module's own
            `reset_parameters`, weights of labels and weight decay, as many epochs as one with all labels takes to the
            loss of the given network, at most 400.
        folds: K, 2 to m.
        seed: of the folds, and of the parameters and dropout.

    Raises:
        InputError: there are too few labels, or what `retrain` returns is no such network.
    """
    m, started = fitted.nodes.numel(), time.perf_counter()
    n, how = fitted.logits().shape[0], BY_USER
    if retrain is None:
        if m > MOST_LABELS or n > MOST_NODES:
            return None
        if gradient_ratio(fitted, fitted.gradient_norm()) <= AT_MINIMUM:
            how, retrain = BY_DESCENT, partial(_descended, fitted)
        elif _starts_anew(fitted.model):
            how, retrain = BY_US, _Training(fitted, seed)
        else:
            return None
    nodes = torch.arange(n, device=fitted.nodes.device)
    nodes = nodes[~torch.isin(nodes, fitted.nodes)]
    order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))
    nodes = nodes[order[:LOOKED_AT].to(nodes.device)]
    whole = fitted.logits() if how == BY_DESCENT else _logits(retrain(fitted.nodes), fitted)
    fold, logits = torch.zeros_like(fitted.targets), torch.empty_like(fitted.label_logits)
    own, changes = torch.empty_like(logit_differences(logits)), list[Tensor]()
    for number, (held, module) in enumerate(retrained_modules(fitted, retrain, min(folds, m), seed)):
        there, fold[held] = _logits(module, fitted), number
        moved = logit_differences(there) - logit_differences(whole)
        logits[held], own[held] = there[fitted.nodes[held]], moved[fitted.nodes[held]]
        changes.append(moved[nodes])
    return FoldNetworks(fold, logits, own, nodes, torch.stack(changes, 2), how, time.perf_counter() - started)


def _logits(module: nn.Module, fitted: ModuleFit) -> Tensor:
    """Returns a retrained module's logits of every node, [n, k]; an InputError where it is none."""
    if not isinstance(module, nn.Module):
        raise InputError(f"retrain: it must return a torch module, got {type(module).__name__}: return the network")
    with evaluating(module), torch.no_grad():
        out: Tensor = module(*fitted.inputs)
    return out


def _descended(fitted: ModuleFit, nodes: Tensor) -> nn.Module:
    """Returns the network at the minimum of the loss of some of its labels."""
    weights = fitted.sample_weights * torch.isin(fitted.nodes, nodes)
    there = converge(fitted.copy(sample_weights=weights), max_steps=MOST_EPOCHS)[0]
    return there.model.to(fitted.label_logits.dtype)


def _starts_anew(module: nn.Module) -> bool:
    """Returns whether every parameter belongs to a part that can set it to new random numbers."""
    parts = [part for part in module.modules() if callable(getattr(part, "reset_parameters", None))]
    renewed = {id(p) for part in parts for p in part.parameters()}
    return all(id(p) in renewed for p in module.parameters() if p.requires_grad)


class _Training:
    """Trains networks like a given one: Adam from new parameters, the first until the loss is the given one's."""

    def __init__(self, fitted: ModuleFit, seed: int) -> None:
        self.fitted, self.seed = fitted, seed
        self.inputs, self.places = fitted.surroundings(fitted.nodes)
        weights = fitted.sample_weights.to(fitted.label_logits)
        losses = F.cross_entropy(fitted.label_logits, fitted.targets, reduction="none")
        self.wanted = float((weights * losses).sum() / weights.sum())
        self.messages, self.epochs = dict[Any, Any](), 0

    def __call__(self, nodes: Tensor) -> nn.Module:
        """Returns a network trained on some of the labelled nodes."""
        module = copy.deepcopy(self.fitted.model)
        kept = torch.isin(self.fitted.nodes, nodes)
        places, targets = self.places[kept], self.fitted.targets[kept]
        weights = self.fitted.sample_weights[kept].to(self.fitted.label_logits)
        weights = weights / weights.sum()

        def loss() -> Tensor:
            return (weights * F.cross_entropy(module(*self.inputs)[places], targets, reduction="none")).sum()

        keep_constants(module, self.messages)
        device = weights.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
            torch.manual_seed(self.seed)
            for part in module.modules():
                if callable(renew := getattr(part, "reset_parameters", None)):
                    renew()
            adam = torch.optim.Adam(
                [p for p in module.parameters() if p.requires_grad], lr=RATE, weight_decay=self.fitted.weight_decay
            )
            first, epochs = not self.epochs, self.epochs or MOST_EPOCHS
            for epoch in range(1, epochs + 1):
                module.train()
                adam.zero_grad()
                loss().backward()
                adam.step()
                if first and epoch % LOOK_EVERY == 0:
                    self.epochs = epoch
                    with torch.no_grad(), evaluating(module):
                        arrived = float(loss()) <= self.wanted
                    if arrived:
                        break
        for part in module.modules():
            part.__dict__.pop("propagate", None)
        return module.eval()


def keep_constants(module: nn.Module, kept: dict[Any, Any]) -> None:
    """Lets PyTorch Geometric layers of a module compute once, into `kept`, messages that depend on no parameter."""
    for part in module.modules():
        if hasattr(part, "propagate"):
            part.propagate = _Constant(part.propagate, kept)  # type: ignore[assignment]


class _Constant:
    """`propagate` of a PyTorch Geometric layer that computes once what depends on no parameter: means of the inputs."""

    def __init__(self, propagate: Any, kept: dict[Any, Any]) -> None:
        self.propagate, self.kept = propagate, kept

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        read = list[Tensor]()
        for each in (*args, *kwargs.values()):
            read += [x for x in (each if isinstance(each, tuple) else (each,)) if isinstance(x, Tensor)]
        key = (type(self.propagate.__self__).__name__, *((id(x), x._version) for x in read))
        if key in self.kept:
            return self.kept[key][1]
        out = self.propagate(*args, **kwargs)
        if not out.requires_grad and not any(x.grad_fn for x in read):
            self.kept[key] = (read, out)  # the tensors too: no other takes their place
        return out
