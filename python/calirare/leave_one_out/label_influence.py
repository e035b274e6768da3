"""What each training label does to the logits and the loss of each test node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.arrays import brief
from calirare._util.memory import check_memory
from calirare.curvature import with_class_zero
from calirare.graph import Graph, check_nodes
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.choice import choose_method
from calirare.leave_one_out.held_out import validation_of
from calirare.leave_one_out.leaving_out import leave_one_out
from calirare.leave_one_out.method import LeaveOneOutMethod
from calirare.models import FittedNetwork, ModuleFit, evaluating, fitted_of, node_labels

if TYPE_CHECKING:
    from torch_geometric.data import Data

BLOCK_NUMBERS = 16_000_000  # changes of logits held at once
LESS = "give top=, so that only the strongest labels of each node are kept, or fewer test nodes"


@dataclass(frozen=True, eq=False)
class LabelInfluence:
    """What leaving out each training label does to each test node: value without the label minus value with it.

    Attributes:
        train: nodes of the training labels, int64 [m].
        test: test nodes, int64 [n].
        labels: nodes of the labels of each row, int64 [n, s]: all m, or the strongest by |loss|, strongest first.
        logits: change of each logit, mean over classes 0, [n, s, k].
        loss: change of the cross-entropy, [n, s]; positive: the label helps this node.
        targets: the class that the loss is of, int64 [n]: the node's label, or the predicted class where it has none.
        reason: which method this is, and why.
    """

    train: Tensor
    test: Tensor
    labels: Tensor
    logits: Tensor
    loss: Tensor
    targets: Tensor
    reason: str

    __repr__ = brief


def influence(
    model: nn.Module | FittedNetwork,
    data: Graph | Data | None = None,
    train: Tensor | None = None,
    test: Tensor | None = None,
    *,
    top: int | None = None,
    method: LeaveOneOutMethod | None = None,
    **training: Any,
) -> LabelInfluence:
    """Returns the effect of each training label on the logits and the loss of each test node, without retraining.

    A leave-one-out step with leverage correction (`ALO`, `Tangent`); the loss is that of the changed logits, exactly.

    Args:
        model: any torch module with PyTorch Geometric's call, or a fitted network (`fit_of`).
        data: a `Data` or a `Graph`; None is enough for a `ModuleFit`.
        train: nodes of the labels it was trained on, a mask or numbers; None: the split's training nodes.
        test: test nodes, a mask or numbers; None: all nodes.
        top: keep the labels with the largest |change of loss| of each test node only; the full matrix is never made.
        method: such as `Tangent()`, or `result.choice.method` of `calirare.jackknife`; None: `ALO` with the damping at
            which its loss is that of the validation labels, without these the weight decay.
        **training: `class_weight`, `weight_decay` and `optimizer`, see `fit_of`.

    Raises:
        ValueError: a node does not exist, or an argument is of a bare network only.
        InputError: the matrix would not fit into memory: give `top`.

    Cost: a kernel of the labels once; for each test node k - 1 backward passes on its surroundings.
    """
    with evaluating(model if isinstance(model, nn.Module) else getattr(model, "model", None)):
        fitted, graph = fitted_of("influence", model, data, labels=train, **training)
        reason = "as requested"
        if method is None or (isinstance(method, ALO) and method.damping == "auto"):
            method, reason = ALO(), "ALO with the weight decay as damping"
            if isinstance(fitted, ModuleFit):
                choice = choose_method(fitted, folds=0, validation=validation_of(fitted, data))
                method, reason = choice.method, choice.reason
        return _influence(fitted, data, graph, test, top, method, reason)


def _influence(
    fitted: FittedNetwork,
    data: Graph | Data | None,
    graph: Graph | None,
    test: Tensor | None,
    top: int | None,
    method: LeaveOneOutMethod,
    reason: str,
) -> LabelInfluence:
    every = fitted.logits_of(graph)
    (n, k), m = every.shape, fitted.nodes.numel()
    nodes = torch.arange(n, device=every.device) if test is None else torch.as_tensor(test, device=every.device)
    nodes = nodes.nonzero().flatten() if nodes.dtype == torch.bool else nodes
    check_nodes("influence", nodes, n, "test")
    if top is not None and not 1 <= top <= m:
        raise ValueError(f"influence: top must be from 1 to {m}, the number of labels, got {top}")
    kept = m if top is None else top
    check_memory(nodes.numel() * kept * (k + 3) * every.element_size() * 2, None, every.device, LESS)
    y = None if data is None else node_labels("influence", data).y
    targets = every[nodes].argmax(1)
    if y is not None:
        known = y[nodes].to(targets)
        targets = torch.where((known >= 0) & (known < k), known, targets)
    parts = list[tuple[Tensor, Tensor, Tensor]]()
    step = max(1, BLOCK_NUMBERS // (m * k))
    for some, target in zip(nodes.split(step), targets.split(step), strict=True):
        moved = leave_one_out(fitted, graph, method, nodes=some).change.transpose(1, 2)  # [b, m, k - 1]
        change = with_class_zero(moved.flatten(0, 1)).view(*moved.shape[:2], k)
        before, labels = every[some][:, None].expand_as(change), target[:, None].expand(-1, m)
        loss = _losses(before + change, labels) - _losses(before, labels)
        strongest = loss.abs().topk(kept, 1).indices if top else torch.arange(m).to(labels).expand(len(some), -1)
        change = change.gather(1, strongest[:, :, None].expand(-1, -1, k))
        parts.append((strongest, change - change.mean(2, keepdim=True), loss.gather(1, strongest)))
    places, logits, loss = (torch.cat(each) for each in zip(*parts, strict=True))
    return LabelInfluence(fitted.nodes, nodes, fitted.nodes[places], logits, loss, targets, reason)


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the cross-entropy of logits [b, m, k] at classes [b, m]."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
