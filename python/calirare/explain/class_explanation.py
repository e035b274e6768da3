"""What is said of one node of a run of many classes: its P(class), and what it would be without a label or an edge."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from calirare.explain.explanation import (
    EdgeEffect,
    Explanation,
    FeatureShare,
    GroupEffect,
    LabelEffect,
    Needed,
    Reasons,
    near,
    written,
)

ALIKE = 0.005  # difference of two probabilities that two digits may not show


@dataclass(frozen=True)
class NeededClass(Needed):
    """The smallest set of labels found without which another class is the likeliest, see `Needed`.

    Attributes:
        names: of the labelled nodes, the strongest first.
        without: P(class) without all of them.
        enough: whether another class is the likeliest then; else no set of so many was found to be enough.
        instead: the likeliest class without them.
    """

    instead: str


@dataclass(frozen=True)
class ClassExplanation(Reasons):
    """Why a node has its P(class).

    Attributes:
        node: its number.
        name: what the user calls it.
        of: the class.
        p: P(class), as in predictions.csv.
        prediction: its likeliest class.
        probabilities: P of every class, by its name.
        log_odds: of P(class).
        label: its own class where the detector learned from it, else None.
        labels: the strongest, by |effect|; effects are of P(class).
        needed: without which labels another class is the likeliest; None where one is anyway.
        edges: all of its edges, by |log_odds|; of a neighbour `p_rare` is its P(class).
        features: columns, of more than 1,000 those with a share, by |share|; with `base` they add up to `log_odds`.
        base: log-odds of P(class) of the node that is compared with; None without features.
        groups: of labels, by |effect|; none unless a column was named.
    """

    node: int
    name: str
    of: str
    p: float
    prediction: str
    probabilities: dict[str, float]
    log_odds: float
    label: str | None
    labels: tuple[LabelEffect, ...]
    needed: NeededClass | None
    edges: tuple[EdgeEffect, ...]
    features: tuple[FeatureShare, ...]
    base: float | None
    groups: tuple[GroupEffect, ...]

    @classmethod
    def made(cls, found: Explanation, of: str, probabilities: dict[str, float]) -> Self:
        """Returns what was found of a class as if it were a rare one, in this one's words.

        Args:
            found: with P(class) in the place of P(rare).
            of: the class.
            probabilities: P of every class, by its name.
        """
        assert found.needed is None or isinstance(found.needed, NeededClass)
        return cls(
            found.node,
            found.name,
            of,
            found.p_rare,
            max(probabilities, key=probabilities.__getitem__),
            probabilities,
            found.log_odds,
            found.label,
            found.labels,
            found.needed,
            found.edges,
            found.features,
            found.base,
            found.groups,
        )

    @property
    def what(self) -> str:
        """See `Reasons.what`."""
        return f"P({self.of})"

    @property
    def chance(self) -> float:
        """See `Reasons.chance`."""
        return self.p

    def _says(self) -> str:
        if self.prediction == self.of:
            return f"{self.what} of {self.name} is {written(self.p)}: its likeliest class.{self._learned}"
        other = self.probabilities[self.prediction]
        p, q = (f"{x:.6f}" if abs(other - self.p) < ALIKE else written(x) for x in (self.p, other))
        return f"{self.what} of {self.name} is {p}; likelier is {self.prediction} with {q}.{self._learned}"

    def _of_needed(self) -> str:
        if self.needed is None:
            return ""
        left = f"{self.what} {near(self.needed.without)}"
        if not self.needed.enough:
            n = len(self.needed.names)
            return f" Even without the {n} strongest labels together it would be {self.of} ({left})."
        return f" Without {self.needed.whose} it would be {self.needed.instead} ({left})."

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it: the class as `class`, and of a neighbour its P(class) as `p`."""
        found = {"class" if key == "of" else key: value for key, value in asdict(self).items()}
        edges = [{"p" if key == "p_rare" else key: value for key, value in edge.items()} for edge in found["edges"]]
        return found | {"edges": edges, "sentences": self.sentences}
