"""A linear model on more columns than labels, in the few coordinates that the rows of its labels span.

With weight decay the weights at a minimum are sums of the labels' rows X [m, d] (Kimeldorf & Wahba 1970). With
X X^T = U S U^T the model on U S^1/2 [m, r] with weights V is the one on X with weights X^T U S^-1/2 V: it has the same
logits and the same |theta|, so minima, kernels and leave-one-out are the same, at the price of m columns.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calirare.models.folded import FoldedNetwork
from calirare.models.gcn import GCN
from calirare.models.hops import HopsFit
from calirare_ext import ReceptiveField, as_dense

NOTHING = 1e-12  # of the largest eigenvalue of X X^T: one that rounding makes of 0
TINY = 1e-300  # stands in for an eigenvalue of 0
TOGETHER = 4096  # columns that are in double precision at a time


class Spanned:
    """The coordinates of one linear model.

    Args:
        fit: the model, trained or not; of one layer.

    Attributes:
        small: the model on the coordinates, float64, with weights 0; what it reads of a graph is not among them.

    Cost: m^2 d + 10 m^3 multiply-adds once.
    """

    def __init__(self, fit: HopsFit) -> None:
        self.fit, self._rows = fit, as_dense(fit.field.features)
        gram = sum(part @ part.T for part in (each.double() for each in self._rows.split(TOGETHER, 1)))
        assert isinstance(gram, Tensor)
        values, vectors = torch.linalg.eigh(gram)
        kept = values > NOTHING * values[-1]
        kept[-1] = True  # where all rows are 0
        root = values[kept].clamp(min=TINY).sqrt()
        self._back = vectors[:, kept] / root  # U S^-1/2
        field = ReceptiveField(fit.field.rows, vectors[:, kept] * root, ())
        self.small = replace(fit, model=_network(int(kept.sum()), fit.model).double(), field=field)

    def whole(self, folded: FoldedNetwork) -> FoldedNetwork:
        """Returns models on the coordinates, of `small` and of folds, as models on the columns, float32."""
        network = replace(self.fit, model=self._model(folded.network.model), weight_decay=folded.network.weight_decay)
        return replace(folded, network=network, without=tuple(self._model(each) for each in folded.without))

    def _model(self, small: GCN) -> GCN:
        ((weight, bias),) = small.layers()
        out, sums = _network(self._rows.shape[1], small), self._back @ weight.detach().double()
        with torch.no_grad():
            parts = [each.double().T @ sums for each in self._rows.split(TOGETHER, 1)]
            out.weights[0].copy_(torch.cat(parts))
            out.biases[0].copy_(bias)
        return out


def _network(width: int, like: GCN) -> GCN:
    """Returns a linear model of so many columns, float32, with weights 0."""
    model = GCN(
        width, like.n_classes, n_layers=1, dropout=like.dropout, hops=0, order=like.order, generator=torch.Generator()
    )
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
    return model.to(like.weights[0].device).eval()
