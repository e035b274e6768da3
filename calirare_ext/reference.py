"""Every operator again, slowly and plainly, in torch alone: what the kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare_ext.csr import Csr
from calirare_ext.receptive_field import ReceptiveField

Layers = Sequence[tuple[Tensor, Tensor]]


def propagate(a: Csr, x: Tensor) -> Tensor:
    """Returns A X [n, d] by scattering every entry's contribution; any dtype torch can add."""
    out = torch.zeros(a.n_rows, x.shape[1], dtype=x.dtype, device=x.device)
    return out.index_add(0, a.rows(), a.values[:, None].to(x.dtype) * x[a.indices.long()])


def neighbour_means(a: Csr, x: Tensor) -> Tensor:
    """Returns D^-1 A X [n, d] in float64, 0 where a row of A sums to 0."""
    sums = propagate(a, torch.cat([x.double(), x.new_ones(x.shape[0], 1).double()], 1))
    total = sums[:, -1:]
    return torch.where(total == 0, 0.0, sums[:, :-1] / total)


def gcn_norm(adjacency: Tensor) -> Tensor:
    """Returns D^-1/2 (A + I) D^-1/2 of a dense adjacency [n, n]; the diagonal becomes 1 only where it is 0.

    A self loop of weight 0 that a `Csr` stores, and `gcn_norm` therefore keeps, cannot be told from none here.
    """
    with_loops = adjacency + torch.diag((adjacency.diagonal() == 0).to(adjacency.dtype))
    scale = with_loops.sum(1).rsqrt()
    return scale[:, None] * with_loops * scale[None, :]


def unflatten(vector: Tensor, layers: Layers) -> list[tuple[Tensor, Tensor]]:
    """Returns the parameter vector [p] as weights and biases shaped like `layers`."""
    parts, start = [], 0
    for weight, bias in layers:
        w = vector[start : start + weight.numel()].view_as(weight)
        b = vector[start + weight.numel() : start + weight.numel() + bias.numel()]
        parts.append((w, b))
        start += weight.numel() + bias.numel()
    return parts


def flatten(layers: Layers) -> Tensor:
    """Returns all parameters as one vector [p]: W_1, b_1, .., W_L, b_L, row-major."""
    return torch.cat([part.reshape(-1) for layer in layers for part in layer])


def gcn(field: ReceptiveField, layers: Layers) -> Tensor:
    """Returns the logits [m, k] of the field's nodes with dense matrices."""
    inputs = field.inputs.to_dense() if isinstance(field.inputs, Csr) else field.inputs
    z = inputs @ layers[0][0] + layers[0][1]
    for block, (weight, bias) in zip(field.blocks, layers[1:], strict=True):
        z = block.to_dense() @ torch.relu(z) @ weight + bias
    return z


def node_losses(field: ReceptiveField, layers: Layers, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns w_i l_i [m]."""
    return sample_weights * F.cross_entropy(gcn(field, layers), targets, reduction="none")


def node_gradients(field: ReceptiveField, layers: Layers, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns w_i grad l_i as rows [m, p], one reverse pass per node."""
    theta = flatten(layers)

    def losses(vector: Tensor) -> Tensor:
        return node_losses(field, unflatten(vector, layers), targets, sample_weights)

    return torch.autograd.functional.jacobian(losses, theta)


def hessian(field: ReceptiveField, layers: Layers, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns the Hessian [p, p] of sum_i w_i l_i / m."""

    def loss(vector: Tensor) -> Tensor:
        return node_losses(field, unflatten(vector, layers), targets, sample_weights).mean()

    return torch.autograd.functional.hessian(loss, flatten(layers))


def ggn(field: ReceptiveField, layers: Layers, sample_weights: Tensor) -> Tensor:
    """Returns the generalised Gauss-Newton matrix [p, p]: sum_i J_i^T w_i (diag(p_i) - p_i p_i^T) J_i / m."""

    def logits(vector: Tensor) -> Tensor:
        return gcn(field, unflatten(vector, layers))

    theta = flatten(layers)
    jacobian = torch.autograd.functional.jacobian(logits, theta)  # [m, k, p]
    p = torch.softmax(logits(theta), 1)
    curvature = sample_weights[:, None, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    return torch.einsum("mkp,mkl,mlq->pq", jacobian, curvature, jacobian) / p.shape[0]


def quantile(samples: Tensor, q: float) -> Tensor:
    """Returns the q quantile of each row [n] by sorting, NumPy's "linear" rule, in float64."""
    ordered = samples.double().sort(1).values
    position = q * (samples.shape[1] - 1)
    low = int(position)
    high = min(low + 1, samples.shape[1] - 1)
    return ordered[:, low] + (position - low) * (ordered[:, high] - ordered[:, low])


def jackknife_interval(scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float) -> tuple[Tensor, Tensor]:
    """Returns both interval ends [n] from the full sample matrices (paper, Eq. 6)."""
    return quantile(scores - residuals, q_lower), quantile(scores + residuals, q_upper)


def loo_messages(
    inputs: Tensor, z: Tensor, first: Tensor, second: Tensor, contrast: Tensor, mix: Tensor | None = None
) -> Tensor:
    """Returns the changes of the messages [r, m] from the product with all directions (see `LooDirections`)."""
    changed = torch.einsum("ud,dsh->ush", inputs, first[:-1]) + first[-1]
    active = (z > 0).to(z.dtype) * contrast
    out = torch.einsum("ush,uh->us", changed, active) + z.clamp(min=0) @ second
    return out if mix is None else out @ mix


def message_scores(
    a: Csr, messages: Tensor, logits: Tensor, shift: Tensor, scale: float = 1.0, bias: float = 0.0
) -> Tensor:
    """Returns f(v; theta_-i) [n, m] of every node from the changes of its neighbours' messages."""
    return torch.sigmoid(scale * (propagate(a, messages) + shift + logits[:, None]) + bias)


def confidence_bins(
    probabilities: Tensor, labels: Tensor, n_bins: int, weights: Tensor | None = None, slack: float = 1e-2
) -> tuple[Tensor, int]:
    """Returns the sums per bin of the confidence [4, M] and the number of refused rows, row by row."""
    edges = (torch.arange(n_bins + 1, dtype=torch.float64) / n_bins).to(probabilities.dtype).tolist()
    sums, refused = torch.zeros(4, n_bins, dtype=torch.float64), 0
    counts = [1.0] * len(labels) if weights is None else weights.tolist()
    for row, label, weight in zip(probabilities.tolist(), labels.tolist(), counts, strict=True):
        if not (all(0 <= p <= 1 for p in row) and abs(sum(row) - 1) <= slack and 0 <= label < len(row)):
            refused += 1
            continue
        confidence = max(row)
        in_bin = next(m for m in range(n_bins) if confidence <= edges[m + 1])
        right = row.index(confidence) == label
        sums[:, in_bin] += torch.tensor([1.0, weight, weight * confidence, weight * right], dtype=torch.float64)
    return sums, refused
