"""Each label's own logits without itself, at any damping: what calibration maps and every choice of damping rest on."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.curvature.ggn import curvature_and_error, jacobian, logit_differences, own_kernel
from calirare.curvature.module_tape import Tape
from calirare.leave_one_out.alo import (
    block_of_labels,
    choose_form,
    gauss_newton,
    leave_out_own,
    loo_coefficients,
    own_change,
)
from calirare.leave_one_out.memory import check_memory, estimate_bytes


class OwnLogits:
    """damping -> logits [m, k] of each labelled node under the model without it, class 0 at 0, float64.

    The formula of `alo`, for the labels themselves. Of more labels than parameters the spectrum of the p x p
    Gauss-Newton matrix J^T D J = Q diag(lambda) Q^T is computed once; with G = J Q, P_i = G_i (lambda + mu)^-1 G_i^T
    then costs m p for each damping mu. Of fewer labels it is the m x m kernel, and each damping solves a system.

    Args:
        tape: the network at the labelled nodes.
        kernel: K at the labelled nodes [m (k - 1), m (k - 1)], where it is known already; it makes the second form.

    Raises:
        InputError: it would not fit into memory.
    """

    def __init__(self, tape: Tape, kernel: Tensor | None = None) -> None:
        self.tape = tape
        self.curvature, self.error = curvature_and_error(tape)
        self.primal = kernel is None and choose_form(tape) == "primal"
        form = "spectrum" if self.primal else "kernel"
        needed = estimate_bytes("alo", form, tape, tape.field, 0)
        check_memory(needed, None, tape.logits.device, "take fewer labels, or a narrower network")
        if self.primal:
            self._decompose()
        else:
            self.kernel = own_kernel(tape) if kernel is None else kernel

    def _decompose(self) -> None:
        rows = jacobian(self.tape)
        _, k, _ = self.curvature.shape
        p = rows.shape[1]
        self.block = block_of_labels(p * k)
        values, vectors = torch.linalg.eigh(gauss_newton(rows, self.curvature))
        self.values = values.clamp_(min=0)
        self.rows = torch.cat([part.double() @ vectors for part in rows.split(self.block * k)])  # G

    def _hat(self, damping: float) -> Tensor:
        """Returns P_i, [m, k - 1, k - 1]."""
        k = self.curvature.shape[1]
        inverse = 1 / (self.values + damping)
        parts = self.rows.view(-1, k, self.rows.shape[1]).split(self.block)
        return torch.cat([(part * inverse) @ part.mT for part in parts])

    def __call__(self, damping: float) -> Tensor:
        """Returns the logits [m, k] with a damping mu > 0."""
        if self.primal:
            _, own, _ = leave_out_own(self._hat(damping), self.curvature, self.error)
        else:
            coefficients, _ = loo_coefficients(self.tape, self.kernel, damping)
            own = own_change(self.tape, self.kernel, coefficients)
        moved = logit_differences(self.tape.logits).double() + own
        return torch.cat([moved.new_zeros(moved.shape[0], 1), moved], 1)
