"""Image folders with a label table: the document's PASCAL VOC and Kaggle sets, or anyone's, in one layout."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import open_arrays, require
from calirare._util.errors import InputError
from calirare.graph import PARTS, Split
from calirare_multilabel import MultilabelData
from calirare_multilabel.data import hold_out

TEST_SHARE = 0.2


def load_images(
    folder: str | Path,
    table: str | Path,
    *,
    features: str | Path | None = None,
    size: int = 64,
    seed: int = 0,
) -> MultilabelData:
    """Loads a folder of images with a table of labels.

    Args:
        folder: holds the image files, at any depth.
        table: CSV with a header: the column `file` (path below `folder`), optionally `split` (train, val or test), and
            one column of 0/1 per label. Without `split` a fifth of the rows tests and a fifth of the rest validates.
        features: an `.npz` with `files` (str [m], as in the table) and `features` (float [m, d]) computed once by a
            pretrained network such as ResNet-50; the images themselves are then not opened. None trains on the pixels.
        size: edge to which the images are scaled when the pixels are used.
        seed: of a random split.

    Returns:
        The data, with x [n, d] or RGB in [0, 1] of shape [n, 3, size, size].

    Raises:
        InputError: a file is missing or damaged, or the table does not fit.
    """
    folder, table = Path(folder), Path(table)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of images: check the path")
    files, y, names, parts = _read_table(table)
    if features is not None:
        x = _read_features(Path(features), files)
    else:
        x = torch.stack([_read_image(folder / file, size) for file in files])
    return MultilabelData(x, y, _split(parts, len(files), table, seed), names, folder.name)


def _read_table(table: Path) -> tuple[list[str], Tensor, tuple[str, ...], list[str] | None]:
    """Returns files, labels [n, K], names and the split column if there is one."""
    if not table.is_file():
        raise InputError(f"{table}: there is no such table of labels: check the path")
    with table.open(newline="", encoding="utf-8-sig") as handle:
        reader = csv.DictReader(handle)
        header = list(reader.fieldnames or [])
        rows = list(reader)
    names = tuple(name for name in header if name not in ("file", "split"))
    if "file" not in header or not names or not rows:
        raise InputError(
            f"{table}: the table must have a column `file`, a column of 0/1 per label and at least one "
            f"row, got the columns {', '.join(header) or 'none'} and {len(rows)} rows"
        )
    for at, row in enumerate(rows):
        odd = [name for name in names if row[name] not in ("0", "1")]
        if odd or None in row or not row["file"]:
            raise InputError(
                f"{table}: row {at + 2} must have a file and 0 or 1 for each label, got {row[odd[0]]!r} for {odd[0]!r}"
                if odd
                else f"{table}: row {at + 2} must have a file and no more cells than columns"
            )
    labels = torch.tensor([[row[name] == "1" for name in names] for row in rows])
    return [row["file"] for row in rows], labels, names, [row["split"] for row in rows] if "split" in header else None


def _split(parts: list[str] | None, n: int, table: Path, seed: int) -> Split:
    if parts is None:
        rest, test = hold_out(torch.arange(n), seed, TEST_SHARE)
        train, val = hold_out(rest, seed + 1)
        return Split(train, val, test, f"random(seed={seed})")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise InputError(f"{table}: split must be train, val or test, got {unknown[0]!r}")
    rows = {part: torch.tensor([i for i, p in enumerate(parts) if p == part], dtype=torch.int64) for part in PARTS}
    if len(rows["val"]) == 0:
        rows["train"], rows["val"] = hold_out(rows["train"], seed)
    return Split(rows["train"], rows["val"], rows["test"], "given")


def _read_features(path: Path, files: list[str]) -> Tensor:
    arrays = open_arrays(path)
    require(arrays, ("files", "features"), path)
    table = arrays["features"]
    if table.ndim != 2 or len(table) != len(arrays["files"]) or table.dtype.kind not in "iuf":
        raise InputError(
            f"{path}: features must be numbers with one row per entry of files, got {table.dtype} of "
            f"shape {table.shape} for {len(arrays['files'])} files"
        )
    at = {str(file): row for row, file in enumerate(arrays["files"])}
    missing = [file for file in files if file not in at]
    if missing:
        raise InputError(
            f"{path}: features must cover every file of the table, {missing[0]} is missing ({len(missing)} such)"
        )
    return torch.from_numpy(table[[at[file] for file in files]].astype(np.float32))


def _read_image(path: Path, size: int) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise InputError(
            f"{path}: the image is missing or cannot be read ({type(error).__name__}): check the table and the file"
        ) from error
    return torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)
