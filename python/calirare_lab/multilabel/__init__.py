"""Experiments, simulation study and references of the copula estimator."""
