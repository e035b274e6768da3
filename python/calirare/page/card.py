"""The card of a case: its own fields, who it is connected to, the strongest reasons, similar cases, then labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import class_words, listed
from calirare._util.array_files import NumpyArray
from calirare.explain import (
    EdgeEffect,
    Explanation,
    ExplanationContext,
    Field,
    Usual,
    field_of,
    points,
    time_in_words,
    written,
)
from calirare.features import columns_of
from calirare.run import amounts_of

FIELDS, PARTIES, REASONS, EVENTS = 12, 8, 3, 3  # rows of a card, reasons, and known cases of a neighbour
SIMILAR, ALIKE = 5, 20  # similar known cases that are named, and that are counted
MOVES = 0.01  # of P: what a label must move it by to be shown
SEEN = 4  # neighbours that something is known of, from which a picture is worth it
STRONG, CLEAR, LEAST = 1.0, 0.3, 0.05  # log-odds from which a reason moves P strongly, clearly, or is one


@dataclass(frozen=True)
class Party:
    """A neighbour: what is known about it, and its last known cases, time and label."""

    name: str
    known: str
    events: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Card:
    """What a person sees of a case; `labels` are those that move P by `MOVES` or more, with its change in points.

    `more` follows P, `others` says how many neighbours are left out, `picture` whether one is worth seeing.
    """

    name: str
    what: str
    p: str
    more: str
    rare: str
    fields: tuple[Field, ...]
    parties: tuple[Party, ...]
    others: str
    reasons: tuple[str, ...]
    alike: str
    similar: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str, str], ...]
    picture: bool

    @property
    def dated(self) -> bool:
        """Whether known cases have times."""
        return any(party.events for party in self.parties)


class Cards:
    """Makes cards, and keeps what is usual of each column.

    Args:
        context: what is explained.
    """

    def __init__(self, context: ExplanationContext) -> None:
        self.context = context
        dense = isinstance(context.graph.x, Tensor) and isinstance(context.trained_on.x, Tensor)
        self.columns = columns_of(context.graph) if dense else ()

    def of(self, why: Explanation, more: str = "") -> Card:
        """Returns the card of an explained node; `more` is what follows its probability."""
        fields, shown = self._fields(why), why.edges[:PARTIES]
        left = len(why.edges) - len(shown)
        alike, similar = self._similar(why)
        worth = sum(
            each.label is not None or each.p_rare is not None or each.beyond != "no label" for each in why.edges
        )
        return Card(
            name=why.name,
            what=f"P({class_words(why.of)})",
            p=written(why.p),
            more=more,
            rare=class_words(why.of),
            fields=tuple(self._chosen(fields, why)),
            parties=tuple(self._party(edge, why.node) for edge in shown) or tuple(self._past(why.node)),
            others=f"{left:,} other{'s' * (left > 1)}" if left else "",
            reasons=tuple(self._reasons(why)),
            alike=alike,
            similar=similar,
            labels=tuple(
                (f"{each.name} (its own)" if each.own else each.name, class_words(each.label), points(each.effect))
                for each in why.labels
                if abs(each.effect) >= MOVES
            ),
            picture=worth >= SEEN,
        )

    @cached_property
    def _everyone(self) -> NumpyArray:
        """Columns of the scored nodes, float32 [n, d]."""
        graph = self.context.graph
        assert isinstance(graph.x, Tensor)
        return graph.x[graph.scored_nodes].cpu().numpy()

    @cached_property
    def _telling(self) -> dict[int, Usual]:
        """What is usual in the columns that are not the same of every scored node, by their places."""
        found = {i: Usual.of(self._everyone[:, i]) for i in range(len(self.columns))}
        return {i: each for i, each in found.items() if len(each.kinds) + (each.missing > 0) > 1}

    def _fields(self, why: Explanation) -> list[Field]:
        """Returns every column of a node, and first its time where it has one; of a transaction its parties too."""
        graph, time = self.context.graph, list[Field]()
        if graph.keys:
            time = [
                Field(name, cell_in_words(values, why.node), "", "", unusual=False)
                for name, values in graph.keys.items()
                if name not in {column.name for column in self.columns}
            ]
        elif graph.time is not None and not bool(graph.time[why.node].isnan()):
            time = [Field("time", time_in_words(float(graph.time[why.node])), "", "", unusual=False)]
        if not self.columns:
            return time
        assert isinstance(graph.x, Tensor)
        row = graph.x[why.node].tolist()
        return [*time, *(field_of(self.columns[i], row[i], usual) for i, usual in self._telling.items())]

    def _chosen(self, fields: list[Field], why: Explanation) -> list[Field]:
        """Returns at most `FIELDS` fields in their order: those that are unusual, then those that move P most."""
        moved = {each.name: abs(each.share) for each in why.features}
        first = {"time", *(self.context.graph.keys or ())}
        order = sorted(
            fields, key=lambda field: (field.name not in first, not field.unusual, -moved.get(field.name, 0.0))
        )
        kept = {id(field) for field in order[:FIELDS]}
        return [field for field in fields if id(field) in kept]

    def _party(self, edge: EdgeEffect, but: int) -> Party:
        """Returns a neighbour with the labels of its own neighbours but one."""
        context, graph = self.context, self.context.trained_on
        places = context.known_around(edge.node, but)
        if context.positive_only:
            places = places[context.targets[places] == 1]
        own = "" if edge.label is None else f"itself {class_words(edge.label)}; "
        counts = torch.bincount(context.targets[places], minlength=len(context.class_names)).tolist()
        names = zip(counts, context.class_names, strict=True)
        known = ", ".join(f"{n:,} {class_words(name)}" for n, name in reversed(list(names)) if n)
        events: tuple[tuple[str, str], ...] = ()
        if graph.time is not None and places.numel():
            times = graph.time[context.labelled[places]]
            last = torch.argsort(times, descending=True, stable=True)[:EVENTS].tolist()
            each = ((float(times[i]), class_words(context.label_at(int(places[i])))) for i in last)
            events = tuple((time_in_words(time), name) for time, name in each)
        types = f" ({listed(edge.types)})" if edge.types else ""
        return Party(edge.name + types, own + (known or "none"), events)

    def _past(self, node: int) -> Iterator[Party]:
        """Yields each party of a transaction with its earlier ones, in the run's table and in this one."""
        context, graphs = self.context, [self.context.trained_on, self.context.graph]
        keys = context.graph.keys or {}
        for name, values in keys.items():
            if not isinstance(values, pd.Categorical) or values.codes[node] < 0:
                continue
            counts, events = dict.fromkeys((*reversed(context.class_names), ""), 0), list[tuple[str, str]]()
            for graph in graphs[graphs[0] is graphs[1] :]:
                there = graph.keys or {}
                if name not in there or values[node] not in there[name].categories:
                    continue
                assert graph.time is not None
                assert context.graph.time is not None
                times, amounts, when = next(iter(there.values())), amounts_of(there), graph.time.numpy()
                at = np.flatnonzero(there[name].codes == there[name].categories.get_loc(values[node]))
                at = at[when[at] < float(context.graph.time[node])]
                known = np.full(at.size, -1) if graph.y is None else graph.y.numpy()[at]
                known = np.where(known == 0, -1, known) if context.positive_only else known
                for label, k in zip(counts, (*reversed(range(len(context.class_names))), -1), strict=True):
                    counts[label] += int((known == k).sum())
                for i in np.argsort(when[at], kind="stable")[-EVENTS:]:
                    label = "" if known[i] < 0 else context.class_names[known[i]]
                    paid = "" if amounts is None else f", {cell_in_words(amounts, at[i])}"
                    events.append((cell_in_words(times, at[i]) + paid, class_words(label)))
            cases = ", ".join(f"{n:,} {class_words(label) or 'not known'}" for label, n in counts.items() if n)
            yield Party(f"{name} {values[node]}", cases or "no earlier transaction", tuple(events[: -EVENTS - 1 : -1]))

    def _reasons(self, why: Explanation) -> list[str]:
        """Returns the strongest reasons in words."""
        what, found = f"P({class_words(why.of)})", list[tuple[float, str]]()
        for edge in why.edges:
            way = "raises" if edge.log_odds > 0 else "lowers"
            known = f" (known cases there: {edge.beyond})" if edge.beyond else f" ({edge.label})" if edge.label else ""
            moved = f"from {written(edge.without)} to {written(why.p)}"
            found.append((abs(edge.log_odds), f"The connection to {edge.name}{known} {way} {what} {moved}."))
        for share in why.features:
            size = abs(share.share)
            much = "strongly" if size >= STRONG else "clearly" if size >= CLEAR else "slightly"
            beside = f"; usual {share.usual}" if share.usual else ""
            value = f" ({share.value}{beside})" if share.value is not None else ""
            found.append((size, f"{share.name}{value} {share.way} {what} {much}."))
        found = sorted((each for each in found if each[0] >= LEAST), key=lambda each: -each[0])[:REASONS]
        return [sentence for _, sentence in found] or [f"Nothing about it moves {what} by more than a little."]

    @cached_property
    def _shared(self) -> tuple[list[int], list[int]]:
        """Places of the columns that both graphs have, here and in the graph that trained."""
        there = {column.name: i for i, column in enumerate(columns_of(self.context.trained_on))}
        pairs = [(i, there[column.name]) for i, column in enumerate(self.columns) if column.name in there]
        return [i for i, _ in pairs], [j for _, j in pairs]

    @cached_property
    def _known(self) -> tuple[Tensor, NumpyArray, NumpyArray]:
        """Places of the labels, their columns, [m, d], and what each column spreads by, [d]."""
        context, own = self.context, self.context.trained_on
        places = torch.arange(context.labelled.numel())
        if context.positive_only:
            places = places[context.targets.cpu() == 1]
        assert isinstance(own.x, Tensor)
        rows = own.x[context.labelled[places]][:, self._shared[1]].double().cpu().numpy()
        spread = pd.DataFrame(rows).std(ddof=0).to_numpy() if len(rows) > 1 else np.ones(rows.shape[1])
        return places, rows, np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)

    def _row(self, node: int) -> NumpyArray:
        """Returns the shared columns of a node, with the numbers that categories have in the graph that trained."""
        assert isinstance(self.context.graph.x, Tensor)
        row, there = self.context.graph.x[node].double().cpu().numpy(), columns_of(self.context.trained_on)
        out = row[self._shared[0]]
        for k, (i, j) in enumerate(zip(*self._shared, strict=True)):
            names, wanted = self.columns[i].categories, there[j].categories
            if names and np.isfinite(out[k]):
                name = names[int(out[k])]
                out[k] = wanted.index(name) if name in wanted else -1
        return out

    def _similar(self, why: Explanation) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Returns how many of the most similar known cases are of the class, and name and label of the first."""
        context = self.context
        if not self.columns or not self._shared[0] or not self._known[0].numel():
            return "", ()
        (places, rows, spread), own = self._known, self._row(why.node)
        gaps = np.abs(rows - own)
        gaps = np.where([bool(self.columns[i].categories) for i in self._shared[0]], gaps > 0, gaps / spread)
        gaps = np.where(np.isnan(rows) | np.isnan(own), np.isnan(rows) != np.isnan(own), gaps)
        far = (gaps**2).sum(1)
        far[(context.labelled[places] == context.own_node(why.node)).cpu().numpy()] = np.inf
        nearest = places[np.argsort(far, kind="stable")[: min(ALIKE, int(np.isfinite(far).sum()))]].tolist()
        labels = [class_words(context.label_at(place)) for place in nearest]
        rare = class_words(why.of)
        named = tuple(zip([context.name_at(place) for place in nearest[:SIMILAR]], labels, strict=False))
        return f"{labels.count(rare)} of the {len(labels)} known cases with the most similar fields are {rare}.", named


def cell_in_words(values: Any, at: Any) -> str:
    """Returns the time, party or amount of a transaction as its column has it."""
    value = values[at]
    if pd.isna(value):
        return "missing"
    if isinstance(value, np.datetime64 | pd.Timestamp):
        return f"{pd.Timestamp(value):%Y-%m-%d %H:%M:%S}{'' if pd.Timestamp(value).tz is None else ' UTC'}"
    return f"{value:,.2f}" if isinstance(value, float | np.floating) else str(value)
