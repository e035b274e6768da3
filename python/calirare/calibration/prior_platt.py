"""Platt scaling with a prior that undoes what training did: population probabilities from few rare labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Self

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.affine import AffineCalibrator
from calirare.calibration.base import Calibrator, Numbers, Target, balance_of, float64, is_far, softmax_after, unit_of
from calirare.calibration.minimisers import newton_minimum
from calirare.calibration.platt_posterior import PlattPosterior, log_shares_of, residual_features, spread
from calirare.calibration.sampling import Sampling

SLOPE_SD = 0.5  # of log scale: a slope between .37 and 2.7 is nothing unusual
# Of a single network of two classes in place of 1 and .5: trained to a minimum, its logits are surer than labels bear
# out, and by how much differs more. The slope that is best for all other nodes of a graph has a logarithm of -.5 +- .8.
SINGLE_SLOPE, SINGLE_SLOPE_SD = 0.75, 0.75
RATIO_SD = 0.5  # of each class's log-ratio: what a network that learnt in a balanced world may have wrong by itself
FORM_SD = 0.5  # of the log-ratio of two classes' slopes, where each has its own
RESIDUAL_SD = 1.0  # of what the form has wrong about log-odds, from one unit of them to the next
# Standard deviations (of the usual prior, or of a wider one) beyond which labels show it was not made for such logits.
CONTRADICTED = 5.0
JEFFREYS = 0.5  # labels of each class that the prior of the shares is worth


class PriorPlattCalibrator(Calibrator):
    r"""Maps z to softmax(s (z - r) + alpha + lambda): Platt scaling that needs few labels of a class, or none.

    Training with class weights w_c on n_c labels learns, up to its errors, the logits of a world with class shares
    proportional to n_c w_c. Hence

        z_c = log p(x | c) + r_c,  r_c = log(n_c w_c / sum)        of training,
        log P(c | x) = log p(x | c) + lambda_c, lambda_c = log pi_c of the population with shares pi,

    both up to a constant of the node. So s = 1, alpha = 0 is the analytic correction. s mends over- and underconfidence
    and leaves alone the nodes z = r that speak for no class; alpha is what the network has wrong about the classes'
    ratio; lambda says how common they are. Each has a prior of its own:

        log s ~ N(log slope, slope_sd^2),  alpha_c - alpha_d ~ N(0, ratio_sd^2),  pi ~ Dirichlet(1/2)

    (Jeffreys' prior). Logits of labels drawn at random see alpha + lambda alone; how many
    labels there are of each class then says which part is lambda, so that a network that is wrong about the classes'
    ratio is mended for a balanced world too. A label drawn with numbers m_c fixed per class is of class c with odds
    that the design sets: Bayes' rule gives

        P(c | x, drawn) prop. to p(x | c) m_c, hence logits s (z - r) + alpha + log m

    (Prentice & Pyke 1979): such labels inform s and alpha, never lambda. The maximum of the posterior is found by
    Newton's method; the curvature (expected information) gives the covariance of the map, a Laplace approximation.

    With `form_sd` each class has a slope of its own. With L_c = log softmax(z - r)_c + log k, the logits s (z - r) are

        s_c L_c,  log s_c - log s_d ~ N(0, form_sd^2),

    which is s (z - r) where all slopes are s. With two classes s_1 is the slope among nodes that speak against class 1
    and s_0 that among nodes that speak for it: a network that is sure of the rest and not of the rare class, or the
    other way about, as where a part of the rare class looks like the rest. It is beta calibration (Kull et al. 2017),
    of several classes the diagonal of Dirichlet calibration (Kull et al. 2019), with a prior towards Platt's map.

    Neither form is right to the last, and where labels are many that is what is left to be wrong. With two classes the
    covariance therefore holds a residual too: a smooth function of the log-odds s_1 L_1 - s_0 L_0, added to them, a
    Gaussian process of standard deviation residual_sd and length 1 (Kennedy & O'Hagan 2001). It widens intervals where
    labels have not shown the form to be right, and moves those of numbers of nodes to where labels show it to be wrong
    (`move_`); the map itself it leaves as it is.

    The priors are about logits of a network. Where the labels put s or alpha `CONTRADICTED` standard deviations from
    what the prior expects, or logits are far from 0 (`is_far`), z is another score: of points, or of money. Platt's map
    without these priors then turns it into log-odds, and the priors hold for those.

    Without one rare label the map is the analytic correction with the share that Jeffreys' prior leaves open; with
    hundreds it is free Platt scaling, or free beta calibration. The intercept's standard deviation is that of the
    logarithm of a binomial count, about 1 / sqrt(rare labels), in between: only labels, or a known prevalence, tell how
    common a class is.

    Args:
        target: population the probabilities shall be right for: "population", "balanced" (lambda dropped) or a number
            t in [0, 1] (lambda times 1 - t), see `target_weights`. One map serves all: only lambda's part differs.
        trained_shares: share of each class in the training loss, n_c w_c up to a factor, k numbers > 0; None: equal,
            as class-balanced weights make them.
        slope: the median of s before any label, > 0.
        slope_sd: standard deviation of log s, > 0.
        ratio_sd: of differences of alpha, > 0.
        form_sd: of differences of the classes' log-slopes, > 0; None: one slope, an affine map of z.
        residual_sd: of what the form leaves out, log-odds of two classes, > 0; None: the form is taken for right.

    Attributes:
        theta_: log s, alpha_1 .. alpha_{k-1}, lambda_1 .. lambda_{k-1}, and where classes have slopes of their own log
            s_c - log s_0 of classes 1 .. k - 1 (log s is then the mean), relative to class 0, float64 [q].
        move_: from theta_ and a residual of 0 to where both are likeliest together, linearised, float64 [q + r].
        covariance_: there, of theta_ given the labels, and after it of the residual's numbers, float64 [q + r, q + r].
        counted_: number of labels that show how common the classes are, by weight; 0: pi is the prior's, as of labels
            that were all drawn per class. None: the prevalence was given.
        unit_: what logits are divided by first, 1 but for logits of unusual size, see `unit_of`, and other scores.
        level_: what is taken off another score over `unit_` in place of r, float64 [k]; None: logits of a network.

    Raises:
        ValueError: a setting is out of range.
    """

    fitted: ClassVar = dict.fromkeys(("theta", "covariance", "move", "level"), float64) | {
        "unit": float,
        "counted": float,
    }
    theta_: Tensor | None = None
    covariance_: Tensor | None = None
    move_: Tensor | None = None
    unit_: float = 1.0
    level_: Tensor | None = None
    counted_: float | None = None

    def __init__(
        self,
        *,
        target: Target = "population",
        trained_shares: Sequence[float] | None = None,
        slope: float = 1.0,
        slope_sd: float = SLOPE_SD,
        ratio_sd: float = RATIO_SD,
        form_sd: float | None = None,
        residual_sd: float | None = RESIDUAL_SD,
    ) -> None:
        self.target: Target = target
        self.trained_shares = trained_shares
        self.slope, self.slope_sd, self.ratio_sd = slope, slope_sd, ratio_sd
        self.form_sd, self.residual_sd = form_sd, residual_sd
        self.check_settings()

    def check_settings(self) -> None:
        """Checks the slope, the widths, the target and the shares of training."""
        op = type(self).__name__
        for name in ("slope", "slope_sd", "ratio_sd", "form_sd", "residual_sd"):
            width = getattr(self, name)
            if not (width is None and name in ("form_sd", "residual_sd")) and not 0 < width < math.inf:
                raise ValueError(f"{op}: {name} must be positive and finite, got {width}")
        if self.trained_shares is not None and not all(0 < share < math.inf for share in self.trained_shares):
            raise ValueError(f"{op}: trained_shares must be positive and finite, got {self.trained_shares}")
        balance_of(self.target)

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        parts = 2 if self.form_sd is None else 3  # of k - 1 numbers each
        return None if self.theta_ is None else (len(self.theta_) - 1) // parts + 1

    @property
    def scale_(self) -> float:
        """The slope, of logits as they are given; of several slopes their geometric mean."""
        return float(self._theta()[0].exp()) / self.unit_

    @property
    def bias_(self) -> Tensor | None:
        """What is added to scale times logits for the target, float64 [k], 0 for class 0; None: with several slopes."""
        if self.form_sd is not None:
            return None
        theta = self._theta()
        return self.intercepts_ - theta[0].exp() * self.pivot(len(theta) // 2 + 1).to(theta)

    @property
    def shares_(self) -> Tensor:
        """Estimated share of each class in the population, float64 [k]."""
        return torch.softmax(self._vectors()[2], 0)

    @property
    def slopes_(self) -> Tensor:
        """Slope s_c of each class's L_c, of logits divided by `unit_`, float64 [k]."""
        return self._vectors()[0].exp()

    @property
    def intercepts_(self) -> Tensor:
        """What is added to s_c L_c for the target, alpha and its part of lambda, float64 [k]."""
        _, alpha, shares = self._vectors()
        return alpha + (1 - balance_of(self.target)) * shares

    def _vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns log-slopes, alpha and lambda, each float64 [k]."""
        theta, k = self._theta(), self.n_classes
        assert k is not None
        slopes, alpha, shares = (theta @ spread(k, self.form_sd is not None).to(theta)).split(k)
        return slopes, alpha, shares

    def sloped(self, logits: Tensor) -> Tensor:
        """Returns s_c L_c of each node, float64 [n, k]: what the map makes of logits before alpha and lambda."""
        z = logits.double() / self.unit_ - self.pivot(logits.shape[1]).to(logits.device)
        return self.slopes_.to(logits.device) * log_shares_of(z)

    def pivot(self, k: int) -> Tensor:
        """Returns r, the logits over `unit_` without evidence for a class, relative to class 0: float64 [k]."""
        if self.level_ is not None:
            return self.level_
        if self.trained_shares is None:
            return _log_ratios((1.0,) * k)
        if len(self.trained_shares) != k:
            raise ValueError(
                f"{type(self).__name__}: trained_shares must have one number per class, {k}, got "
                f"{len(self.trained_shares)}"
            )
        return _log_ratios(tuple(float(share) for share in self.trained_shares))

    def fit(self, logits: Numbers, labels: Numbers, *, sampling: Sampling | None = None) -> Self:
        """Fits the map on logits, [n, k] or [n], of nodes that the network has not learnt from; returns self.

        Args:
            logits: leave-one-out, cross-fitted or held-out logits.
            labels: in [0, k), integers [n].
            sampling: how the labels were drawn; None: at random.
        """
        z, y = self._checked(logits, labels)
        if sampling is not None and len(sampling.representative) != len(z):
            raise ValueError(
                f"{type(self).__name__}: sampling must be of {len(z)} labels, got {len(sampling.representative)}"
            )
        self._maximise(z, y, sampling)
        return self

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        self._maximise(logits, labels, None)

    def _maximise(self, logits: Tensor, labels: Tensor, sampling: Sampling | None) -> None:
        """Sets theta_ to the maximum of the posterior, move_ and covariance_ to where the residual takes it."""
        m, k = logits.shape
        sampling = Sampling.at_random(m) if sampling is None else sampling
        self.unit_, self.level_, self.covariance_ = unit_of(logits), None, None
        if is_far(logits) and bool((labels != labels[0]).any()):
            self._take_for_score(logits, labels)
        posterior, theta = self._maximum(logits, labels, sampling)
        if self.level_ is None and self._contradicted(theta, k):
            self._take_for_score(logits, labels)
            posterior, theta = self._maximum(logits, labels, sampling)
        self.counted_ = float(posterior.representative.sum())
        self.theta_ = _as_counted(theta, posterior.log_shares()).cpu()
        move, information = posterior.likeliest(theta, self.residual(logits))
        factor, fault = torch.linalg.cholesky_ex(information)
        if int(fault):
            raise InputError(
                f"{type(self).__name__}: logits must be of one order of magnitude, got numbers up to "
                f"{float(logits.abs().max()):.3g} among others that spread by {self.unit_:.3g} times what is usual: "
                "look for a column of features with numbers far from all others"
            )
        self.covariance_, self.move_ = torch.cholesky_inverse(factor).cpu().contiguous(), move.cpu()

    def _maximum(self, logits: Tensor, labels: Tensor, sampling: Sampling) -> tuple[PlattPosterior, Tensor]:
        """Returns the posterior of logits over `unit_`, and the theta at its maximum."""
        away = logits.detach().double() / self.unit_ - self.pivot(logits.shape[1]).to(logits.device)
        posterior = PlattPosterior(
            away=log_shares_of(away),
            labels=labels,
            offsets=sampling.offsets(labels, logits.shape[1]),
            representative=sampling.representative.to(away),
            counts=away.new_full((logits.shape[1],), JEFFREYS),
            slope_precision=self.slope_sd**-2,
            ratio_precision=self.ratio_sd**-2,
            form_precision=None if self.form_sd is None else self.form_sd**-2,
            log_slope=math.log(self.slope),
        )
        return posterior, newton_minimum(posterior.loss, posterior.start(), posterior.derivatives)

    def _take_for_score(self, logits: Tensor, labels: Tensor) -> None:
        """Sets unit_ and level_ so that what follows are Platt's log-odds, less those of the labels' own shares."""
        line = AffineCalibrator(with_bias=True, target="population").fit(logits, labels)
        assert line.bias_ is not None
        seen = torch.bincount(labels, minlength=logits.shape[1]).cpu() + JEFFREYS
        self.unit_, self.level_ = 1 / line.scale_, (seen / seen[0]).log() - line.bias_.cpu()

    def _contradicted(self, theta: Tensor, k: int) -> bool:
        """Whether the slope, or a ratio of classes, is further from its prior's mean than `CONTRADICTED` allows."""
        ratios = torch.cat([theta.new_zeros(1), theta[1:k]])
        slope = abs(float(theta[0]) - math.log(self.slope)) / max(self.slope_sd, SLOPE_SD)
        return max(slope, float(ratios.max() - ratios.min()) / max(self.ratio_sd, RATIO_SD)) > CONTRADICTED

    def _theta(self) -> Tensor:
        if self.theta_ is None:
            raise RuntimeError(f"{type(self).__name__}: call fit before transform")
        return self.theta_

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns scale z + bias, or s_c L_c and alpha and lambda, [n, k], in the dtype of the logits."""
        self.check_classes(logits)
        bias = self.bias_
        if bias is not None:
            return self.scale_ * logits + bias.to(logits)
        return (self.sloped(logits) + self.intercepts_.to(logits.device)).to(logits)

    def residual(self, logits: Tensor) -> Tensor:
        """Returns the residual's features of each node, float64 [n, r]; r is 0 where there is none."""
        if self.residual_sd is None or logits.shape[1] > 2:
            return logits.new_zeros(len(logits), 0, dtype=torch.float64)
        sloped = self.sloped(logits)
        return residual_features(sloped[:, 1] - sloped[:, 0], self.residual_sd)

    def covariance_of_form(self) -> Tensor:
        """Returns the covariance of theta_ where the form is right, that is, given a residual of 0, [q, q]."""
        assert self.covariance_ is not None
        q = len(self._theta())
        own, cross, rest = self.covariance_[:q, :q], self.covariance_[:q, q:], self.covariance_[q:, q:]
        return own - cross @ torch.linalg.solve(rest, cross.T)

    @property
    def scales_p(self) -> bool:
        """Whether theta moves the logarithm of P, so that doubt multiplies P; else it moves the log-odds."""
        return False

    def bend(self, logits: Tensor, *, cut: bool = True) -> Tensor:
        """Returns the derivative of the log-odds by what theta makes, [n]: 1, unless bent (and `cut`) after."""
        return logits.new_ones(len(logits), dtype=torch.float64)

    def _transform(self, logits: Tensor) -> Tensor:
        return softmax_after(self.calibrated_logits, logits)


@lru_cache(maxsize=32)
def _log_ratios(shares: tuple[float, ...]) -> Tensor:
    """Returns logarithms of shares to the first one, float64 [k]."""
    return torch.tensor([math.log(share / shares[0]) for share in shares], dtype=torch.float64)


def _as_counted(theta: Tensor, log_shares: Tensor) -> Tensor:
    """Returns theta with lambda as labels count it and alpha the rest: alpha + lambda, what logits tell, is as it was.

    Labels drawn at random see only the sum through their logits; how many there are of each class says the other.
    """
    k, out = len(log_shares) + 1, theta.clone()
    out[1:k] += theta[k : 2 * k - 1] - log_shares
    out[k : 2 * k - 1] = log_shares
    return out
