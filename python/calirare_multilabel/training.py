"""Training multi-label networks: cross-entropy, focal loss or CMLCC, early stopping, beta by validation."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.errors import InputError
from calirare_multilabel.data import MultilabelData
from calirare_multilabel.drawing import seeded
from calirare_multilabel.estimator import canonical_calibration_error
from calirare_multilabel.loss import LOSS_NAMES, CMLCCLoss, LossName, focal_loss
from calirare_multilabel.networks import build_network

BETAS = (0.1, 0.3, 1.0, 3.0)
HAMMING_SLACK = 0.01  # a beta may worsen the Hamming loss of the validation rows by this share of it
SMALLEST_BATCH = 32  # a copula fitted to fewer rows is noise


@dataclass(frozen=True)
class TrainOptions:
    """Settings of one training run.

    Attributes:
        loss: "bce", "focal" or "cmlcc".
        beta: weight of the calibration error in "cmlcc", >= 0.
        p: order of its norm, >= 1.
        bandwidth: of its smooth CDF, > 0.
        gamma: exponent of "focal", >= 0.
        hidden: width of the hidden layer.
        dropout: of hidden units, in [0, 1).
        learning_rate: of Adam.
        weight_decay: of Adam.
        batch_size: rows per step, about; >= 32.
        max_epochs: at most so many passes over the training rows.
        patience: stop after so many epochs without a better validation loss.
        seed: of weights, batches and dropout.

    Raises:
        InputError: a setting is out of range.
    """

    loss: LossName = "bce"
    beta: float = 1.0
    p: float = 1
    bandwidth: float = 1.0
    gamma: float = 2.0
    hidden: int = 64
    dropout: float = 0.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 128
    max_epochs: int = 150
    patience: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.loss not in LOSS_NAMES:
            raise InputError(f"multilabel training: loss must be one of {', '.join(LOSS_NAMES)}, got {self.loss!r}")
        at_least = dict.fromkeys(("beta", "gamma", "weight_decay"), 0)
        at_least |= dict.fromkeys(("p", "hidden", "max_epochs", "patience"), 1) | {"batch_size": SMALLEST_BATCH}
        for name, least in at_least.items():
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise InputError(f"multilabel training: {name} must be at least {least} and finite, got {value}")
        positive = 0 < self.learning_rate < math.inf and 0 < self.bandwidth < math.inf
        if not (positive and 0 <= self.dropout < 1):
            raise InputError(
                "multilabel training: learning_rate and bandwidth must be positive and finite and dropout in [0, 1), "
                f"got {self.learning_rate}, {self.bandwidth} and {self.dropout}"
            )


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network with what its training saw.

    Attributes:
        network: at the epoch with the smallest validation loss, in evaluation mode.
        options: as trained.
        best_epoch: counted from 1.
        history: validation loss after each epoch.
    """

    network: nn.Module
    options: TrainOptions
    best_epoch: int
    history: tuple[float, ...]

    @torch.no_grad()
    def logits(self, data: MultilabelData, rows: Tensor) -> Tensor:
        """Returns the logits of some rows, float64 [m, K]."""
        return self.network(data.x, rows).double()

    def scores(self, data: MultilabelData, rows: Tensor) -> Tensor:
        """Returns the predicted probabilities of some rows, float64 [m, K]."""
        return self.logits(data, rows).sigmoid()


def make_loss(options: TrainOptions) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the loss of logits and labels (both [m, K]) that the options name."""
    if options.loss == "focal":
        return lambda logits, labels: focal_loss(logits, labels, options.gamma)
    if options.loss == "cmlcc":
        return CMLCCLoss(options.beta, p=options.p, bandwidth=options.bandwidth)
    return F.binary_cross_entropy_with_logits


def train_network(
    data: MultilabelData, options: TrainOptions, *, progress: Callable[[int, float], None] | None = None
) -> TrainedModel:
    """Trains a network on the training rows and keeps the epoch that is best on the validation rows, by the same loss.

    Test rows are never read. Features are expected at an even scale (`MultilabelData.standardised`).

    Args:
        data: features, labels and split; a graph is propagated over, images are convolved.
        options: loss, network and optimiser.
        progress: called with epoch and validation loss after each epoch.

    Returns:
        The model.

    Raises:
        InputError: the loss is not finite.
    """
    rows, labels = data.part("train")
    val_rows, val_labels = data.part("val")
    y, val_y = labels.float(), val_labels.float()
    network = build_network(data, hidden=options.hidden, dropout=options.dropout, seed=options.seed)
    loss = make_loss(options)
    optimiser = torch.optim.Adam(network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
    random = torch.Generator().manual_seed(options.seed)
    history: list[float] = []
    best, best_state = float("inf"), copy.deepcopy(network.state_dict())
    with seeded(options.seed, data.x.device) if options.dropout else nullcontext():  # what dropout draws
        for epoch in range(1, options.max_epochs + 1):
            network.train()
            for batch in _batches(len(rows), options.batch_size, random):
                optimiser.zero_grad()
                loss(network(data.x, rows[batch]), y[batch]).backward()
                optimiser.step()
            network.eval()
            with torch.no_grad():
                history.append(float(loss(network(data.x, val_rows), val_y)))
            if progress is not None:
                progress(epoch, history[-1])
            if history[-1] < best:
                best, best_state = history[-1], copy.deepcopy(network.state_dict())
            elif not history[-1] < float("inf"):
                raise InputError(
                    f"{data.name}: the validation loss must be finite, got {history[-1]} in epoch {epoch}:"
                    " standardise the features or lower the learning rate"
                )
            if epoch - _best_epoch(history) >= options.patience:
                break
    network.load_state_dict(best_state)
    network.eval()
    return TrainedModel(network, options, _best_epoch(history), tuple(history))


def _best_epoch(history: list[float]) -> int:
    return min(range(len(history)), key=history.__getitem__) + 1


def _batches(n: int, size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yields the rows in random order in batches of nearly equal size."""
    yield from torch.tensor_split(torch.randperm(n, generator=random), max(1, round(n / size)))


BetaTable = Mapping[float, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class BetaChoice:
    """The beta that validation rows chose, and what they said of each.

    Attributes:
        model: trained with the chosen beta.
        beta: the choice.
        models: trained with each beta.
        table: for each beta (0 is cross-entropy) the canonical error and the Hamming loss on the validation rows.
        within_slack: whether the choice keeps the Hamming loss within the slack; if none does, the smallest beta is
            taken.
    """

    model: TrainedModel
    beta: float
    models: dict[float, TrainedModel]
    table: BetaTable
    within_slack: bool


def choose_beta(
    data: MultilabelData,
    options: TrainOptions,
    *,
    betas: tuple[float, ...] = BETAS,
    baseline: TrainedModel | None = None,
    slack: float = HAMMING_SLACK,
) -> BetaChoice:
    """Trains CMLCC with each beta and keeps the best one by the validation rows; test rows are never read.

    The best is the smallest canonical error (document's estimator) among the betas whose Hamming loss is at most
    (1 + slack) times that of plain cross-entropy.

    Args:
        data: features, labels and split.
        options: of the runs; loss and beta are set here.
        betas: candidates, > 0.
        baseline: the model trained with cross-entropy and the same options; None trains it.
        slack: see above, >= 0.

    Returns:
        The choice.

    Raises:
        InputError: there is no candidate, or one is not positive.
    """
    if not betas or min(betas) <= 0:
        raise InputError(f"multilabel training: betas must be positive numbers, got {betas}")
    rows, labels = data.part("val")
    baseline = baseline or train_network(data, dataclasses.replace(options, loss="bce"))
    table = {0.0: _judge(baseline.scores(data, rows), labels, options.p)}
    models = {}
    for beta in sorted(betas):
        models[beta] = train_network(data, dataclasses.replace(options, loss="cmlcc", beta=beta))
        table[beta] = _judge(models[beta].scores(data, rows), labels, options.p)
    beta, within = best_beta(table, slack)
    return BetaChoice(models[beta], beta, models, table, within)


def best_beta(table: BetaTable, slack: float = HAMMING_SLACK) -> tuple[float, bool]:
    """Returns the beta with the smallest error among those that keep the Hamming loss, and whether any does.

    Args:
        table: beta -> canonical error and Hamming loss on validation rows, with the entry 0 for cross-entropy.
        slack: a beta may worsen the Hamming loss by this share of that of cross-entropy.

    Returns:
        The beta, the smallest if none keeps the Hamming loss; and whether any does.
    """
    limit = (1 + slack) * table[0.0][1]
    betas = [beta for beta in table if beta > 0]
    allowed = [beta for beta in betas if table[beta][1] <= limit]
    return min(allowed, key=lambda beta: table[beta][0]) if allowed else min(betas), bool(allowed)


def _judge(scores: Tensor, labels: Tensor, p: float) -> tuple[float, float]:
    wrong = ((scores > 0.5) != labels).double().mean()
    return canonical_calibration_error(labels, scores, norm=p).mean, float(wrong)


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Returns the T in [0.05, 20] that minimises the cross-entropy of sigmoid(logits / T): the post-hoc comparator.

    Args:
        logits: float64 [m, K], of validation rows.
        labels: bool [m, K].

    Returns:
        T.
    """
    from scipy.optimize import minimize_scalar

    y = labels.to(logits.dtype)

    def risk(log_t: float) -> float:
        return float(F.binary_cross_entropy_with_logits(logits * float(torch.tensor(-log_t).exp()), y))

    bound = float(torch.tensor(20.0).log())
    return float(torch.tensor(minimize_scalar(risk, bounds=(-bound, bound), method="bounded").x).exp())
