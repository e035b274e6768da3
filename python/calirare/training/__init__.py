"""How networks are trained: optimiser, losses, cross-fitting, selection."""
