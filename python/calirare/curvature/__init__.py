"""Derivatives of a network at its labelled nodes: Jacobian, kernel, Hessian."""
