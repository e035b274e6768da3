"""What every row of the record tells of a map's probabilities on the test nodes."""

from __future__ import annotations

from torch import Tensor

from calirare.metrics import accuracy, brier, classwise_ece, debiased_ece, ece, nll, noise_floor

DRAWS = 50  # of labels, for what chance alone gives
MEASURES = ("nll", "brier", "ece", "ece_floor", "debiased_ece", "classwise_ece", "accuracy")


def judge(labels: Tensor, p: Tensor, bins: int) -> dict[str, float]:
    """Returns every measure.

    Args:
        labels: classes of the test nodes, int64 [n].
        p: their probabilities [n, k].
        bins: of equal width, of every ECE.

    Returns:
        By name, rounded to six digits; "ece_floor" is the mean ECE of labels drawn from p, "debiased_ece" that of norm
        1, which may be negative.
    """
    floor = noise_floor(lambda drawn, q: ece(drawn, q, bins), p, n_draws=DRAWS)
    values = {
        "nll": nll(labels, p),
        "brier": brier(labels, p),
        "ece": ece(labels, p, bins),
        "ece_floor": floor.mean,
        "debiased_ece": debiased_ece(labels, p, bins, norm=1),
        "classwise_ece": classwise_ece(labels, p, bins),
        "accuracy": accuracy(labels.numpy(), p.argmax(1).numpy()),
    }
    return {name: round(float(value), 6) for name, value in values.items()}
