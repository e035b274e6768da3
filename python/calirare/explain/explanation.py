"""The explanation of one node: its P(rare), and what it would be without a label, an edge or a feature's deviation.

With many classes what is called P(rare) below is P(class).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calirare._util.amounts import class_words, listed

LITTLE = 0.0005  # of a change of P(rare): less than what is written as 0.1 points
ALIKE = 0.005  # difference of two probabilities that two digits may not show
MOST_RAISING = 3
MOST_DIGITS = 12  # of a probability next to a threshold


@dataclass(frozen=True)
class LabelEffect:
    """A label that the detector learned from.

    Attributes:
        node: its node.
        name: what the user calls that node.
        label: the class.
        effect: P(rare) with the label minus P(rare) without it.
        without: P(rare) without it.
        log_odds: what it adds to the log-odds.
        own: whether it is the label of the very node that is explained.
    """

    node: int
    name: str
    label: str
    effect: float
    without: float
    log_odds: float
    own: bool


@dataclass(frozen=True)
class EdgeEffect:
    """An edge of the node.

    Attributes:
        node: the neighbour.
        name: what the user calls it.
        label: class of the neighbour, or None where it is not known to the detector.
        p_rare: of the neighbour; None where it is not scored.
        effect: P(rare) with the edge minus P(rare) without it.
        without: P(rare) without it.
        log_odds: what the edge adds to the calibrated log-odds.
        beyond: of a neighbour that is not scored, such as a device: labels of its other neighbours ("2 of 5 rare").
        types: of the edge, where edges have types: "calls to" where it points at the neighbour, "calls from" where it
            points at the node, "calls" where it does both.
    """

    node: int
    name: str
    label: str | None
    p_rare: float | None
    effect: float
    without: float
    log_odds: float
    beyond: str = ""
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class FeatureShare:
    """What a column of the table, or the neighbours' mean of one, adds to the log-odds of P(rare).

    Attributes:
        name: of the column; "amount of neighbours" is all that is made of the neighbours' amounts.
        share: what it adds to the calibrated log-odds, against the node that is compared with; above 0 it raises P.
        value: the node's own, as it stands in the user's table, or its neighbours' mean; None where there is none.
        usual: what is usual of it: from the 5th to the 95th percentile, or the commonest value; empty: not known.
    """

    name: str
    share: float
    value: str | None
    usual: str = ""

    @property
    def way(self) -> str:
        """What it does to P(rare)."""
        return "raises" if self.share > 0 else "lowers"


@dataclass(frozen=True)
class Needed:
    """The smallest set of labels found without which a node is no alert: the strongest 1 to 4, 6, 8, 12, 16, 24 or 32.

    With many classes: without which another class is the likeliest.

    Attributes:
        names: of the labelled nodes, the strongest first.
        without: P(rare) without all of them.
        enough: whether the node is no alert then; else no set of so many was found to be enough.
        instead: with many classes the likeliest one without them; None of a rare class.
    """

    names: tuple[str, ...]
    without: float
    enough: bool
    instead: str | None = None

    @property
    def whose(self) -> str:
        """Whose labels they are, such as "the labels of a, b, c and 3 more"."""
        n, named = len(self.names), listed(self.names[:3])
        return f"the label of {named}" if n == 1 else f"the labels of {named}" + (f" and {n - 3} more" if n > 3 else "")


@dataclass(frozen=True)
class Explanation:
    """Why a node has its P(rare), or with many classes its P(class).

    Attributes:
        node: its number.
        name: what the user calls it.
        p: P(rare), or P(class), as in predictions.csv.
        threshold: from which a node is an alert; infinite with many classes, which have no alerts.
        log_odds: of the probability.
        label: its own class where the detector learned from it, else None.
        labels: the strongest, by |effect|.
        needed: without which labels it is no alert, or of another class; None where it is so anyway.
        edges: all of its edges, by |log_odds|.
        features: columns, of more than 1,000 those with a share, by |share|; with `base` they add up to `log_odds`.
        base: log-odds of the node that is compared with; None without features.
        of: the class that is explained.
        probabilities: with many classes P of every class, by its name; None of a rare class.
    """

    node: int
    name: str
    p: float
    threshold: float
    log_odds: float
    label: str | None
    labels: tuple[LabelEffect, ...]
    needed: Needed | None = None
    edges: tuple[EdgeEffect, ...] = ()
    features: tuple[FeatureShare, ...] = ()
    base: float | None = None
    of: str = "rare"
    probabilities: Mapping[str, float] | None = None

    @property
    def alert(self) -> bool:
        """Whether P(rare) is at least the threshold."""
        return self.p >= self.threshold

    @property
    def prediction(self) -> str | None:
        """With many classes the likeliest one; None of a rare class."""
        return None if self.probabilities is None else max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def what(self) -> str:
        """What is explained: "P(rare)", or P of the class."""
        return "P(rare)" if self.probabilities is None else f"P({self.of})"

    @property
    def sentences(self) -> list[str]:
        """The same in words: what the probability is, which labels say so, and what else does."""
        return [each for each in (self._of_probability(), self._of_labels(), self._of_the_rest()) if each]

    @property
    def raised_by(self) -> str:
        """The columns that raise the probability most, up to three, with the node's own values."""
        raising = [each for each in self.features if each.share > 0][:MOST_RAISING]
        return "; ".join(each.name if each.value is None else f"{each.name}: {each.value}" for each in raising)

    def _of_probability(self) -> str:
        learned = "" if self.label is None else f" Its own label, {class_words(self.label)}, was used in training."
        if self.probabilities is None or self.prediction is None:
            kind = f"{'an' if self.alert else 'no'} alert at {self.threshold:.3g}"
            return f"P(rare) of {self.name} is {apart(self.p, self.threshold)}, {kind}.{learned}"
        if self.prediction == self.of:
            return f"{self.what} of {self.name} is {written(self.p)}: its likeliest class.{learned}"
        other = self.probabilities[self.prediction]
        p, q = (f"{x:.6f}" if abs(other - self.p) < ALIKE else written(x) for x in (self.p, other))
        return f"{self.what} of {self.name} is {p}; likelier is {self.prediction} with {q}.{learned}"

    def _of_needed(self) -> str:
        if self.needed is None:
            return ""
        many, left = self.probabilities is not None, near(self.needed.without)
        left = f"({self.what} {left})" if many else f"({left})"
        if self.needed.enough:
            return f" Without {self.needed.whose} it would be {self.needed.instead if many else 'no alert'} {left}."
        n = len(self.needed.names)
        return f" Even without the {n} strongest labels together it would be {self.of if many else 'an alert'} {left}."

    def _of_labels(self) -> str:
        if not self.labels:
            return ""
        if all(abs(each.effect) < LITTLE for each in self.labels):
            enough = self.needed is not None and self.needed.enough
            return "No single label moves it by 0.1 points." + (self._of_needed() if enough else "")
        parts = list[str]()
        for sign, words in ((1, "raises it most"), (-1, "lowers it most")):
            found = next((each for each in self.labels if sign * each.effect >= LITTLE), None)
            if found is not None and not parts:
                whose = "Its own label" if found.own else f"The label of {found.name}"
                parts.append(f"{whose} ({class_words(found.label)}) {words}: without it {written(found.without)}")
            elif found is not None:
                parts.append(
                    f"that of {found.name} ({class_words(found.label)}) {words}: without it {written(found.without)}"
                )
        return "; ".join(parts) + "." + self._of_needed()

    def _of_the_rest(self) -> str:
        parts = list[str]()
        if self.edges and all(abs(each.effect) < LITTLE for each in self.edges):
            parts.append("no single edge moves it by 0.1 points")
        elif self.edges:
            edge = self.edges[0]
            beside = [listed(edge.types)] * bool(edge.types) + [f"labels there: {edge.beyond}"] * bool(edge.beyond)
            more = f" ({'; '.join(beside)})" if beside else ""
            parts.append(f"the edge to {edge.name}{more} matters most: without it {written(edge.without)}")
        if self.features:
            share = self.features[0]
            usual = f"; usual {share.usual}" if share.usual else ""
            value = "" if share.value is None else f" ({share.value}{usual})"
            parts.append(f"the feature {share.name}{value} {share.way} it most, by {abs(share.share):.2f} in log-odds")
        text = "; ".join(parts)
        return text[:1].upper() + text[1:] + "." if text else ""

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it; with many classes the class as `class`, and of neighbours `p`."""
        found = asdict(self)
        del found["of"], found["probabilities"]
        if self.probabilities is None:
            if self.needed is not None:
                del found["needed"]["instead"]
            found = {"p_rare" if name == "p" else name: value for name, value in found.items()}
            return found | {"alert": self.alert, "sentences": self.sentences}
        del found["threshold"]
        own = {"class": self.of, "prediction": self.prediction, "probabilities": dict(self.probabilities)}
        edges = [{"p" if key == "p_rare" else key: value for key, value in edge.items()} for edge in found["edges"]]
        return found | own | {"edges": edges, "sentences": self.sentences}


@dataclass(frozen=True)
class Explanations:
    """Why some nodes have their P(rare), or P(class).

    Attributes:
        each: the nodes' own.
        notes: sentences on what is held fixed and what is approximate.
    """

    each: tuple[Explanation, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.each)

    def __getitem__(self, place: int) -> Explanation:
        return self.each[place]

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return {"explanations": [each.to_mapping() for each in self.each], "notes": list(self.notes)}


def written(p: float) -> str:
    """Returns a probability with as many digits, up to six, as tell it from 0 and from 1."""
    away = min(p, 1 - p)
    digits = next((n for n in range(2, 6) if away >= 0.5 * 10 ** (1 - n)), 6)
    return f"{p:.{digits}f}"


def apart(p: float, threshold: float) -> str:
    """Returns a probability with as many digits more as tell on which side of a threshold it is."""
    text, digits = written(p), 2
    while (float(text) >= threshold) != (p >= threshold) and digits < MOST_DIGITS:
        digits += 1
        text = f"{p:.{digits}f}"
    return text


def near(p: float) -> str:
    """Returns a probability with three digits, or with more if it would read as 0 or 1."""
    return f"{p:.3f}" if 0.005 <= p <= 0.995 else written(p)
