"""How networks are trained: losses, optimisers, stationary points, cross-fitting, selection."""

from calirare.training.convergence import ARMIJO, CURVATURE, Adam, Convergence, converge, minimise
from calirare.training.crossfit import Loss, class_weights, cross_entropy, cross_fitted_logits, fold_of, folds_for
from calirare.training.fitted import (
    Detector,
    Fitted,
    FittedNetwork,
    FoldFitted,
    Progress,
    State,
    Wrapper,
    evaluating,
    flat,
    joined,
    prefixed,
    unprefixed,
)
from calirare.training.selection import HOPS, WEIGHT_DECAYS, choose, loo_loss

__all__ = [
    "ARMIJO",
    "CURVATURE",
    "HOPS",
    "WEIGHT_DECAYS",
    "Adam",
    "Convergence",
    "Detector",
    "Fitted",
    "FittedNetwork",
    "FoldFitted",
    "Loss",
    "Progress",
    "State",
    "Wrapper",
    "choose",
    "class_weights",
    "converge",
    "cross_entropy",
    "cross_fitted_logits",
    "evaluating",
    "flat",
    "fold_of",
    "folds_for",
    "joined",
    "loo_loss",
    "minimise",
    "prefixed",
    "unprefixed",
]
