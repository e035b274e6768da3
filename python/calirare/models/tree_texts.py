"""LightGBM's text form of trees: of scikit-learn's trees, and of trees grown on some columns as if on all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.array_files import NumpyArray

if TYPE_CHECKING:
    from sklearn.tree._tree import Tree

FOREST = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx={last}
objective=regression
average_output
feature_names={names}
feature_infos={infos}
tree_sizes=

"""
TREE = """Tree={i}
num_leaves={n}
num_cat=0
split_feature={features}
split_gain={gains}
threshold={thresholds}
decision_type={decisions}
left_child={left}
right_child={right}
leaf_value={values}
leaf_weight={leaf_weights}
leaf_count={leaf_counts}
internal_value={internal}
internal_weight={weights}
internal_count={counts}
is_linear=0
shrinkage=1


"""
NONE = "none"  # what LightGBM writes of a column that is constant
END = "end of trees"


def tree_text(i: int, tree: Tree, number: NumpyArray, places: NumpyArray, values: NumpyArray) -> str:
    """Returns a tree of scikit-learn: a row goes left where its number is at most the threshold, in both.

    Args:
        i: number of the tree.
        tree: the tree.
        number: of each node that is a leaf, its number among the leaves, int64 [nodes].
        places: the column that each of the tree's columns is.
        values: of the leaves, float64.
    """
    leaf = tree.children_left < 0
    split, inner = np.flatnonzero(~leaf), np.cumsum(~leaf) - 1
    down = np.where(leaf, -1 - number, inner)  # LightGBM counts leaves as -1, -2, ..
    none = np.zeros(split.size, dtype=np.int64)
    weights, counts = tree.weighted_n_node_samples, tree.n_node_samples
    return TREE.format(
        i=i,
        n=values.size,
        features=_shown(places[tree.feature[split]]),
        gains=_shown(none),
        thresholds=joined_numbers(tree.threshold[split]),
        decisions=_shown(none),
        left=_shown(down[tree.children_left[split]]),
        right=_shown(down[tree.children_right[split]]),
        values=joined_numbers(values),
        leaf_weights=joined_numbers(weights[leaf]),
        leaf_counts=_shown(counts[leaf]),
        internal=_shown(none),
        weights=joined_numbers(weights[split]),
        counts=_shown(counts[split]),
    )


def forest_text(trees: Sequence[str], n_columns: int) -> str:
    """Returns the model of averaged trees, each as `tree_text` writes it."""
    names = " ".join(f"Column_{i}" for i in range(n_columns))
    head = FOREST.format(last=n_columns - 1, names=names, infos=" ".join([NONE] * n_columns))
    return _whole(head, trees, f"{END}\n\nparameters:\n[boosting: rf]\n\nend of parameters\n")


def joined_numbers(numbers: NumpyArray) -> str:
    """Returns numbers as LightGBM's text holds them, to the last bit."""
    return " ".join(map(repr, numbers.tolist()))


def _shown(numbers: NumpyArray) -> str:
    return " ".join(map(str, numbers.tolist()))


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
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"Column_{places[int(found[1])]}=", tail)
    return _whole(head, trees, tail)


def with_leaf_values(text: str, values: Sequence[NumpyArray]) -> str:
    """Returns the text of a model with other leaf values of each tree."""
    head, trees, tail = _parted(text)
    changed = (
        re.sub(r"(?m)^leaf_value=.*$", f"leaf_value={joined_numbers(own)}", each)
        for each, own in zip(trees, values, strict=True)
    )
    return _whole(head, list(changed), tail)


def _whole(head: str, trees: Sequence[str], tail: str) -> str:
    """Returns what `_parted` parts, with the sizes of the trees in the head."""
    sizes = " ".join(str(len(each)) for each in trees)
    return "".join([re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head), *trees, tail])


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
