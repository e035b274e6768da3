r"""How likely each label of many classes is wrong: a posterior over how often, and into what, labels go wrong.

Noise depends on the true class only (Natarajan et al. 2013): with T_cj = P(given j | truly c), eta_ic = P(truly c |
x_i),

    f_ij = P(given j | x_i) = sum_c eta_ic T_cj,    P(wrong | given j, x_i) = 1 - eta_ij T_jj / f_ij.

Calibrated probabilities s_i without each label estimate f: eta = softmax(e^u log s + b). T = I + e (Q - D) has a rate
e and a pattern Q with row sums D: all classes alike, each class at its own rate, or each pair. The last two are
counted by confident learning on the same labels, from which n free numbers gain n / 2 of log likelihood by chance
(Wilks 1938): that is taken off. The posterior is a grid over patterns and rates, with Laplace's approximation in u
and b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp, softmax

from calirare._util.steps import progress
from calirare.explain.audit.noise import ALIKE, ARRIVED, ENOUGH, FARTHEST, MASS, NO_NOISE, POINTS, WORLDS
from calirare.explain.audit.posterior import SMALLEST, Numbers, Posterior, shares_of

BY_CLASS = BY_PAIR = (1 - NO_NOISE - ALIKE) / 2  # prior probability of these patterns
HALF = 0.5  # of a label, that each pair is counted with beside what is counted (Jeffreys)
STEPS = 40
MOST, WORK = 10_000, 1 << 28  # labels whose likelihood is taken, of more a sample; and of products in a step
Labels = NDArray[np.int64]


def class_noise(logits: Numbers, given: Labels, offsets: Numbers, counted: Numbers) -> Posterior:
    """Returns the posterior.

    Args:
        logits: calibrated, of the given classes in the population, of each label without it, [m, k].
        given: class of each label, int64 [m].
        offsets: log of what the drawing of each label multiplied P(given as each class) by, [m, k], up to a number per
            label; 0 where it was drawn without regard to its label.
        counted: labels by given and true class as confident learning counts them, [k, k].
    """
    s = np.maximum(log_softmax(logits, axis=1), -FARTHEST)
    m, k = s.shape
    some = np.random.default_rng(0).permutation(m)[: min(MOST, max(WORK // k**3, k))]
    sample = _Sample(s[some], given[some], offsets[some])
    worlds = _worlds(given, counted)
    fits = [_fitted(sample, world.t) for world in progress("kinds of noise", worlds)]
    evidence = np.array([fit.evidence - world.free / 2 for world, fit in zip(worlds, fits, strict=True)])
    prior = np.log([world.prior for world in worlds])
    weight = shares_of(evidence + prior)
    wrong = np.stack([_wrong(s, given, world.t, fit.theta) for world, fit in zip(worlds, fits, strict=True)])
    power, rng = ENOUGH / (ENOUGH + m), np.random.default_rng(0)
    drawn = np.empty((WORLDS, m))
    for row, w in enumerate(rng.choice(len(weight), WORLDS, p=shares_of(power * evidence + prior))):
        precision = power * fits[w].information + (1 - power) * np.eye(k)
        near = fits[w].theta + np.linalg.cholesky(np.linalg.inv(precision)) @ rng.standard_normal(k)
        drawn[row] = _wrong(s, given, worlds[w].t, near)
    return Posterior(weight, wrong, drawn, float(weight[0]))


@dataclass(frozen=True, eq=False)
class _World:
    """T, [k, k], the prior probability, and how many free numbers were counted on the labels themselves."""

    t: Numbers
    prior: float
    free: int


def _worlds(given: Labels, counted: Numbers) -> list[_World]:
    """Returns every world, the clean one first."""
    k = len(counted)
    share = np.bincount(given, minlength=k) / len(given)
    others = (1 - np.eye(k)) / (k - 1)
    pairs = (counted.T * (1 - np.eye(k)) + HALF * (1 - np.eye(k))) / (counted.sum(0) + HALF * k)[:, None]
    rates = pairs.sum(1, keepdims=True)
    patterns = ((others, ALIKE, 0), (rates * others, BY_CLASS, k - 1), (pairs, BY_PAIR, k * (k - 1) - 1))
    worlds = [_World(np.eye(k), NO_NOISE, 0)]
    for pattern, prior, free in patterns:
        q = pattern / float(share @ pattern.sum(1))
        for rate, mass in zip(POINTS, MASS, strict=True):
            t = rate * q
            t += np.diag(1 - t.sum(1))
            if (t.argmax(1) == np.arange(k)).all():  # else a class would not be given its own name
                worlds.append(_World(t, float(prior * mass), free))
    return worlds


@dataclass(frozen=True, eq=False)
class _Sample:
    """The labels whose likelihood is taken: log s [m, k], classes [m] and offsets [m, k]."""

    s: Numbers
    given: Labels
    offsets: Numbers


@dataclass(frozen=True, eq=False)
class _Fit:
    """The most likely u and b, [k], the labels' information about them [k, k], and the log evidence."""

    theta: Numbers
    information: Numbers
    evidence: float


def _eta(s: Numbers, theta: Numbers) -> Numbers:
    """Returns P(truly c) of each label, [m, k]; theta: u, then b of all classes but the last."""
    return np.asarray(softmax(np.exp(theta[0]) * s + np.append(theta[1:], 0.0), axis=1))


def _wrong(s: Numbers, given: Labels, t: Numbers, theta: Numbers) -> Numbers:
    """Returns P(wrong) of each label, [m]."""
    rows, eta = np.arange(len(given)), _eta(s, theta)
    f = (eta @ t)[rows, given]
    return np.clip(1 - eta[rows, given] * t[given, given] / np.maximum(f, SMALLEST), 0, 1)


def _fitted(sample: _Sample, t: Numbers) -> _Fit:
    """Returns the fit of a world: Fisher scoring with a damping that grows where a step would not help."""
    theta, damping = np.zeros(t.shape[0]), 1e-3
    value, gradient, information = _at(sample, t, theta)
    for _ in range(STEPS):
        damped = information + np.eye(len(theta)) + damping * np.diag(np.diag(information) + 1)
        step = np.clip(np.linalg.solve(damped, gradient), -2, 2)
        if gradient @ step < ARRIVED:
            break
        found = _at(sample, t, theta + step)
        if found[0] >= value:
            theta, damping = theta + step, max(damping / 5, 1e-9)
            value, gradient, information = found
        else:
            damping *= 8
    log_det = np.linalg.slogdet(information + np.eye(len(theta)))[1]
    return _Fit(theta, information, value - log_det / 2)


def _at(sample: _Sample, t: Numbers, theta: Numbers) -> tuple[float, Numbers, Numbers]:
    """Returns the log posterior, its gradient [k] and Fisher's information of the labels, [k, k]."""
    rows, k = np.arange(len(sample.given)), len(theta)
    a, eta = np.exp(theta[0]) * sample.s, _eta(sample.s, theta)
    f = np.maximum(eta @ t, SMALLEST)
    lifted = np.log(f) + sample.offsets
    log_q = lifted - logsumexp(lifted, axis=1, keepdims=True)
    by_u = eta * (a - (eta * a).sum(1, keepdims=True))
    by_b = eta[:, :, None] * (np.eye(k)[None, :, :-1] - eta[:, None, :-1])
    slopes = t.T @ np.concatenate([by_u[:, :, None], by_b], 2) / f[:, :, None]  # of log f, [m, k, k]
    q = np.exp(log_q)
    mean = (q[:, None] @ slopes)[:, 0]
    gradient = (slopes[rows, sample.given] - mean).sum(0) - theta
    weighted = (np.sqrt(q)[:, :, None] * slopes).reshape(-1, k)
    value = float(log_q[rows, sample.given].sum() - theta @ theta / 2)
    return value, gradient, weighted.T @ weighted - mean.T @ mean
