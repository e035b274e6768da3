"""Multi-label data: the four published sets and any `.npz` of the same layout, also of a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.datasets.archive import integers, open_arrays, require
from calirare.datasets.paths import data_root
from calirare.graph.edges import Array
from calirare.graph.splits import Split
from calirare.multilabel.dataset import MultilabelData
from calirare_ext import Csr

PUBLISHED = ("emotions", "scene", "yeast", "enron")
VALIDATION_SHARE = 0.2


def load_multilabel(name: str | Path, *, root: str | Path | None = None, seed: int = 0) -> MultilabelData:
    """Loads a published set by name or an `.npz` file by path.

    A file holds `X` (or `x`) float [n, d], `Y` (or `y`) 0/1 [n, K], `train_idx` and `test_idx`; optionally `val_idx`,
    `label_names`, and `indptr`, `indices` (CSR, both directions of each edge, no self loops) of a graph on the rows.
    Without `val_idx` a fifth of the training rows, drawn by the seed, validates. Features are left as they are.

    Args:
        name: "emotions", "scene", "yeast", "enron", or the path of a file.
        root: folder with a sub-folder `multilabel`; None for `CALIRARE_DATA`, else `../shared/data` beside a source
            checkout.
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


def _from_arrays(arrays: dict[str, Array], path: Path, seed: int) -> MultilabelData:
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


def _adjacency(arrays: dict[str, Array], path: Path) -> Csr | None:
    if "indptr" not in arrays:
        return None
    require(arrays, ("indptr", "indices"), path)
    indptr = torch.from_numpy(integers(arrays["indptr"], "indptr", path))
    indices = torch.from_numpy(integers(arrays["indices"], "indices", path).astype(np.int32))
    try:
        return Csr(indptr, indices, torch.ones(len(indices)), len(indptr) - 1)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def save_multilabel(data: MultilabelData, path: str | Path) -> None:
    """Writes data as the `.npz` that `load_multilabel` reads, with the graph if there is one.

    Args:
        data: a table of features, or images.
        path: file to write.
    """
    arrays = {
        "x": data.x.numpy(),
        "y": data.y.numpy().astype(np.uint8),
        "label_names": np.array(data.label_names),
        **{f"{part}_idx": getattr(data.split, part).numpy() for part in ("train", "val", "test")},
    }
    if data.adjacency is not None:
        arrays |= {"indptr": data.adjacency.indptr.numpy(), "indices": data.adjacency.indices.numpy()}
    np.savez_compressed(path, **arrays)


def hold_out(rows: Tensor, seed: int, share: float = VALIDATION_SHARE) -> tuple[Tensor, Tensor]:
    """Splits rows at random into those that stay and those that validate.

    Args:
        rows: int64 [m].
        seed: of the draw.
        share: of the rows that validate, in (0, 1); at least two validate where there are four or more.

    Returns:
        Staying and validating rows, each ascending.
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    size = max(round(share * len(rows)), min(2, len(rows) // 2))
    return rows[order[size:]].sort().values, rows[order[:size]].sort().values
