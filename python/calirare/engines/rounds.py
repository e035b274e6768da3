"""A detector as rounds over nodes: numbers of each node, their sums over its neighbours, and the next numbers of both.

Whatever adds up numbers over neighbours can run a detector so. What a round makes of a node depends on the node's own
numbers and on the sums only, and a block of nodes is as good as all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.models import (
    LabelPropagationFit,
    Mapped,
    Mixture,
    Passes,
    Streams,
    inverse_root,
    label_propagation_by_names,
)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """How many neighbours some nodes have.

    Attributes:
        degrees: numbers of neighbours, float64 [r].
        totals: sums of the weights of their edges, float64 [r].
    """

    degrees: Tensor
    totals: Tensor

    @property
    def root(self) -> Tensor:
        """(total + 1)^-1/2, float32 [r, 1], by which a graph convolution scales."""
        return (self.totals + 1).rsqrt().float()[:, None]


@dataclass(frozen=True, eq=False)
class Means:
    """x, M x, .., M^K x with M the mean over neighbours: all of them are kept.

    Attributes:
        width: of x.
        hops: K.
        read: makes x; None: x is given.
    """

    width: int
    hops: int
    read: Mapped | None = None
    keeps: ClassVar[bool] = True

    @property
    def widths(self) -> tuple[int, ...]:
        """Of what there is at the start and after each round."""
        return (self.width,) * (self.hops + 1)

    def start(self, rows: Graph, at: Neighbourhood) -> Tensor:
        """Returns what is summed up first, float32 [r, w], of nodes with features as the user has them."""
        assert self.read is not None
        return self.read(rows)

    def then(self, turn: int, own: Tensor, sums: Tensor, at: Neighbourhood) -> Tensor:
        """Returns what comes after a round, float32 [r, w']; a mean has the bits of `neighbour_means`, mostly.

        Args:
            turn: number of the round, from 1.
            own: what was summed up, of the nodes themselves, float32 [r, w].
            sums: over the neighbours, float64 [r, w].
            at: how many these are.
        """
        return (sums * torch.where(at.totals > 0, 1 / at.totals, 0.0)[:, None]).float()


@dataclass(frozen=True, eq=False)
class Convolution:
    """A graph convolution: X V, then for each pass A_hat h + b, and relu of it times W where a layer follows.

    Attributes:
        passes: the network.
    """

    passes: Passes
    keeps: ClassVar[bool] = False

    @property
    def widths(self) -> tuple[int, ...]:
        """See `Means`."""
        widths = [self.passes.own.shape[1]]
        for _, weight in self.passes.passes:
            widths.append(widths[-1] if weight is None else weight.shape[1])
        return tuple(widths)

    def start(self, rows: Graph, at: Neighbourhood) -> Tensor:
        """See `Means.start`."""
        return (self.passes.read(rows) @ self.passes.own) * at.root

    def then(self, turn: int, own: Tensor, sums: Tensor, at: Neighbourhood) -> Tensor:
        """See `Means.then`."""
        bias, weight = self.passes.passes[turn - 1]
        z = (sums.float() + own) * at.root
        z = z if bias is None else z + bias
        z = z if weight is None else z.relu() @ weight
        return z if turn == len(self.passes.passes) else z * at.root


@dataclass(frozen=True, eq=False)
class Labels:
    """What labels around a node send to it.

    Attributes:
        fit: label propagation that knows nodes by their names.
    """

    fit: LabelPropagationFit
    keeps: ClassVar[bool] = False

    @property
    def widths(self) -> tuple[int, ...]:
        """See `Means`."""
        return (self.fit.n_classes,) * 2

    def start(self, rows: Graph, at: Neighbourhood) -> Tensor:
        """See `Means.start`."""
        return self.fit.sent_at(self.fit.places_in(rows), rows.n_nodes)[:, -self.fit.n_classes :]

    def then(self, turn: int, own: Tensor, sums: Tensor, at: Neighbourhood) -> Tensor:
        """See `Means.then`."""
        return sums.float()

    def logits(self, sums: Tensor, at: Neighbourhood) -> Tensor:
        """Returns the logits of nodes by the sums over their neighbours, float64 [r, k]."""
        return self.fit.logits(sums.double() * (self.fit.reach * inverse_root(at.totals))[:, None])


Part = Means | Convolution | Labels
Values = list[list[Tensor]]  # of each part what is kept of it, in order of the rounds


@dataclass(frozen=True)
class Rounds:
    """Parts that go through their rounds together.

    Attributes:
        parts: these.
    """

    parts: tuple[Part, ...]

    @property
    def number(self) -> int:
        """How many rounds there are."""
        return max((len(part.widths) - 1 for part in self.parts), default=0)

    def sent_width(self, turn: int) -> int:
        """Returns how many numbers of a node are summed up after a round."""
        return sum(part.widths[turn] for part in self.parts if turn < len(part.widths) - 1)

    def sent(self, turn: int, values: Values) -> Tensor:
        """Returns the numbers that are summed up after a round, float32 [r, w]."""
        active = [each[-1] for part, each in zip(self.parts, values, strict=True) if turn < len(part.widths) - 1]
        return torch.cat(active, 1)

    def then(self, turn: int, values: Values, sums: Tensor, at: Neighbourhood) -> Values:
        """Returns what is kept after a round, by what was before and the sums of what was sent, float64 [r, w]."""
        out, first = Values(), 0
        for part, kept in zip(self.parts, values, strict=True):
            if turn < len(part.widths):
                last = first + part.widths[turn - 1]
                new = part.then(turn, kept[-1], sums[:, first:last], at)
                kept, first = [*kept, new] if part.keeps else [new], last
            out.append(kept)
        return out

    def unpacked(self, turn: int, kept: Tensor) -> Values:
        """Returns what was kept after a round from one matrix of it all, float32 [r, q]."""
        widths = list[list[int]]()
        for part in self.parts:
            so_far = part.widths[: turn + 1]
            widths.append(list(so_far if part.keeps else so_far[-1:]))
        parts = iter(kept.split([width for each in widths for width in each], 1))
        return [[next(parts) for _ in each] for each in widths]


@dataclass(frozen=True, eq=False)
class Plan:
    """A detector that scores each node by itself and its neighbours, as rounds.

    Attributes:
        detector: the detector.
        rounds: what its members need.
    """

    detector: Streams
    rounds: Rounds

    @classmethod
    def of(cls, detector: Passes | Streams) -> Plan:
        """Returns the plan of a detector; one convolution is its own only member."""
        if isinstance(detector, Passes):
            detector = Streams(cast(Any, None), detector.read.maps[0], (detector,), (), detector.read)
        parts = list[Part]()
        if detector.columns:
            parts.append(Means(detector.n_features, detector.hops, detector.read))
        for each in detector.members:
            if isinstance(each, Passes):
                parts.append(Convolution(each))
            elif isinstance(each, LabelPropagationFit):
                parts.append(Labels(each))
        return cls(detector, Rounds(tuple(parts)))

    def member_logits(self, values: Values, at: Neighbourhood) -> list[Tensor]:
        """Returns the logits of nodes by each member, [r, k], from what is kept after all rounds."""
        levels, networks = list[Tensor](), dict[int, Tensor]()
        for part, kept in zip(self.rounds.parts, values, strict=True):
            if isinstance(part, Convolution):
                networks[id(part.passes)] = kept[-1]
            elif isinstance(part, Labels):
                networks[id(part.fit)] = part.logits(kept[-1], at)
            else:
                levels = kept
        columns: dict[Any, Tensor] = self.detector.scaled_columns(levels, at.degrees) if levels else {}
        return self.detector.member_logits([networks.get(id(each)) for each in self.detector.members], columns)

    def pooled(self, found: list[Tensor]) -> Tensor:
        """Returns the logits of the detector, float64 [r, k], by those of its members."""
        return self.detector.pooled(found).double()

    @property
    def mixture(self) -> Mixture:
        """The average of members that the detector is, where labels are propagated."""
        return cast(Mixture, self.detector.fitted)

    @property
    def labels(self) -> LabelPropagationFit | None:
        """The member that knows nodes by their names, where it matters; None: there is none."""
        return label_propagation_by_names(self.detector.fitted)

    def without_labels(self, found: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Returns logits with label propagation that says nothing, and without it, float64 [r, k] each.

        Args:
            found: of all members.
        """
        alone, members = self.mixture.without(LabelPropagationFit), self.mixture.members
        named = [member.fitted is self.labels for member in members]
        silent = [torch.full_like(z, torch.nan) if each else z for each, z in zip(named, found, strict=True)]
        others = [z for each, z in zip(named, found, strict=True) if not each]
        return self.mixture.pooled(silent), self.mixture.pooled(silent) if alone is None else alone.pooled(others)
