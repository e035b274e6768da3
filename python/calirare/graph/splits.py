"""Which nodes train, which validate, which test: published splits and random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.graph.arrays import as_array, as_vector, dtype_of

PARTS = ("train", "val", "test")

# The paper, Section 5.1: 20 nodes per class train, 500 nodes validate, 1,000 test.
LABEL_RATE, N_VAL, N_TEST = 20, 500, 1000
# Of the user's own labels: a quarter judges; a bound on those that train keeps the time of a training in bounds.
TEST_SHARE, N_TRAIN = 0.25, 20_000
FEWEST_TESTED = 10  # rare nodes: fewer say less of a detector than leave-one-out of all labels


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of nodes.

    Attributes:
        train: int64 [n_train], node ids >= 0, ascending.
        val: int64 [n_val], likewise.
        test: int64 [n_test], likewise.
        name: how the split was made, for example "public" or "random(label_rate=20, seed=0)".

    Raises:
        TypeError: a part is not int64.
        InputError: a node is negative, or stands in two places.
    """

    train: Tensor
    val: Tensor
    test: Tensor
    name: str = "given"

    __repr__ = brief

    def __post_init__(self) -> None:
        """Sorts the parts and checks that they are disjoint."""
        for part in PARTS:
            nodes = getattr(self, part)
            if nodes.dtype != torch.int64:
                raise TypeError(f"Split: {part} must be int64, got {dtype_of(nodes)}")
            if nodes.dim() != 1:
                raise InputError(f"split: {part} must be a vector of node ids, got shape {tuple(nodes.shape)}")
            object.__setattr__(self, part, nodes.sort().values)
        every = torch.cat([self.train, self.val, self.test]).sort().values
        if every.numel() and int(every[0]) < 0:
            raise InputError(f"split: node ids must be >= 0, got {int(every[0])}")
        twice = every[1:][every[1:] == every[:-1]]
        if twice.numel():
            node = int(twice[0])
            parts = [part for part in PARTS if bool((getattr(self, part) == node).any())]
            raise InputError(
                f"split: a node must stand in one part once, but node {node} stands in {' and '.join(parts)} "
                f"({twice.numel()} such): remove it from all but one"
            )

    @classmethod
    def from_masks(cls, train: Any, val: Any, test: Any, name: str = "given", *, n_nodes: int | None = None) -> Split:
        """Returns the split whose parts are the true entries of three bool [n] masks.

        Args:
            train: bool [n] or [n, 1], tensor, array or list; numbers 0 and 1 count as bool.
            val: likewise.
            test: likewise.
            name: how the split was made.
            n_nodes: number of nodes n; None for the length of `train`.

        Returns:
            The split, on the masks' device.

        Raises:
            InputError: a mask is not a bool vector, or has not one entry per node.
        """
        parts = []
        for part, given in zip(PARTS, (train, val, test), strict=True):
            mask = as_array(given, f"{part}_mask", "split")
            if mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all() and len(mask) == (n_nodes or len(mask)):
                mask = mask.astype(bool)
            mask = as_vector(mask)
            if mask.dtype != bool or mask.ndim != 1:
                raise InputError(
                    f"split: {part}_mask must be a bool vector, got {dtype_of(given)} of shape {mask.shape}: choose "
                    "one of several splits; numbers of nodes make one by Split(train, val, test)"
                )
            n_nodes = len(mask) if n_nodes is None else n_nodes
            if len(mask) != n_nodes:
                raise InputError(
                    f"split: {part}_mask must have one entry per node, got {len(mask)} for {n_nodes} nodes"
                )
            nodes = torch.from_numpy(np.flatnonzero(mask))
            parts.append(nodes.to(given.device) if isinstance(given, Tensor) else nodes)
        return cls(parts[0], parts[1], parts[2], name)

    def masks(self, n_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns train, val and test as bool [n_nodes] masks."""
        masks = []
        for part in PARTS:
            mask = torch.zeros(n_nodes, dtype=torch.bool, device=self.train.device)
            mask[getattr(self, part)] = True
            masks.append(mask)
        return masks[0], masks[1], masks[2]

    def to(self, device: torch.device | str) -> Split:
        """Returns the split with its tensors on `device`."""
        return Split(self.train.to(device), self.val.to(device), self.test.to(device), self.name)

    @classmethod
    def random(
        cls,
        original_y: Tensor,
        label_rate: int = LABEL_RATE,
        n_val: int = N_VAL,
        n_test: int = N_TEST,
        seed: int = 0,
        *,
        class_names: tuple[str, ...] = (),
    ) -> Split:
        """Returns a random split with the same number of training nodes from every original class that occurs.

        The paper, Section 5.1: `label_rate` nodes per class **before** the classes are merged into minority and rest
        train; of the other nodes, `n_val` validate and `n_test` test. Only nodes with a label are drawn. Where fewer
        than n_val + n_test are left, both numbers shrink in proportion and the name of the split tells it.

        Args:
            original_y: int64 [n], classes 0 to k - 1 before merging, -1 for a node without a label; nothing is drawn of
                a class that has no node.
            label_rate: training nodes per class, >= 1.
            n_val: validation nodes, >= 0.
            n_test: test nodes, >= 0.
            seed: of numpy's default generator, >= 0; the same seed gives the same split.
            class_names: names of the k classes, for messages.

        Returns:
            The split, on the CPU.

        Raises:
            InputError: a class has fewer nodes than the label rate, or a number is out of range.
        """
        for name, value, least in (
            ("label_rate", label_rate, 1),
            ("n_val", n_val, 0),
            ("n_test", n_test, 0),
            ("seed", seed, 0),
        ):
            if value < least:
                raise InputError(f"Split.random: {name} must be >= {least}, got {value}")
        y = original_y.cpu().numpy()
        free = y >= 0
        rng = np.random.default_rng(seed)
        train = draw_per_class(y, free, wanted_per_class(y, label_rate), label_rate, rng, class_names)
        free[train] = False
        rest = rng.permutation(np.flatnonzero(free))
        name = f"random(label_rate={label_rate}, seed={seed})"
        if (n_val, n_test) != (N_VAL, N_TEST):
            name = f"random(label_rate={label_rate}, n_val={n_val}, n_test={n_test}, seed={seed})"
        if len(rest) < n_val + n_test:
            fewer = len(rest) * n_val // (n_val + n_test)
            name = f"{name}, shrunk to {fewer} val and {len(rest) - fewer} test nodes of {n_val} and {n_test}"
            n_val, n_test = fewer, len(rest) - fewer
        val, test = rest[:n_val], rest[n_val : n_val + n_test]
        return cls(torch.from_numpy(train), torch.from_numpy(val), torch.from_numpy(test), name)

    @classmethod
    def share(cls, original_y: Tensor, seed: int = 0, *, test_share: float = TEST_SHARE) -> Split:
        """Returns a random split of all labels: of every class the same share tests, the others train.

        What suits labels that somebody has paid for: none lies idle, and the labels that train look like the population
        that they were drawn from, so that all of them calibrate too; leave-one-out needs no validation nodes. At most
        `N_TRAIN` train, of every class in proportion but one at least; the others test.

        Args:
            original_y: int64 [n], classes 0 to k - 1 before merging, -1 for a node without a label.
            seed: of numpy's default generator, >= 0; the same seed gives the same split.
            test_share: share of each class that tests, rounded down, in [0, 1).

        Returns:
            The split, on the CPU, without validation nodes.

        Raises:
            InputError: a number is out of range.
        """
        if not 0 <= test_share < 1:
            raise InputError(f"Split.share: test_share must lie in [0, 1), got {test_share}")
        if seed < 0:
            raise InputError(f"Split.share: seed must be >= 0, got {seed}")
        y = original_y.cpu().numpy()
        rng = np.random.default_rng(seed)
        order = rng.permutation(np.flatnonzero(y >= 0))
        most = min(1.0, N_TRAIN / max(len(order) * (1 - test_share), 1))
        train = np.zeros(len(y), dtype=bool)
        for k in np.unique(y[order]):
            members = order[y[order] == k]
            kept = len(members) - int(len(members) * test_share)
            train[members[: max(1, int(kept * most))]] = True
        name = f"share(test={test_share:g}, seed={seed})"
        if most < 1:
            name = f"share(test={test_share:g}, n_train={N_TRAIN}, seed={seed})"
        chosen, left = (torch.from_numpy(np.flatnonzero(part)) for part in (train, (y >= 0) & ~train))
        return cls(chosen, chosen.new_empty(0), left, name)

    @classmethod
    def by_time(
        cls,
        y: Tensor,
        time: Tensor,
        *,
        test_share: float = TEST_SHARE,
        test_from: float | None = None,
    ) -> Split:
        """Returns a split by time: the newest labels test, the newest of the others calibrate, the older ones train.

        What labels of the past show of scores of the future: models are compared, calibrated and tested on what is
        later than what they learned from. A quarter tests where that holds `FEWEST_TESTED` nodes of both classes (of
        more, in the mean), else none does. A fifth of the others calibrates, or more, up to a half, until these hold
        as many. Of more than `N_TRAIN` labels before those that test, the newest are taken.

        Args:
            y: int64 [n], classes of the task, -1 for a node without a label.
            time: of each node, float64 [n].
            test_share: proportion of the labels that tests, in [0, 1).
            test_from: labels from this time on test, instead of a proportion.

        Returns:
            The split, on the CPU.

        Raises:
            InputError: no label is older than `test_from`.
        """
        labels = y.cpu().numpy()
        known = np.flatnonzero(labels >= 0)
        order = known[newest_first(time.cpu()[known]).numpy()[::-1]]

        def fewest(nodes: np.ndarray) -> int:
            counts = np.bincount(labels[nodes], minlength=2)
            return int(counts.min() if len(counts) == 2 else counts.mean())

        n_test = int(len(order) * test_share)
        n_test = n_test if fewest(order[len(order) - n_test :]) >= FEWEST_TESTED else 0
        name = f"time(test={test_share if n_test else 0:g})"
        if test_from is not None:
            n_test = int((time.cpu().numpy()[order] >= test_from).sum())
            name = f"time(test from {test_from:g})"
            if n_test == len(order):
                raise InputError(
                    f"split: no label is older than {test_from:g}, from where on labels test: take a later time"
                )
        rest, test = order[: len(order) - n_test][-N_TRAIN:], order[len(order) - n_test :]
        cut = len(rest) - len(rest) // 5
        while cut > len(rest) // 2 and fewest(rest[cut:]) < FEWEST_TESTED:
            cut -= 1
        train, val, last = (torch.from_numpy(part) for part in (rest[:cut], rest[cut:], test))
        return cls(train, val, last, name)


def newest_first(time: Tensor) -> Tensor:
    """Returns the order of times [m] from the newest to the oldest, equal ones at random, int64 [m], on the CPU."""
    ties = np.random.default_rng(0).random(len(time))
    return torch.from_numpy(np.lexsort((ties, -time.cpu().numpy())))


def split_note(split: Split, n_rare: int) -> str:
    """Returns a sentence where so few nodes are rare that no label tests; else ""."""
    if split.test.numel() or not split.name.startswith("share(") or TEST_SHARE * n_rare >= FEWEST_TESTED:
        return ""
    few = amount(n_rare, "rare label")
    return (
        f"every label trains, and out-of-fold predictions are measured: a quarter of {few} is too few to test on "
        "(--split share tests on it all the same)"
    )


def wanted_per_class(y: np.ndarray, label_rate: int) -> np.ndarray:
    """Returns how many training nodes each class shall have: none where no node is of it, as in labels 0 and 2."""
    return np.where(np.bincount(y[y >= 0]) > 0, label_rate, 0)


def draw_per_class(
    y: np.ndarray, free: np.ndarray, want: np.ndarray, label_rate: int, rng: np.random.Generator, names: tuple[str, ...]
) -> np.ndarray:
    """Returns `want[k]` random nodes of each class k among the free ones."""
    drawn = []
    for k, number in enumerate(want):
        members = np.flatnonzero(free & (y == k))
        if len(members) < number:
            raise InputError(
                f"split: every class must have at least {label_rate} nodes free to train on, but "
                f"{class_in_words(k, names)} has {len(members) + label_rate - int(number)}: lower label_rate "
                "(command line: --label-rate)"
            )
        drawn.append(rng.choice(members, int(number), replace=False))
    return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)


def class_in_words(k: int, names: tuple[str, ...]) -> str:
    """Returns how a message calls class k."""
    return f"class {k} ({names[k]})" if k < len(names) and names[k] != str(k) else f"class {k}"
