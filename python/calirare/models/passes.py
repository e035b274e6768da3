"""A network as passes over the rows of a graph: what a graph that is never in memory as a whole is scored by.

Weights come before propagation, A_hat (X W) in the place of (A_hat X) W, so that what is kept between two passes is as
wide as a layer and not as the features are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calirare.features import FeatureMap, Kept, RawTable
from calirare.graph import Graph
from calirare.models.folded import FoldedNetwork
from calirare.models.gcn_fit import GcnFit
from calirare.models.hops import HopsFit
from calirare.training import Fitted

Kind = Literal["none", "gcn", "mean"]
Layers = tuple[tuple[Tensor, Tensor | None], ...]


@dataclass(frozen=True, eq=False)
class Bent:
    """What columns whose maps are not affine add to a layer, made at the nodes where all of them are there.

    Attributes:
        scaled: the map of all columns, of which those maps are kept.
        weight: of what they make, [c, h].
        carried: where each carried column belongs among the raw ones, int64.
        degree: where log(1 + degree) belongs; None: it is not among them.
    """

    scaled: FeatureMap
    weight: Tensor
    carried: Tensor
    degree: int | None

    def of(self, x: Tensor, carried: Tensor, degrees: Tensor) -> Tensor:
        """Returns it for some nodes, [r, h], from their features, carried columns and numbers of neighbours."""
        raw = x.new_zeros(len(x), self.scaled.n_inputs)
        raw[:, : x.shape[1]] = x
        raw[:, self.carried] = carried
        if self.degree is not None:
            raw[:, self.degree] = torch.log1p(degrees.to(x))
        return self.scaled.of_numbers(raw) @ self.weight


@dataclass(frozen=True, eq=False)
class Pass:
    """z = P h + X V + log(1 + degree) u + b, then each layer's relu(z) W + c.

    Behind h there may be columns that are carried to where a map needs them: a pass propagates them with h, or leaves
    them as they are.

    Attributes:
        kind: P: "gcn" is A_hat, "mean" the mean of the neighbours, "none" is no propagation (h is not read).
        own: V, [d, h], or None.
        degree: u, [h], or None.
        bias: b, [h], or None.
        layers: W [h, h'] and c [h'] or None, of what follows.
        carry: features that are carried from here on.
        stay: how many of the carried columns, the first ones, are not propagated.
        bent: what is made of the carried columns and added to z; they end here. None: nothing.
    """

    kind: Kind
    own: Tensor | None = None
    degree: Tensor | None = None
    bias: Tensor | None = None
    layers: Layers = ()
    carry: tuple[int, ...] = ()
    stay: int = 0
    bent: Bent | None = None

    def after(self, z: Tensor, below: Tensor, x: Tensor | None, degrees: Tensor) -> Tensor:
        """Returns what the pass makes of propagated rows z = P h, [r, h] (it may be overwritten).

        Args:
            z: the rows, carried columns behind them.
            below: the same rows before they were propagated.
            x: their features, [r, d], where the pass reads some.
            degrees: their numbers of neighbours, int64 [r].
        """
        h = z.shape[1] if self.own is None else self.own.shape[1]
        z, carried = z[:, :h], z[:, h:]
        if self.own is not None:
            assert x is not None
            z.addmm_(x, self.own)
        if self.degree is not None:
            z.addcmul_(torch.log1p(degrees.to(z))[:, None], self.degree[None])
        if self.bias is not None:
            z += self.bias
        if self.stay:
            carried[:, : self.stay] = below[:, h : h + self.stay]
        if self.bent is not None:
            assert x is not None
            return self._through(z + self.bent.of(x, carried, degrees))
        if self.carry:
            assert x is not None
            carried = x[:, list(self.carry)]
        return torch.cat([z, carried], 1) if carried.shape[1] else self._through(z)

    def _through(self, z: Tensor) -> Tensor:
        for weight, bias in self.layers:
            z = z.relu_() @ weight if bias is None else torch.addmm(bias, z.relu_(), weight)
        return z

    def width(self, below: int) -> tuple[int, int]:
        """Returns how wide z and the result are, where `below` is the width of h with what is carried."""
        inner = below if below or self.own is None else self.own.shape[1]
        last = self.own.shape[1] if self.bent is not None and self.own is not None else inner + len(self.carry)
        return inner, self.layers[-1][0].shape[1] if self.layers else last


@dataclass(frozen=True, eq=False)
class Mapped:
    """Features as maps make them.

    Attributes:
        maps: one after the other: a run's, then a detector's own.
    """

    maps: tuple[FeatureMap, ...]

    def __call__(self, rows: Graph) -> Tensor:
        """Returns the features of some nodes, float32 [r, d]."""
        for each in self.maps:
            rows = each.transform(rows)
        return rows.x if isinstance(rows.x, Tensor) else rows.x.to_dense()


@dataclass(frozen=True, eq=False)
class Centred(Mapped):
    """Raw numbers less a centre, where all that a map does beside is in the weights: a tenth of the map's time.

    The centre is subtracted first: of numbers far from 0, such as times, no digit is lost.

    Attributes:
        centre: float32 [d].
        fill: takes the place of a missing value, float32 [d]; NaN where none may be missing.
        unread: columns that no map reads, bool [d].
    """

    centre: Tensor
    fill: Tensor
    unread: Tensor

    def __call__(self, rows: Graph) -> Tensor:
        """Returns the features of some nodes less the centre, float32 [r, d]."""
        table = self.maps[0].raw(rows)
        assert isinstance(table, RawTable)
        d = len(table.places)
        x = table.x if table.places == tuple(range(d)) else table.x[:, list(table.places)]
        if not math.isfinite(float(x.sum())):
            x = torch.where(x.isnan(), self.fill, x).masked_fill(self.unread, 0.0)
            if bool(x.isnan().any()):
                return super().__call__(rows)  # which says what is missing
        return x - self.centre


@dataclass(frozen=True, eq=False)
class Passes:
    """A network as passes; what the last one makes are logits.

    Attributes:
        read: makes of some nodes the features that the passes read, float32 [r, d].
        passes: the first propagates nothing.
    """

    read: Mapped
    passes: tuple[Pass, ...]

    @property
    def widths(self) -> list[int]:
        """How wide the result of each pass is."""
        out, width = list[int](), 0
        for each in self.passes:
            _, width = each.width(width)
            out.append(width)
        return out


def passes_of(fitted: Fitted, features: FeatureMap) -> Passes | str:
    """Returns a detector as passes over the rows of a graph.

    Args:
        fitted: the detector.
        features: the map of the run.

    Returns:
        The passes, or why there are none, as a sentence goes on after "because".
    """
    network = fitted.network if isinstance(fitted, FoldedNetwork) else fitted
    if isinstance(network, HopsFit):
        return _of_hops(network, features)
    if isinstance(network, GcnFit):
        return _folded(features, _of_gcn(network)) or Passes(Mapped((features,)), tuple(_of_gcn(network)))
    return "its detector is no graph convolution and reads no columns (train with --model gcn, hops, trees or auto)"


def _of_gcn(network: GcnFit) -> list[Pass]:
    """Returns the passes of a graph convolution."""
    layers = [(weight.detach().float(), bias.detach().float()) for weight, bias in network.model.layers()]
    hops = network.model.hops
    if hops == 0:
        return [Pass("none", own=layers[0][0], bias=layers[0][1], layers=tuple(layers[1:]))]
    out = [Pass("none", own=layers[0][0]), *[Pass("gcn")] * (hops - 1)]
    for (_, bias), later in zip(layers, [*layers[1:], None], strict=True):
        out.append(Pass("gcn", bias=bias, layers=() if later is None else ((later[0], None),)))
    return out


def _of_hops(network: HopsFit, features: FeatureMap) -> Passes | str:
    """Returns the passes of a network on hop columns, by Horner's scheme.

    A column M^k x_j whose map is not affine is carried: x_j from the first pass on, propagated in the last k passes.
    """
    columns, scaled, hops = network.columns, network.columns.scaled, network.columns.hops
    (weight, bias), *later = [(w.detach().double(), b.detach().double()) for w, b in network.model.layers()]
    d = (features if columns.own is None else columns.own).n_features
    if scaled.n_inputs != (hops + 1) * d + (hops > 0):
        return "its graph has typed or directed relations"
    source, factor, offset = scaled.affine()
    known = source >= 0
    folded = weight.new_zeros(scaled.n_inputs, weight.shape[1])
    folded.index_add_(0, source[known], weight[known] * factor[known, None])
    own = [folded[hop * d : (hop + 1) * d].float() for hop in range(hops + 1)]
    bent = [each for each in scaled.curved() if each.names]
    read = sorted({i for each in bent for i in each.inputs})
    carried = [i for i in read if d <= i < (hops + 1) * d]
    ahead = [sum(i < (hop + 1) * d for i in carried) for hop in range(hops + 1)]  # of so many hops or fewer
    kinds: list[Kind] = ["none", *(["mean"] * hops)]  # type: ignore[list-item]
    passes = [Pass(kind, own=own[hops - i], stay=ahead[hops - i] if i else 0) for i, kind in enumerate(kinds)]
    passes[0] = replace(passes[0], carry=tuple(i % d for i in carried))
    passes[-1] = replace(
        passes[-1],
        degree=folded[(hops + 1) * d].float() if hops else None,
        bias=(bias + (weight[known] * offset[known, None]).sum(0)).float(),
        layers=tuple((w.float(), b.float()) for w, b in later),
    )
    if not bent:
        folded_too = _folded(features, passes) if columns.own is None else None
        return folded_too or Passes(mapped(features, columns.own), tuple(passes))
    last = (hops + 1) * d
    degree = last if hops and last in read else None
    some = replace(scaled, maps=tuple(bent))
    passes[-1] = replace(passes[-1], bent=Bent(some, weight[~known].float(), torch.tensor(carried).long(), degree))
    return Passes(mapped(features, columns.own), tuple(passes))


def mapped(features: FeatureMap, own: FeatureMap | None) -> Mapped:
    """Returns what a run's map and a detector's own make of features."""
    return Mapped((features,) if own is None else (features, own))


def _folded(features: FeatureMap, passes: list[Pass]) -> Passes | None:
    """Returns passes that read numbers less a centre, with the rest of an affine map in their weights; None of others.

    (x - mean) / spread times V is (x - c) times V / spread, plus (c - mean) / spread times V, c the mean in float32.
    """
    if features.whole is not None or features.curved() or any(each.kind != "numeric" for each in features.inputs):
        return None
    source, factor, offset = features.affine()
    fill, centre = torch.zeros(2, features.n_inputs)
    unread = torch.ones(features.n_inputs, dtype=torch.bool)
    fills = [each.fill for each in features.maps if isinstance(each, Kept)]
    fill[source] = torch.from_numpy(np.concatenate([np.zeros(0), *fills])).float()
    centre[source] = torch.where(factor > 0, -offset / factor.clamp(min=1e-300), 0.0).float()
    unread[source] = False
    away, out = offset + factor * centre[source].double(), list[Pass]()
    for each in passes:
        if each.own is None:
            out.append(each)
            continue
        own = each.own.double()
        bias = away @ own if each.bias is None else away @ own + each.bias.double()
        folded = own.new_zeros(features.n_inputs, own.shape[1]).index_add_(0, source, own * factor[:, None])
        out.append(replace(each, own=folded.float(), bias=bias.float()))
    return Passes(Centred((features,), centre, fill, unread), tuple(out))
