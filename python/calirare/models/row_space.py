"""A network on far more columns than rows, trained in the space that the rows span: a column for each row.

At a minimum W_1 = X^T A (representer theorem, Schoelkopf, Herbrich and Smola 2001). With K = X X^T and C = K^(-1/2) the
columns of X^T C are orthonormal, of all such bases the one nearest to the rows (Loewdin 1950). In it the rows are
K^(1/2); loss, penalty and gradient at V are those at W_1 = X^T C V.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from calirare.models.convergence import Convergence, minimise
from calirare.models.fitted import flat
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit

WIDE = 15_000  # columns: of more than these a network is trained in the space of its rows
MOST_ROWS = 2_500  # whose eigenvectors are made: their time grows with the cube
NOTHING = 1e-12  # eigenvalues of K, of the largest: what rounding leaves of none


@dataclass(frozen=True, eq=False)
class RowSpace:
    """Where a network is trained: as it is, or of very many columns in the space of its rows.

    Attributes:
        wide: the network as it is.
        fitted: the network to train; `wide` itself where columns are few.
        root: C, float64 [r, r]; None: columns are few.
    """

    wide: GcnFit
    fitted: GcnFit
    root: Tensor | None = None

    @classmethod
    def of(cls, wide: GcnFit) -> Self:
        """Returns the space of a network's rows, its parameters those of the network as far as they lie in it."""
        x = wide.field.features
        if not isinstance(x, Tensor) or x.shape[1] <= WIDE or x.shape[0] > min(MOST_ROWS, x.shape[1]):
            return cls(wide, wide)
        gram, root = _roots(x)
        first, *later = wide.model.layers()
        inner = (root.T @ (x @ first[0].detach()).double()).to(x)
        narrow = GCN.of(wide.model.settings | {"n_features": len(x)}).to(x)
        fitted = replace(wide, model=narrow, field=replace(wide.field, features=gram.to(x)))
        fitted.move_to(flat([inner, first[1].detach(), *(part.detach() for layer in later for part in layer)]))
        return cls(wide, fitted, root)

    def lifted(self, theta: Tensor) -> Tensor:
        """Returns parameters [.., p'] of networks in the space as those of the wide ones, [.., p]."""
        if self.root is None:
            return theta
        x, (_, h) = self.wide.field.features, self.wide.shapes[0][0]
        assert isinstance(x, Tensor)
        inner, later = theta.split([len(self.root) * h, theta.shape[-1] - len(self.root) * h], -1)
        inner = (self.root @ inner.reshape(*theta.shape[:-1], -1, h).double()).to(x)
        return torch.cat([(x.T @ inner).flatten(-2), later], -1)

    def minimise(self, tolerance: float, max_steps: int) -> Convergence:
        """Moves the wide network to its minimum, see `calirare.models.minimise`."""
        ended = minimise(self.fitted, tolerance=tolerance, max_steps=max_steps)
        if self.root is not None:
            self.wide.move_to(self.lifted(self.fitted.theta))
        return ended

    def copy(self, sample_weights: Tensor) -> Self:
        """Returns copies of the networks with other weights of the labels; see `FittedNetwork.copy`."""
        wide = self.wide.copy(sample_weights=sample_weights)
        fitted = wide if self.root is None else self.fitted.copy(sample_weights=sample_weights)
        return replace(self, wide=wide, fitted=fitted)


def _roots(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns K^(1/2) and C = K^(-1/2) of rows [r, d], float64 [r, r]; in directions that no row has both are 0."""
    rows = x.double()
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    there = values > NOTHING * values[-1].clamp(min=0)
    length = torch.where(there, values, 0).sqrt()
    inverse = torch.where(there, length.reciprocal(), 0)
    return (vectors * length) @ vectors.T, (vectors * inverse) @ vectors.T
