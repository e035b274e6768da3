"""Rows with several labels each: what every multi-label model trains and is judged on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph import Split, check_adjacency
from calirare_ext import Csr


@dataclass(frozen=True, eq=False)
class MultilabelData:
    """Rows with features and several labels each, split into training, validation and test.

    Attributes:
        x: float32 [n, d], or images [n, channels, height, width], finite.
        y: multi-hot, bool [n, K].
        split: which rows train, validate and test.
        label_names: str [K].
        name: what the data is called.
        adjacency: of the graph on the rows, [n, n], where there is one.

    Raises:
        InputError: shapes do not fit, a value is not finite, two labels have one name, a row of the split does not
            exist, or a part of the split that is needed is empty.
    """

    x: Tensor
    y: Tensor
    split: Split
    label_names: tuple[str, ...]
    name: str
    adjacency: Csr | None = None

    def __post_init__(self) -> None:
        """Checks what training relies on."""
        n = len(self.x)
        if self.y.dim() != 2 or len(self.y) != n or self.y.shape[1] < 1 or self.y.dtype != torch.bool:
            raise InputError(
                f"{self.name}: labels must be a 0/1 table with one row for each of the {n} rows of features and at "
                f"least one label, got shape {list(self.y.shape)}"
            )
        if self.x.dim() not in (2, 4) or not bool(torch.isfinite(self.x).all()):
            raise InputError(
                f"{self.name}: features must be a table or images of finite numbers, got shape "
                f"{list(self.x.shape)} or a NaN: fill or drop the rows concerned"
            )
        self._check_names()
        for part in ("train", "val", "test"):
            rows = getattr(self.split, part)
            if part != "test" and len(rows) < 2:
                raise InputError(f"{self.name}: the {part} part must hold at least 2 rows, got {len(rows)}")
            if len(rows) and int(rows[-1]) >= n:
                raise InputError(f"{self.name}: the {part} part must name rows below {n}, got row {int(rows[-1])}")
        if self.adjacency is not None:
            if self.adjacency.shape != (n, n):
                raise InputError(
                    f"{self.name}: the adjacency must be {n} x {n}, one node per row, got {self.adjacency.shape}"
                )
            check_adjacency(self.adjacency, self.name)

    def _check_names(self) -> None:
        """Checks that each label has a name of its own: tables of predictions have a column for each."""
        if len(self.label_names) != self.y.shape[1]:
            raise InputError(
                f"{self.name}: label_names must name {self.y.shape[1]} labels, got {len(self.label_names)} names"
            )
        first: dict[str, int] = {}
        for j, name in enumerate(self.label_names):
            if first.setdefault(name, j) != j:
                raise InputError(
                    f"{self.name}: label_names must differ, got {name!r} for labels {first[name]} and {j}: "
                    "rename one of them"
                )

    @property
    def n_labels(self) -> int:
        """Number of labels K."""
        return self.y.shape[1]

    def part(self, name: str) -> tuple[Tensor, Tensor]:
        """Returns the rows of a part, int64, and their labels, bool; `name` is "train", "val" or "test"."""
        rows = getattr(self.split, name)
        return rows, self.y[rows]

    def standardised(self) -> MultilabelData:
        """Returns the same with each feature at mean 0 and variance 1 over the training rows.

        Validation and test rows play no part in it. A feature without spread there is centred only; of images, each
        channel is one feature.
        """
        over = (0,) if self.x.dim() == 2 else (0, 2, 3)
        train = self.x[self.split.train].double()
        mean, spread = train.mean(over, keepdim=True), train.std(over, correction=0, keepdim=True)
        spread = torch.where(spread > 1e-9 * mean.abs().clamp_min(1e-30), spread, torch.ones_like(spread))
        return dataclasses.replace(self, x=((self.x - mean) / spread).float())
