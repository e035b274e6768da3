"""Graphs with a planted motif: it is known which edges make a node rare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from detection.tasks import Task
from torch import Tensor

from calirare import Graph

N_BASE = 1500  # nodes of the scale-free graph
N_HOUSES, NOISE = 60, 0.1  # houses, and edges drawn at random beside the others
HOUSE = ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4))
N_ACCOUNTS, MEAN_DEGREE, N_COLUMNS = 3000, 8, 16
N_RINGS, RING, TOUCHED, PER_RING = 60, 5, 3, 5  # rings, accounts in each, those a rare node deals with, rare nodes
SHIFT = 3.0  # of the ring's accounts, in two columns


@dataclass(frozen=True, eq=False)
class Planted:
    """A task, and the motif of each node: motif[v] == motif[u] >= 0 for an edge (v, u) of it.

    Attributes:
        task: whose rare nodes belong to a motif.
        groups: motif of each node, int64 [n], -1 for none.
        inner: nodes whose edges among each other belong to it too, besides the explained node's, bool [n].
    """

    task: Task
    groups: Tensor
    inner: Tensor

    def motif(self, node: int, edges: Tensor) -> Tensor:
        """Returns which edges (int64 [e, 2]) belong to the motif of a node, bool [e]."""
        part = (self.groups == self.groups[node]) & (self.inner | (torch.arange(len(self.groups)) == node))
        return part[edges].all(1)


def houses(attached: int, seed: int = 1) -> Planted:
    """Returns houses of five nodes on a scale-free graph (BA-Shapes, Ying et al. 2019); a house's nodes are rare.

    The only column that varies is the log of the degree.

    Args:
        attached: edges of each new node of the scale-free graph. With 5, as published, a node's own degree tells
            houses, which have 2 to 4, from the rest; with 2 its neighbours' have to.
        seed: of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    edges, ends = list[tuple[int, int]](), list(range(attached))
    for node in range(attached, N_BASE):
        targets = set[int]()
        while len(targets) < attached:
            targets.add(int(rng.choice(ends)))
        edges += [(node, target) for target in sorted(targets)]
        ends += [*sorted(targets), *[node] * attached]
    n = N_BASE + len({end for edge in HOUSE for end in edge}) * N_HOUSES
    groups = np.full(n, -1)
    for house in range(N_HOUSES):
        first = N_BASE + 5 * house
        groups[first : first + 5] = house
        edges += [(first + a, first + b) for a, b in HOUSE]
        edges.append((first + int(rng.integers(5)), int(rng.integers(N_BASE))))
    noise = rng.integers(n, size=(round(NOISE * len(edges)), 2))
    between = (groups[noise[:, 0]] != groups[noise[:, 1]]) | (groups[noise[:, 0]] < 0)
    all_edges = np.concatenate([np.array(edges), noise[between]])
    degree = np.bincount(all_edges.flatten(), minlength=n)
    x = np.log(degree)[:, None]
    return planted(f"houses {attached}", all_edges, x, (groups >= 0).astype(np.int64), groups, groups >= 0)


def rings(seed: int = 2) -> Planted:
    """Returns customers of fraud rings: a rare node deals with three neighbouring accounts of a ring.

    The columns of a ring's accounts are shifted; nothing is known of these, they have no label. A rare node's own
    columns are as those of the rest. Its motif are its edges to the ring, and those within the ring.
    """
    rng = np.random.default_rng(seed)
    n_inner, n_rare = N_RINGS * RING, N_RINGS * PER_RING
    n = N_ACCOUNTS + n_inner
    groups, y = np.full(n, -1), np.zeros(n, dtype=np.int64)
    edges = [rng.integers(N_ACCOUNTS, size=(N_ACCOUNTS * MEAN_DEGREE // 2, 2))]
    y[:n_rare], y[N_ACCOUNTS:] = 1, -1
    for ring in range(N_RINGS):
        inside = N_ACCOUNTS + RING * ring + np.arange(RING)
        groups[inside] = ring
        edges.append(np.stack([inside, np.roll(inside, 1)], 1))
        edges.append(np.stack([inside, rng.integers(N_ACCOUNTS, size=RING)], 1))  # others whom they know
        for node in range(PER_RING * ring, PER_RING * (ring + 1)):
            groups[node] = ring
            first = rng.integers(RING)
            edges.append(np.stack([np.full(TOUCHED, node), inside[(first + np.arange(TOUCHED)) % RING]], 1))
    x = rng.standard_normal((n, N_COLUMNS))
    x[N_ACCOUNTS:, :2] += SHIFT
    return planted("rings", np.concatenate(edges), x, y, groups, np.arange(n) >= N_ACCOUNTS)


def planted(
    name: str, edges: np.ndarray, x: np.ndarray, y: np.ndarray, groups: np.ndarray, inner: np.ndarray
) -> Planted:
    rules = {"symmetrize": True, "duplicates": "drop", "self_loops": "drop"}
    graph = Graph.from_edges(edges, x.astype(np.float32), y, name=name, **rules)
    return Planted(Task(graph), torch.from_numpy(groups), torch.from_numpy(inner))
