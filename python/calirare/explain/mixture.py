"""An average of detectors as one model: each speaks through its map, and probabilities are averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.explainable_model import ExplainableModel, Kept, Shares, two_columns
from calirare.explain.shares import added, completed, passed_on, stretched
from calirare.models import SMALLEST_P, Member, Mixture, calibrated_probabilities, pooled_probabilities


@dataclass(frozen=True, eq=False)
class Part:
    """A member of an average with its model.

    Attributes:
        member: its map and weight.
        model: on the graph.
    """

    member: Member
    model: ExplainableModel

    @cached_property
    def _line(self) -> tuple[float, float] | None:
        """Slope and intercept of its map of log-odds; None where it is no line."""
        bias = self.member.calibrator.bias_
        return None if bias is None else (self.member.calibrator.scale_, float(bias[1] - bias[0]))

    def spoken(self, log_odds: Tensor) -> Tensor:
        """Returns its P(rare) at log-odds of its own, float64; NaN where these are."""
        if self._line is not None:
            slope, intercept = self._line
            return torch.sigmoid(slope * log_odds.double() + intercept)
        return calibrated_probabilities(self.member.calibrator, two_columns(log_odds.double().flatten()))[:, 1].reshape(
            log_odds.shape
        )


class ExplainableMixture(ExplainableModel):
    """Weights and maps of the members stay as they are, whatever is left out.

    Args:
        mixture: the average.
        models: of its members, in their order.
    """

    def __init__(self, mixture: Mixture, models: Sequence[ExplainableModel]) -> None:
        self._kept, self.mixture, self.rest = Kept[Tensor](), mixture, mixture.rest
        pairs = zip(mixture.members, models, strict=True)
        self.parts = tuple(Part(member, model) for member, model in pairs)
        self.notes = tuple(dict.fromkeys(note for part in self.parts for note in part.model.notes))

    @property
    def expensive(self) -> bool:
        """See `ExplainableModel.expensive`."""
        return any(part.model.expensive for part in self.parts)

    def prepare(self, nodes: Tensor) -> None:
        """See `ExplainableModel.prepare`."""
        for part in self.parts:
            part.model.prepare(nodes)

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.log_odds`."""
        return self._kept.of(nodes, lambda some: self._pooled(lambda model: model.log_odds(some)))

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._pooled(lambda model: model.without_each_label(nodes))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: those of each member, as parts of the probability that it adds."""
        if self._of_many:
            return self._shares_of_many(nodes)
        parts, odds = [], [part.model.log_odds(nodes) for part in self.parts]
        each = torch.stack([part.member.weight * ~said.isnan() for part, said in zip(self.parts, odds, strict=True)])
        for part, said, weight in zip(self.parts, odds, each / each.sum(0), strict=True):
            own = part.model.shares(nodes)
            if own is None:
                return None
            total = weight * part.spoken(said).nan_to_num(nan=0.0)
            parts.append(stretched(own, weight * part.spoken(own.base), total))
        together = added(parts)
        silent = (each == 0).any(0)
        return stretched(together, self._of_rest(_log_odds(together.base), silent), self.log_odds(nodes))

    def _shares_of_many(self, nodes: Tensor) -> Shares | None:
        """Returns the same of the logits of k > 2 classes, which are logarithms of the probabilities of the average."""
        parts, said = [], [part.model.log_odds(nodes) for part in self.parts]
        each = torch.stack([p.member.weight * ~z.isnan().any(1) for p, z in zip(self.parts, said, strict=True)])
        for part, weight in zip(self.parts, each / each.sum(0), strict=True):
            own = part.model.shares(nodes)
            if own is None:
                return None
            p = passed_on(own, part.member.probabilities)
            parts.append(Shares(weight[:, None] * p.base, p.names, weight[:, None, None] * p.values))
        together, silent = added(parts), (each == 0).any(0)[:, None]
        base, end = (p.clamp(min=SMALLEST_P).log() for p in (together.base, together.base + together.values.sum(1)))
        shares, total = stretched(together, base, end), self.log_odds(nodes)
        if self.rest is not None:
            scale = torch.where(silent, self.rest.scale, 1.0).double()
            base = scale * base + silent * base.new_tensor(self.rest.shift)
            shares = Shares(base, shares.names, scale[:, :, None] * shares.values)
        off = total - shares.base - shares.values.sum(1)  # of silent members a constant of the node, which says nothing
        return completed(Shares(shares.base + off.mean(1, keepdim=True), shares.names, shares.values), total)

    @property
    def _of_many(self) -> bool:
        """Whether there are more than two classes."""
        return self.parts[0].member.fitted.n_classes > 2

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return self._pooled(lambda model: model.without_edges(node, ends))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return self._pooled(lambda model: model.without_labels(nodes, sets))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        return self._pooled(lambda model: model.with_each_label(nodes, more))

    def with_labels(self, nodes: Tensor, more: Tensor, y: Tensor) -> Tensor:
        """See `ExplainableModel.with_labels`."""
        return self._pooled(lambda model: model.with_labels(nodes, more, y))

    def _pooled(self, said: Callable[[ExplainableModel], Tensor]) -> Tensor:
        """Returns the log-odds of the members' mean probability; of more than two classes its logarithms."""
        if self._of_many:
            return self.mixture.pooled([said(part.model) for part in self.parts])
        p = [part.spoken(said(part.model)) for part in self.parts]
        silent = torch.stack(p).isnan().any(0)
        return self._of_rest(_log_odds(pooled_probabilities(p, [part.member.weight for part in self.parts])), silent)

    def _of_rest(self, odds: Tensor, silent: Tensor) -> Tensor:
        """Returns log-odds as the average tells them of nodes that a member is silent of, see `FallbackScale`."""
        return odds if self.rest is None else torch.where(silent, self.rest.log_odds(odds), odds)


def _log_odds(p: Tensor) -> Tensor:
    """Returns the log-odds of probabilities; see `SMALLEST_P`."""
    return p.clamp(min=SMALLEST_P).log() - (1 - p).clamp(min=SMALLEST_P).log()
