"""An average of detectors: each passes through its calibrator, and probabilities are averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from calirare.explain.explainable_model import ExplainableModel, Kept, Shares
from calirare.explain.shares import added, completed, passed_on, stretched
from calirare.models import SMALLEST_P, Mixture


class ExplainableMixture(ExplainableModel):
    """Weights and calibrators of the members stay as they are, whatever is left out.

    Args:
        mixture: the average.
        models: its members, in their order.
    """

    def __init__(self, mixture: Mixture, models: Sequence[ExplainableModel]) -> None:
        self._kept, self.mixture, self.models = Kept[Tensor](), mixture, tuple(models)
        self.notes = tuple(dict.fromkeys(note for model in models for note in model.notes))
        self.label_work = sum(model.label_work for model in models)

    @property
    def label_notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `ExplainableModel`."""
        return tuple(dict.fromkeys(note for model in self.models for note in model.label_notes))

    @property
    def expensive(self) -> bool:  # type: ignore[override]
        """See `ExplainableModel`."""
        return any(model.expensive for model in self.models)

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`; logarithms of the probabilities."""
        return self._kept.of(nodes, lambda some: self._pooled(lambda model: model.logits(some)))

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._pooled(lambda model: model.without_each_label(nodes))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: those of each member, as parts of the probability that it adds."""
        parts, rest = list[Shares](), self.mixture.rest
        logits = [model.logits(nodes) for model in self.models]
        members = list(zip(self.mixture.members, self.models, logits, strict=True))
        each = torch.stack([member.weight * ~z.isnan().any(1) for member, _, z in members])
        for (member, model, _), weight in zip(members, each / each.sum(0), strict=True):
            own = model.shares(nodes)
            if own is None:
                return None
            p = passed_on(own, member.probabilities)
            parts.append(Shares(weight[:, None] * p.base, p.names, weight[:, None, None] * p.values))
        together, silent = added(parts), (each == 0).any(0)[:, None]
        base, end = (p.clamp(min=SMALLEST_P).log() for p in (together.base, together.base + together.values.sum(1)))
        shares, total = stretched(together, base, end), self.logits(nodes)
        if rest is not None:
            scale = torch.where(silent, rest.scale, 1.0).double()
            base = scale * base + silent * base.new_tensor(rest.shift)
            shares = Shares(base, shares.names, scale[:, :, None] * shares.values)
        # Where members are silent this is a constant of the node, which means nothing.
        off = total - shares.base - shares.values.sum(1)
        return completed(Shares(shares.base + off.mean(1, keepdim=True), shares.names, shares.values), total)

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return self._pooled(lambda model: model.without_edges(node, ends))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return self._pooled(lambda model: model.without_labels(nodes, sets))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        return self._pooled(lambda model: model.with_each_label(nodes, more))

    def _pooled(self, logits: Callable[[ExplainableModel], Tensor]) -> Tensor:
        """Returns the logarithms of the members' mean probabilities."""
        return self.mixture.pooled([logits(model) for model in self.models])
