"""Small multi-label data for tests."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import torch

from calirare.graph.splits import Split
from calirare_multilabel.data import MultilabelData


def small_data(n: int = 240, k: int = 3, seed: int = 0, **changes) -> MultilabelData:
    """Labels that follow the features through a logistic model; two fifths train, a fifth validates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    logits = 2 * x[:, :k] - 0.5
    y = rng.random((n, k)) < 1 / (1 + np.exp(-logits))
    at = torch.from_numpy(rng.permutation(n))
    split = Split(at[: 2 * n // 5], at[2 * n // 5 : 3 * n // 5], at[3 * n // 5 :])
    data = MultilabelData(
        torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y), split, tuple("abcdefgh"[:k]), "small"
    )
    return dataclasses.replace(data, **changes)


def write_npz(path: Path, **changes) -> Path:
    """The layout of the published files."""
    rng = np.random.default_rng(0)
    arrays = {
        "X": rng.normal(size=(40, 3)).astype(np.float32),
        "Y": (rng.random((40, 2)) < 0.4).astype(np.uint8),
        "train_idx": np.arange(25),
        "test_idx": np.arange(25, 40),
        "label_names": np.array(["one", "two"]),
    } | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def write_images(folder: Path, n: int = 60, split: bool = False) -> Path:
    """Generated pictures with a red square, a blue bar, both or neither, and the table of what is on them."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "sub").mkdir(parents=True)
    rows = []
    for i in range(n):
        pixels = rng.integers(0, 60, size=(24, 30, 3)).astype(np.uint8)
        red, blue = rng.random(2) < 0.4
        if red:
            top, left = rng.integers(0, 12, size=2)
            pixels[top : top + 10, left : left + 10, 0] = 255
        if blue:
            pixels[:, 22:28, 2] = 255
        name = f"sub/{i}.png" if i % 2 else f"{i}.jpg"
        Image.fromarray(pixels).save(folder / name)
        rows.append({"file": name, "red": int(red), "blue": int(blue)})
        if split:
            rows[-1]["split"] = ("train", "val", "test")[i % 3]
    table = folder.parent / "labels.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return table
