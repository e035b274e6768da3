"""Sums per bin of confidence, in one pass over the rows: what expected and maximum calibration error are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_range, check_shape, check_whole

MOST_BINS = 1 << 24  # as many numbers as float32 tells apart in (0.5, 1]; the sums of more would fill memory


def confidence_bins(
    probabilities: Tensor, labels: Tensor, n_bins: int, *, weights: Tensor | None = None, slack: float = 1e-2
) -> tuple[Tensor, int]:
    """Returns the sums per bin ((m-1)/M, m/M] of the confidence (paper, Eq. 2), and how many rows were refused.

    The confidence is the largest probability of a row and the prediction the first class that has it. Edges are m/M
    rounded to the dtype of the probabilities; a confidence of exactly 0 lies in the first bin, one of 1 in the last.
    No derivative flows through it.

    Args:
        probabilities: [n, k], k >= 1, float32/float64, on the CPU.
        labels: int64 [n].
        n_bins: M, 1 to `MOST_BINS`.
        weights: float64 [n], or None: every sample counts 1.
        slack: how far a row's sum may be from 1.

    Returns:
        Sums, float64 [4, M]: samples, weight, weight x confidence, weight x (prediction is right); and the number of
        rows that enter none of them: NaN, an entry outside [0, 1], a sum off by more than `slack`, or a label outside
        0..k-1.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a shape, range or device is wrong.

    Precision: sums in float64; the same bits for any number of threads.
    Cost: one pass over the probabilities; scratch of at most n / 2 bytes.
    """
    op = "confidence_bins"
    check_float(op, "probabilities", probabilities)
    check_shape(op, "probabilities", probabilities, (None, None))
    if probabilities.device.type != "cpu" or probabilities.shape[1] == 0:
        where = f"{list(probabilities.shape)} on {probabilities.device}"
        raise ValueError(f"{op}: probabilities must be on the CPU with at least one column, got {where}")
    check_whole(op, "n_bins", n_bins)
    check_range(op, "n_bins", n_bins, 1, MOST_BINS)
    given = [("labels", labels, torch.int64)]
    if weights is not None:
        given.append(("weights", weights, torch.float64))
    for name, x, dtype in given:
        check_shape(op, name, x, (probabilities.shape[0],))
        if x.dtype != dtype:
            raise TypeError(f"{op}: {name} must be {dtype}, got {x.dtype}")
        if x.device != probabilities.device:
            raise ValueError(f"{op}: {name} must be on {probabilities.device}, got {x.device}")
    edges = (torch.arange(n_bins + 1, dtype=torch.float64) / n_bins).to(probabilities.dtype)
    p = probabilities.detach()
    rows = p if p.shape[1] <= 1 or p.stride(1) == 1 else p.contiguous()
    flat = None if weights is None else weights.detach().contiguous()
    return _C.confidence_bins(rows, labels.contiguous(), flat, edges, slack)
