"""Rows with several labels each: the four published sets and any `.npz` of the same layout, also of a graph."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray, integers, open_arrays, require
from calirare._util.errors import InputError
from calirare.graph import PARTS, Split
from calirare.graph.validation import check_adjacency
from calirare_ext import Csr

PUBLISHED = ("emotions", "scene", "yeast", "enron")
VALIDATION_SHARE = 0.2
ENVIRONMENT = "CALIRARE_DATA"


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
        for part in PARTS:
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
        for j, name in enumerate(self.label_names):
            if (first := self.label_names.index(name)) != j:
                raise InputError(
                    f"{self.name}: label_names must differ, got {name!r} for labels {first} and {j}: rename one of them"
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
        """Returns the same with each feature at mean 0 and variance 1 over the training rows alone.

        A feature without spread there is centred only; of images, each channel is one feature.
        """
        over = (0,) if self.x.dim() == 2 else (0, 2, 3)
        train = self.x[self.split.train].double()
        mean, spread = train.mean(over, keepdim=True), train.std(over, correction=0, keepdim=True)
        spread = torch.where(spread > 1e-9 * mean.abs().clamp_min(1e-30), spread, torch.ones_like(spread))
        return dataclasses.replace(self, x=((self.x - mean) / spread).float())


def load_multilabel(name: str | Path, *, root: str | Path | None = None, seed: int = 0) -> MultilabelData:
    """Loads a published set by name or an `.npz` file by path; features are left as they are.

    A file holds `X` (or `x`) float [n, d] or [n, channels, height, width], `Y` (or `y`) 0/1 [n, K], `train_idx` and
    `test_idx`; optionally `val_idx` (otherwise a fifth of the training rows validates), `label_names`, and `indptr`,
    `indices` (CSR, both directions of each edge, no self loops) of a graph on the rows.

    Args:
        name: "emotions", "scene", "yeast", "enron", or the path of a file.
        root: folder with a sub-folder `multilabel`; None for `CALIRARE_DATA`, else `../shared/data` beside a checkout.
        seed: of the validation rows.

    Returns:
        The data.

    Raises:
        InputError: the name is unknown, or the file is missing, damaged or does not fit the layout.
    """
    if str(name) in PUBLISHED:
        path = data_root(root) / "multilabel" / f"{name}.npz"
        if not path.is_file():
            raise InputError(
                f"{name}: the file {path} is not there: give the folder that holds multilabel/{name}.npz as root or "
                "in CALIRARE_DATA"
            )
    else:
        path = Path(name)
        if path.suffix != ".npz":
            raise InputError(f"multilabel data must be one of {', '.join(PUBLISHED)} or a path to .npz, got {name}")
    return _from_arrays(open_arrays(path), path, seed)


def _from_arrays(arrays: dict[str, NumpyArray], path: Path, seed: int) -> MultilabelData:
    arrays = {{"X": "x", "Y": "y"}.get(key, key): value for key, value in arrays.items()}
    require(arrays, ("x", "y", "train_idx", "test_idx"), path)
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "biuf":
        raise InputError(f"{path}: x must hold numbers, got {x.dtype}")
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise InputError(f"{path}: y must hold 0 or 1 for each row and label, got other values or {y.dtype}")
    parts = {key: torch.from_numpy(integers(arrays[key], key, path)) for key in ("train_idx", "test_idx")}
    if "val_idx" in arrays:
        parts["val_idx"] = torch.from_numpy(integers(arrays["val_idx"], "val_idx", path))
        kind = "given"
    else:
        given = len(parts["train_idx"])
        if given < 4:
            raise InputError(
                f"{path}: train_idx must hold at least 4 rows where val_idx is not given, because at least two of them "
                f"validate, got {given}: add rows or give val_idx"
            )
        parts["train_idx"], parts["val_idx"] = hold_out(parts["train_idx"], seed)
        kind = f"given, validation drawn with seed {seed}"
    split = Split(parts["train_idx"], parts["val_idx"], parts["test_idx"], kind)
    names = arrays["label_names"].tolist() if "label_names" in arrays else [f"label {j}" for j in range(y.shape[-1])]
    return MultilabelData(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(y.astype(bool)),
        split,
        tuple(str(label) for label in names),
        path.stem,
        _adjacency(arrays, path),
    )


def _adjacency(arrays: dict[str, NumpyArray], path: Path) -> Csr | None:
    if "indptr" not in arrays:
        return None
    require(arrays, ("indptr", "indices"), path)
    indptr = torch.from_numpy(integers(arrays["indptr"], "indptr", path))
    indices, n = integers(arrays["indices"], "indices", path), len(indptr) - 1
    if indices.size and not 0 <= indices.min() <= indices.max() < n:  # before the cast, in which numbers wrap
        raise InputError(
            f"{path}: indices must be from 0 to {n - 1}, got {indices.min()} to {indices.max()}: write the file again"
        )
    try:
        return Csr(indptr, torch.from_numpy(indices.astype(np.int32)), torch.ones(len(indices)), n)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def save_multilabel(data: MultilabelData, path: str | Path) -> None:
    """Writes data as the `.npz` that `load_multilabel` reads, with the graph if there is one."""
    arrays = {
        "x": data.x.numpy(),
        "y": data.y.numpy().astype(np.uint8),
        "label_names": np.array(data.label_names),
        **{f"{part}_idx": getattr(data.split, part).numpy() for part in PARTS},
    }
    if data.adjacency is not None:
        arrays |= {"indptr": data.adjacency.indptr.numpy(), "indices": data.adjacency.indices.numpy()}
    np.savez_compressed(path, **arrays)


def hold_out(rows: Tensor, seed: int, share: float = VALIDATION_SHARE) -> tuple[Tensor, Tensor]:
    """Splits rows, int64 [m], at random into those that stay and those that validate, each ascending.

    Args:
        rows: which.
        seed: of the draw.
        share: of the rows that validate, in (0, 1); at least two validate where there are four or more.
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    size = max(round(share * len(rows)), min(2, len(rows) // 2))
    return rows[order[size:]].sort().values, rows[order[:size]].sort().values


def data_roots(root: str | Path | None = None) -> tuple[Path, ...]:
    """Returns the folders that are searched for data sets, in order.

    Args:
        root: the only folder to search; None for the folder named by the environment variable `CALIRARE_DATA`, else
            `../shared/data` next to a source checkout if it is there, and then the user's cache.

    Returns:
        The folders; only the last need not exist.

    Raises:
        InputError: `root` or the folder of the environment variable is not a folder.
    """
    if root is not None:
        return (existing_folder(root, "root"),)
    found = os.environ.get(ENVIRONMENT)
    if found:
        return (existing_folder(found, ENVIRONMENT), cache_folder())
    checkout = Path(__file__).resolve().parents[2]
    beside = checkout.parent / "shared" / "data"
    if (checkout / "pyproject.toml").is_file() and beside.is_dir():
        return (beside, cache_folder())
    return (cache_folder(),)


def data_root(root: str | Path | None = None) -> Path:
    """Returns the folder that is searched first; see `data_roots`."""
    return data_roots(root)[0]


def cache_folder() -> Path:
    """Returns the user's cache folder for data sets; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "calirare"


def existing_folder(path: str | Path, what: str) -> Path:
    """Returns the path of an existing folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"datasets: {what} must be an existing folder, got {folder}: create it or give another")
    return folder
