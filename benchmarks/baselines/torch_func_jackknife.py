"""The strongest plain-PyTorch baseline: torch.func alone, exact, restricted to the labels' receptive field.

Per-node gradients by vmap(grad), inverse-Hessian products by batched conjugate gradients over vmap(jvp(grad)), changed
predictions by vmap(jvp). Nothing of calirare is used but the arrays it is given.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as F

Parameters = dict[str, Tensor]


class TwoLayers(torch.nn.Module):
    """relu(S W1 + b1), aggregated by a dense block, W2, b2."""

    def __init__(self, d: int, h: int, k: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(d, h), torch.nn.Linear(h, k)

    def forward(self, s: Tensor, block: Tensor) -> Tensor:
        return self.second(block @ torch.relu(self.first(s)))


class Baseline:
    """Influence functions by torch.func.

    Args:
        model: the network, trained.
        s: (A X) at the receptive field of the labels, dense [r, d].
        block: A between the labels and that field, dense [m, r].
        targets: int64 [m].
        weights: of each label's loss, [m].
        damping: added to the Hessian.
    """

    def __init__(
        self, model: TwoLayers, s: Tensor, block: Tensor, targets: Tensor, weights: Tensor, damping: float
    ) -> None:
        self.model, self.s, self.block = model, s, block
        self.targets, self.weights, self.damping = targets, weights, damping
        self.parameters = {name: p.detach() for name, p in model.named_parameters()}

    def _logits(self, parameters: Parameters, s: Tensor, block: Tensor) -> Tensor:
        return functional_call(self.model, parameters, (s, block))

    def _loss(self, parameters: Parameters) -> Tensor:
        z = self._logits(parameters, self.s, self.block)
        return (self.weights * F.cross_entropy(z, self.targets, reduction="none")).mean()

    def gradients(self) -> Parameters:
        """Returns w_i grad l_i / m for each label, batched first."""

        def one(parameters: Parameters, row: Tensor, target: Tensor, weight: Tensor) -> Tensor:
            z = self._logits(parameters, self.s, row[None])
            return weight * F.cross_entropy(z, target[None]) / self.targets.numel()

        return vmap(grad(one), in_dims=(None, 0, 0, 0))(self.parameters, self.block, self.targets, self.weights)

    def product(self, vectors: Parameters) -> Parameters:
        """Returns (H + damping) v for a batch of vectors."""

        def one(vector: Parameters) -> Parameters:
            return jvp(grad(self._loss), (self.parameters,), (vector,))[1]

        moved = vmap(one)(vectors)
        return {name: moved[name] + self.damping * vectors[name] for name in moved}

    def solve(self, rhs: Parameters, tolerance: float, max_iterations: int = 200) -> tuple[Parameters, int, float]:
        """Returns (H + damping)^-1 g for a batch by conjugate gradients, the iterations and the worst residual."""
        x = {name: torch.zeros_like(value) for name, value in rhs.items()}
        r = {name: value.clone() for name, value in rhs.items()}
        p = {name: value.clone() for name, value in rhs.items()}
        rr = start = _dots(r, r)
        done = 0
        while done < max_iterations:
            done += 1
            ap = self.product(p)
            alpha = torch.where(rr > (tolerance**2) * start, rr / _dots(p, ap), torch.zeros_like(rr))
            x = {n: x[n] + _scale(alpha, p[n]) for n in x}
            r = {n: r[n] - _scale(alpha, ap[n]) for n in r}
            new = _dots(r, r)
            beta = new / rr
            p = {n: r[n] + _scale(beta, p[n]) for n in p}
            rr = new
            if bool((rr <= (tolerance**2) * start).all()):
                break
        return x, done, float((rr / start).max().sqrt())

    def changed_scores(self, directions: Parameters, s: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns f(v; theta_-i), probability of class 1, [n, m], by forward passes at theta + direction."""
        scores = []
        for i in range(self.targets.numel()):
            moved = {name: self.parameters[name] + directions[name][i] for name in directions}
            hidden = torch.relu(s @ moved["first.weight"].T + moved["first.bias"])
            z = product(hidden) @ moved["second.weight"].T + moved["second.bias"]
            scores.append(torch.softmax(z, 1)[:, 1])
        return torch.stack(scores, 1)


def _scale(factor: Tensor, value: Tensor) -> Tensor:
    return factor.view(-1, *[1] * (value.dim() - 1)) * value


def _dots(a: Parameters, b: Parameters) -> Tensor:
    return torch.stack([(a[name] * b[name]).flatten(1).sum(1) for name in a]).sum(0)
