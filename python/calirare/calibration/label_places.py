"""Whether labels can be a random sample of the nodes: where they lie in the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEWEST_ENDS = 20  # of edges between labelled nodes, below which their number says little
TIMES = 2.0  # as many labelled neighbours as elsewhere, below which a difference does no harm
ERRORS = 3.3  # standard errors of the logarithm of that ratio: once in 1,000 of two sides


@dataclass(frozen=True)
class Together:
    """Ends of edges at labelled nodes and at nodes without a label.

    Attributes:
        inner: at labelled nodes, of edges to labelled nodes.
        own: at labelled nodes, of all edges.
        outer: at nodes without a label, of edges to labelled nodes.
        others: at nodes without a label, of all edges.
    """

    inner: int
    own: int
    outer: int
    others: int

    @property
    def shares(self) -> tuple[float, float]:
        """Share of neighbours with a label, of labelled nodes and of the others; half an edge more in doubt."""
        return self.inner / max(self.own, 1), (self.outer + 0.5) / max(self.others, 1)

    @property
    def doubtful(self) -> bool:
        """Whether labelled nodes have labelled neighbours more often than a random sample of the nodes would have.

        Of a random sample either share is that of labelled nodes, weighted with their degree. An edge between labelled
        nodes has both its ends among `inner`, so that half of these count.
        """
        if self.inner < FEWEST_ENDS or not self.others:
            return False
        own, others = self.shares
        error = np.sqrt(2 / self.inner + 1 / (self.outer + 0.5))
        return own >= TIMES * others and float(np.log(own / others)) > ERRORS * error

    @property
    def sentence(self) -> str:
        """What a user should know; empty where nothing speaks against a random sample."""
        if not self.doubtful:
            return ""
        own, others = self.shares
        return (
            f"the labels are no random sample of the nodes: they lie together, {own:.0%} of the neighbours of labelled "
            f"nodes have a label and {others:.1%} of those of others, as where all are of one region; P(rare) may be "
            "wrong elsewhere: put nodes drawn at random into the validation part (--calibrate-on val), or give the "
            "prevalence (--prevalence)"
        )
