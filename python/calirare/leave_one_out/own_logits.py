"""Each label's own logits without itself, at any damping: what calibration maps and every choice of damping rest on."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.memory import BLOCK_BYTES, check_memory
from calirare.curvature import (
    Linearisation,
    OneLayerHat,
    SpectralHat,
    is_one_layer,
    with_class_zero,
)
from calirare.leave_one_out.formula import (
    choose_form,
    leave_out_own,
    loo_coefficients,
    own_change,
)
from calirare.leave_one_out.krylov import TOLERANCE, KrylovOwn, krylov_bytes
from calirare.leave_one_out.result import Size
from calirare.leave_one_out.sampled import DRAWN, DRAWN_ROUGHLY, SampledOwn, sampled_bytes, samples

DENSE = 2_500  # side of a dense system of many classes that is solved as fast as a subspace is made
DENSE_OF_TWO = 4_000  # of two classes, for some dampings
ONE_LAYER = 6_000  # of one layer, whose system has less in it to be made


def own_form(linearised: Linearisation, tolerance: float = TOLERANCE) -> str:
    """Returns how own logits of a network are made, see `OwnLogits`."""
    dual = linearised.n_nodes * (linearised.n_classes - 1)
    smaller = min(dual, linearised.n_parameters)
    if linearised.n_classes > 2 and is_one_layer(linearised) and smaller < dual and smaller <= ONE_LAYER:
        return "one layer"
    if tolerance > 0 and samples(linearised):
        return "sampled"
    if tolerance > 0 and smaller > (DENSE if linearised.n_classes > 2 else DENSE_OF_TWO):
        return "krylov"
    return "primal" if choose_form(linearised) == "primal" else "dual"


class OwnLogits:
    """damping -> logits [m, k] of each labelled node under the model without it, class 0 at 0, float64.

    The formula of `alo`, for the labels themselves. Of more labels than parameters the spectrum of the p x p
    Gauss-Newton matrix J^T D J = Q diag(lambda) Q^T is computed once; with G = J Q, P_i = G_i (lambda + mu)^-1 G_i^T
    then costs m p for each damping mu. Of fewer labels it is the m x m kernel, and each damping solves a system. One
    layer of more than two classes solves another (`OneLayerHat`), and where both m (k - 1) and p are large, it is a
    subspace that grows to a tolerance (`krylov`), or, of two classes, two layers and labels by the ten thousand, the
    curvature of some labels drawn at random (`sampled`).

    Args:
        linearised: the network at the labelled nodes.
        kernel: K at the labelled nodes [m (k - 1), m (k - 1)], where it is known already; it makes the second form.
        tolerance: relative, of the own changes where a subspace is taken; 0: none is, whatever it costs.

    Attributes:
        form: "primal", "dual", "one layer", "krylov" or "sampled".

    Raises:
        InputError: it would not fit into memory.
    """

    def __init__(
        self, linearised: Linearisation, kernel: Tensor | None = None, *, tolerance: float = TOLERANCE
    ) -> None:
        self.linearised = linearised
        self.curvature, self.error = linearised.loss_terms
        self.form = own_form(linearised, tolerance) if kernel is None else "dual"
        self._hat: Callable[[float], Tensor]  # P_i, [m, k - 1, k - 1]
        check_memory(self._bytes(), None, linearised.logits.device, "take fewer labels, or a narrower network")
        if self.form == "primal":
            self._hat = SpectralHat(linearised)
        elif self.form == "one layer":
            assert is_one_layer(linearised)
            self._hat = OneLayerHat(linearised)
        elif self.form == "krylov":
            self.krylov = KrylovOwn(linearised, tolerance)
        elif samples(linearised) and self.form == "sampled":
            self.sampled = SampledOwn(linearised, DRAWN if tolerance <= TOLERANCE else DRAWN_ROUGHLY)
        else:
            self.kernel = linearised.kernel if kernel is None else kernel

    def _bytes(self) -> int:
        """Returns an upper estimate of the memory it takes."""
        size = Size.of(self.linearised, self.linearised.field)
        dual, p = size.dual, size.p
        if self.form == "krylov":
            return krylov_bytes(size)
        if self.form == "sampled":
            return sampled_bytes(self.linearised)
        if self.form == "one layer":
            return 4 * p * p * 8 + 2 * size.m * p * 8 + BLOCK_BYTES
        if self.form == "primal":
            return dual * p * (size.bytes + 3 * 8) + 4 * p * p * 8 + BLOCK_BYTES
        return 2 * size.rows * size.m * size.bytes + 4 * dual * dual * 8 + BLOCK_BYTES

    def __call__(self, damping: float, labels: Tensor | None = None) -> Tensor:
        """Returns the logits [m, k] with a damping mu > 0, or those of some labels, bool [m]."""
        chosen = None if labels is None else labels.nonzero().flatten()
        start, own = self.linearised.differences.double(), self._own(damping, chosen)
        return with_class_zero((start if chosen is None else start[chosen]) + own)

    def _own(self, damping: float, chosen: Tensor | None) -> Tensor:
        """Returns the own changes of labels, [m, k - 1]; of form "sampled" only the chosen ones are made."""
        if self.form == "sampled":
            return self.sampled(damping, chosen)
        if self.form == "krylov":
            own = self.krylov(damping)
        elif self.form in ("primal", "one layer"):
            _, own, _ = leave_out_own(self._hat(damping), self.curvature, self.error)
        else:
            coefficients, _ = loo_coefficients(self.linearised, self.kernel, damping)
            own = own_change(self.linearised, self.kernel, coefficients)
        return own if chosen is None else own[chosen]

    def rough_note(self, damping: float) -> str:
        """Returns what makes the logits rough: a draw, or a subspace that ended early; else nothing."""
        if self.form == "krylov" and self.krylov.error > self.krylov.tolerance:
            n, r = self.krylov.basis.shape
            off = f"off by about {self.krylov.error:.0%}" if self.krylov.error < 1 else "how far off is not known"
            return f"what leaving a label out changes was worked out in {r:,} of {n:,} directions: {off}"
        if self.form != "sampled":
            return ""
        found, m = self.sampled, self.linearised.n_nodes
        return (
            f"what leaving a label out changes rests on the curvature of {found.n_drawn:,} of the {amount(m, 'label')}"
            f", drawn at random: relative standard error {found.error(damping):.2g}"
        )
