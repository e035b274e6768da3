"""The experiment's protocol: which graphs, splits, seeds and measures (paper, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph
from calirare_lab.paper import other_columns
from calirare_lab.paper.published import LABEL_RATES

DATASETS = ("cora", "citeseer", "dblp", "facebook")  # judged
KNOWN = (*DATASETS, "pubmed", "facebook_bag", other_columns.NAME)  # can be asked for
N_SEEDS = 10
N_FLOOR_DRAWS = 50
N_BOOTSTRAP_DRAWS = 200

MEASURES = (
    "recall",
    "macro_f1",
    "accuracy",
    "ace_minority",
    "macro_ace",
    "ece",
    "mce",
    "classwise_ece",
    "nll",
    "brier",
    "eice",
    "eice_midpoint",
)
HIGHER_IS_BETTER = ("recall", "macro_f1", "accuracy")


@dataclass(frozen=True, order=True)
class Place:
    """One drawing of the data.

    Attributes:
        dataset: name.
        label_rate: training nodes per class before merging.
        seed: of everything drawn: the split (Cora, CiteSeer and PubMed keep the public one and draw the nodes added
            above label rate 20), the weights, the dropout.

    Raises:
        InputError: the data set or the label rate is unknown to the protocol.
    """

    dataset: str
    label_rate: int
    seed: int

    def __post_init__(self) -> None:
        """Checks names and ranges."""
        if self.dataset not in KNOWN:
            raise InputError(f"paper: dataset must be one of {', '.join(KNOWN)}, got {self.dataset!r}")
        if self.label_rate not in LABEL_RATES or self.seed < 0:
            raise InputError(
                f"paper: label rate must be one of {', '.join(map(str, LABEL_RATES))} and seed >= 0, got "
                f"{self.label_rate} and {self.seed}"
            )

    def load(self) -> Graph:
        """Returns the graph with its split."""
        graph = load_dataset(_file_of(self.dataset), label_rate=self.label_rate, seed=self.seed)
        return other_columns.with_other_columns(graph) if self.dataset == other_columns.NAME else graph


def paper_name(dataset: str) -> str:
    """Returns which of the paper's data sets a data set is a form of."""
    return other_columns.INSTEAD_OF if dataset in ("facebook_bag", other_columns.NAME) else dataset


def _file_of(dataset: str) -> str:
    return "facebook_bag" if dataset == other_columns.NAME else dataset


def why_not_run(dataset: str) -> str:
    """Returns why a data set cannot be run here, or an empty string where it can."""
    try:
        load_dataset(_file_of(dataset))
    except InputError as error:
        return str(error)
    return ""


def places(datasets: tuple[str, ...], label_rates: tuple[int, ...], n_seeds: int) -> list[Place]:
    """Returns every place, seeds innermost."""
    return [Place(d, rate, seed) for d in datasets for rate in label_rates for seed in range(n_seeds)]
