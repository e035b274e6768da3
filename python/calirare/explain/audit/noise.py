r"""How likely each label is wrong: a posterior over noise rates, from scores of every label without it.

Noise depends on the true class only (Natarajan et al. 2013): with rho_1 = P(given rare | rest) and
rho_0 = P(given rest | rare),

    f_i = P(given rare | x_i) = rho_1 + (1 - rho_0 - rho_1) eta_i,    eta_i = P(truly rare | x_i),
    P(wrong | given rare, x_i) = rho_1 (1 - eta_i) / f_i,    P(wrong | given rest, x_i) = rho_0 eta_i / (1 - f_i).

Calibrated probabilities without each label estimate f. eta is a beta calibrator (Kull, Silva Filho and Flach 2017) of
their logit s_i, logit eta = e^(u + v) log sigma(s) - e^(u - v) log sigma(-s) + c. The posterior is a grid over the
rates with Laplace's approximation in u, v and c. Intervals of counts are of the coarsened posterior (Miller and
Dunson 2019), the likelihood to the power A / (A + m): the form of eta is not the truth, and the scores were learnt
from the labels.

No method can tell a wrong label from a node that looks wholly like the other class and is not of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, logit

from calirare.explain.audit.posterior import SMALLEST, Numbers, Posterior, shares_of

NO_NOISE, ONE_SIDED = 0.3, 0.05  # prior probability that both rates are 0, and that one of them alone is not
ALIKE = 0.5  # that labels are wrong whatever their class: both rates are one
SLAB = (1.0, 4.0)  # Beta prior of a rate that is not: mean 0.2
POINTS = np.array([0.005, 0.012, 0.025, 0.045, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4, 0.5, 0.62, 0.75, 0.88])  # grid
BETWEEN = np.concatenate([[0.0], (POINTS[1:] + POINTS[:-1]) / 2, [1.0]])
MASS = np.diff(betainc(*SLAB, BETWEEN))  # prior probability of each point, of a rate that is not 0
SPREADS = (1.0, 0.25, 1.0)  # prior standard deviations of u, v and c
PRECISION = np.diag(np.asarray(SPREADS) ** -2.0)
FARTHEST = 30.0  # a logit beyond it is as sure as it
BINS = 400  # of scores: more labels of one kind than that are fitted as counts
STEPS = 60
ARRIVED = 1e-5  # log likelihood that a step would gain
WORLDS = 400  # from the coarsened posterior
ENOUGH = 100  # A, labels: chosen on the sets that chose the rules, see docs/research/audit.md
BLOCK = 256  # labels worked on together in all worlds: what is made of them stays in the cache
KEPT = 0.9999  # of the posterior: worlds that share the rest are left out


@dataclass(frozen=True, eq=False)
class LabelNoise(Posterior):
    """The posterior; a world is a pair of rates.

    Attributes:
        wrong_rare: of each pair, the share of the labels given as rare that are wrong, in [0, 1), [g].
        missed: the share of the truly rare nodes that are given as rest, in [0, 1), [g].
    """

    wrong_rare: Numbers
    missed: Numbers


def label_noise(scores: Numbers, rare: NDArray[np.bool_], offsets: Numbers, share: float) -> LabelNoise:
    """Returns the posterior.

    Args:
        scores: calibrated logit of P(given rare) for the population, of each label without it, [m].
        rare: which labels are given as rare, bool [m].
        offsets: what the drawing of each label added to its log odds of being given as rare, [m]; 0 where it was drawn
            without regard to its label.
        share: of the population that would be given as rare, in (0, 1).
    """
    scores = np.clip(scores, -FARTHEST, FARTHEST)
    grid = _Grid.of(share)
    s, y, o, count = _binned(scores, rare, offsets)
    theta, information, evidence = _Curves.of(grid, grid.halves(s), y, o, count).fitted()
    weight, power = shares_of(evidence + grid.log_prior), ENOUGH / (ENOUGH + len(scores))
    rng = np.random.default_rng(0)
    some = rng.choice(len(weight), WORLDS, p=shares_of(power * evidence + grid.log_prior))
    root = np.linalg.cholesky(np.linalg.inv(power * information[some] + (1 - power) * PRECISION))
    near = theta[some] + (root @ rng.standard_normal((WORLDS, 3, 1)))[..., 0]
    drawn = _wrong_in(grid.select(some), near, scores, rare)
    order = np.argsort(-weight, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(weight[order]), KEPT)) + 1]
    grid, weight = grid.select(kept), weight[kept] / weight[kept].sum()
    clean = float(weight[(grid.wrong_rare == 0) & (grid.rho_0 == 0)].sum())
    return LabelNoise(weight, _wrong_in(grid, theta[kept], scores, rare), drawn, clean, grid.wrong_rare, grid.rho_0)


def _wrong_in(grid: _Grid, theta: Numbers, scores: Numbers, rare: NDArray[np.bool_]) -> Numbers:
    """Returns P(wrong) of labels in worlds with their u, v and c, [g, m]."""
    out = np.empty((len(theta), len(scores)))
    for first in range(0, len(scores), BLOCK):
        some = slice(first, first + BLOCK)
        out[:, some] = _wrong(grid, expit(_map(theta, grid.halves(scores[some]))), rare[some])
    return out


@dataclass(frozen=True, eq=False)
class _Grid:
    """Worlds that are weighed against each other, each [g].

    Attributes:
        wrong_rare: the share of the labels given as rare that are wrong.
        rho_1: P(given rare | rest).
        rho_0: P(given rest | rare).
        flat: whether the scores have learnt the noise: sigma(s) is f then, which ends at rho_1 and 1 - rho_0, and eta
            comes from what lies between; else s itself goes on, as a straight line's logit does.
        log_prior: of each world.
    """

    wrong_rare: Numbers
    rho_1: Numbers
    rho_0: Numbers
    flat: NDArray[np.bool_]
    log_prior: Numbers

    @classmethod
    def of(cls, share: float) -> _Grid:
        """Returns every pair of rates that can be, and those alike, twice; share: given as rare of the population."""
        points = np.concatenate([[0.0], POINTS])
        sides = np.array([[NO_NOISE, ONE_SIDED], [ONE_SIDED, 1 - NO_NOISE - 2 * ONE_SIDED - ALIKE]])
        wrong_rare, rho_0 = (x.ravel() for x in np.meshgrid(points, points, indexing="ij"))
        prior = np.outer(*[np.concatenate([[1.0], MASS])] * 2).ravel()
        prior *= sides[(wrong_rare > 0).astype(int), (rho_0 > 0).astype(int)]
        alike = POINTS[: np.searchsorted(POINTS, min(share, 1 - share))]  # rho_1 = rho_0
        wrong_rare = np.append(wrong_rare, alike * (1 - (share - alike) / (1 - 2 * alike)) / share)
        rho_0, prior = np.append(rho_0, alike), np.append(prior, ALIKE * MASS[: len(alike)])
        wrong_rare, rho_0, log_prior = (np.repeat(x, 2) for x in (wrong_rare, rho_0, np.log(prior / 2)))
        flat = np.arange(len(rho_0)) % 2
        truly = (1 - wrong_rare) * share / (1 - rho_0)  # share of the truly rare
        rho_1 = wrong_rare * share / np.maximum(1 - truly, SMALLEST)
        possible = (truly < 1) & (rho_1 + rho_0 < 1)
        return cls(wrong_rare, rho_1, rho_0, flat > 0, log_prior).select(possible)

    def select(self, chosen: NDArray[Any]) -> _Grid:
        return _Grid(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def halves(self, s: Numbers) -> tuple[Numbers, Numbers]:
        """Returns log sigma(t) and -log sigma(-t), [g, b], of t = s, or where `flat` of what lies between the ends."""
        t, flat, edge = np.repeat(s[None], len(self.flat), 0), self.select(self.flat), expit(-FARTHEST)
        between = (expit(s) - flat.rho_1[:, None]) / (1 - flat.rho_0 - flat.rho_1)[:, None]
        t[self.flat] = logit(np.clip(between, edge, 1 - edge))
        rest = np.log1p(np.exp(-np.abs(t)))
        return np.minimum(t, 0) - rest, np.maximum(t, 0) + rest


def _wrong(grid: _Grid, eta: Numbers, rare: NDArray[np.bool_]) -> Numbers:
    """Returns P(wrong) of labels, [g, m], where the truly rare share of their like is eta, [g, m]."""
    rho_1, rho_0 = grid.rho_1[:, None], grid.rho_0[:, None]
    f = rho_1 + (1 - rho_0 - rho_1) * eta
    other = np.where(rare, rho_1 * (1 - eta), rho_0 * eta)
    return np.minimum(other / np.maximum(np.where(rare, f, 1 - f), SMALLEST), 1.0)


def _binned(
    s: Numbers, rare: NDArray[np.bool_], offsets: Numbers
) -> tuple[Numbers, NDArray[np.bool_], Numbers, Numbers]:
    """Returns scores, labels, offsets and how many labels have them; many of one kind are binned."""
    parts = []
    for label in (False, True):
        for offset in np.unique(offsets[rare == label]):
            mine = np.sort(s[(rare == label) & (offsets == offset)])
            bins = np.array_split(mine, min(BINS, len(mine)))
            means, counts = [b.mean() for b in bins], [float(len(b)) for b in bins]
            parts.append((means, [label] * len(bins), [offset] * len(bins), counts))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return columns[0], columns[1].astype(bool), columns[2], columns[3]


def _map(theta: Numbers, halves: tuple[Numbers, Numbers]) -> Numbers:
    """Returns logit eta, [g, b]."""
    steep, flat, c = (column[:, None] for column in _slopes(theta).T)
    return np.asarray(steep * halves[0] + flat * halves[1] + c)


def _slopes(theta: Numbers) -> Numbers:
    """Returns e^(u + v), e^(u - v) and c of u, v and c, [g, 3]."""
    u, v, c = theta.T
    return np.stack([np.exp(u + v), np.exp(u - v), c], 1)


@dataclass(frozen=True, eq=False)
class _Curves:
    """The likelihood of u, v and c in every world at once.

    Attributes:
        grid: the worlds.
        design: of their scores, log sigma(t), -log sigma(-t) and 1, [g, 3, b].
        y: labels, bool [b].
        lift: what their drawing multiplied their odds by, [b].
        count: how many labels each stands for, [b].
    """

    grid: _Grid
    design: Numbers
    y: NDArray[np.bool_]
    lift: Numbers
    count: Numbers

    @classmethod
    def of(
        cls, grid: _Grid, halves: tuple[Numbers, Numbers], y: NDArray[np.bool_], offset: Numbers, count: Numbers
    ) -> _Curves:
        return cls(grid, np.stack([*halves, np.ones_like(halves[0])], 1), y, np.exp(offset), count)

    def fitted(self) -> tuple[Numbers, Numbers, Numbers]:
        """Returns the most likely u, v and c of every pair, [g, 3], their precision [g, 3, 3] and log evidence [g].

        Fisher scoring with a damping that grows where a step would not help; pairs that have arrived are left alone.
        """
        n_worlds = len(self.grid.rho_1)
        theta, damping = np.zeros((n_worlds, 3)), np.full(n_worlds, 1e-3)
        value, gradient, information = self._at(theta)
        moving, part = np.arange(n_worlds), self
        for _ in range(STEPS):
            size = damping[moving] * np.trace(information[moving], axis1=1, axis2=2)
            damped = information[moving] + size[:, None, None] * np.eye(3)
            step = np.linalg.solve(damped, gradient[moving, :, None])[..., 0]
            gain = np.einsum("gi,gi->g", gradient[moving], step)  # what the step promises
            tried = theta[moving] + np.clip(step, -2, 2)
            found = part._at(tried)
            better = found[0] >= value[moving]
            damping[moving] = np.clip(np.where(better, damping[moving] / 5, damping[moving] * 8), 1e-9, 1e6)
            taken = moving[better]
            theta[taken] = tried[better]
            value[taken], gradient[taken], information[taken] = (each[better] for each in found)
            going = gain > ARRIVED
            if not going.any():
                break
            if not going.all():
                moving = moving[going]
                part = _Curves(part.grid.select(going), part.design[going], self.y, self.lift, self.count)
        precision = -2 * np.log(SPREADS).sum()
        return theta, information, value + (precision - np.linalg.slogdet(information)[1]) / 2

    def _given(self, slopes: Numbers) -> tuple[Numbers, Numbers]:
        """Returns P(given rare) as drawn, [g, b], and what a unit of logit eta adds to its log odds."""
        rho_1, learnt = self.grid.rho_1[:, None], (1 - self.grid.rho_0 - self.grid.rho_1)[:, None]
        eta = expit((slopes[:, None] @ self.design)[:, 0])
        f = np.clip(rho_1 + learnt * eta, SMALLEST, 1 - SMALLEST)
        lifted = f * self.lift
        return lifted / (lifted + 1 - f), learnt * eta * (1 - eta) / (f * (1 - f))

    def _at(self, theta: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Returns the log posterior [g], its gradient [g, 3] and Fisher's information with the prior's, [g, 3, 3]."""
        slopes = _slopes(theta)
        q, unit = self._given(slopes)
        likelihood = np.log(np.clip(np.where(self.y, q, 1 - q), SMALLEST, 1 - SMALLEST)) @ self.count
        value = likelihood - np.square(theta / np.asarray(SPREADS)).sum(1) / 2
        by_slopes = self.design @ (self.count * (self.y - q) * unit)[..., None]
        weighted = self.design * (self.count * q * (1 - q) * unit**2)[:, None]
        by_theta = _slopes_by_theta(slopes)
        gradient = (by_theta @ by_slopes)[..., 0] - theta @ PRECISION
        information = by_theta @ (weighted @ self.design.swapaxes(1, 2)) @ by_theta.swapaxes(1, 2) + PRECISION
        return value, gradient, information


def _slopes_by_theta(slopes: Numbers) -> Numbers:
    """Returns the derivatives of e^(u + v), e^(u - v) and c, a column each, by u, v and c, [g, 3, 3]."""
    out = np.zeros((len(slopes), 3, 3))
    out[:, 0, :2], out[:, 2, 2] = slopes[:, :2], 1
    out[:, 1, 0], out[:, 1, 1] = slopes[:, 0], -slopes[:, 1]
    return out
