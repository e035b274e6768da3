"""LightGBM's text of trees that were grown on some columns, as if they had been grown on all of them."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from calirare._util.array_files import NumpyArray

NONE = "none"  # what LightGBM writes of a column that is constant
END = "end of trees"


def widened(text: str, used: NumpyArray) -> str:
    """Returns the text of a model of all columns of which the others are constant.

    To read columns by the tens of thousands is most of what LightGBM does with them, whether they may be split or not.

    Args:
        text: of a model of the columns used.
        used: which columns these are, bool [d].
    """
    places = np.flatnonzero(used)
    head, trees, tail = _parted(text)
    trees = [re.sub(r"(?m)^split_feature=.*$", lambda line: _split_features(line[0], places), each) for each in trees]
    infos = np.full(used.size, NONE, dtype=object)
    head = re.sub(r"(?m)^feature_infos=.*$", lambda line: _infos(line[0], infos, places), head)
    head = re.sub(r"(?m)^max_feature_idx=.*$", f"max_feature_idx={used.size - 1}", head)
    names = " ".join(f"Column_{i}" for i in range(used.size))
    head = re.sub(r"(?m)^feature_names=.*$", f"feature_names={names}", head)
    head = re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={' '.join(str(len(each)) for each in trees)}", head)
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"Column_{places[int(found[1])]}=", tail)
    return "".join([head, *trees, tail])


def _parted(text: str) -> tuple[str, list[str], str]:
    """Returns what is before the trees, each of them, and what is after them."""
    end = text.index(END)
    starts = [found.start() for found in re.finditer(r"(?m)^Tree=", text[:end])] + [end]
    trees = [text[first:last] for first, last in pairwise(starts)]
    return text[: starts[0]], trees, text[end:]


def _split_features(line: str, places: NumpyArray) -> str:
    name, _, numbers = line.partition("=")
    return f"{name}={' '.join(str(places[int(i)]) for i in numbers.split())}"


def _infos(line: str, infos: NumpyArray, places: NumpyArray) -> str:
    name, _, own = line.partition("=")
    infos[places] = own.split(" ")
    return f"{name}={' '.join(infos)}"
