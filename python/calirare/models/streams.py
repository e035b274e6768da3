"""Detectors as what a graph on disk is scored by: networks as passes, what reads hop columns by files of these."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare._util.store import key_of
from calirare.features import FeatureMap
from calirare.graph import GraphOnDisk
from calirare.models.column_rows import BLOCK
from calirare.models.columns import HopColumns
from calirare.models.folded import FoldedNetwork
from calirare.models.hops import HopsFit, perceptron
from calirare.models.mixture import Mixture
from calirare.models.neighbours import NeighbourPool
from calirare.models.passes import Mapped, Passes, mapped, passes_of
from calirare.models.spreading import SpreadingFit
from calirare.models.streaming import key_of_graph
from calirare.models.tree_fit import TreesFit
from calirare.training import Fitted

COLUMNS = 16  # that are propagated together
StreamedMember = Passes | TreesFit | HopsFit | SpreadingFit


@dataclass(frozen=True, eq=False)
class Streams:
    """Trees, or a mixture, as what a graph on disk is scored by.

    Attributes:
        fitted: the detector.
        features: the map of the run.
        members: its networks as passes, and what reads hop columns.
        columns: those that are read, each once, with the same map before propagation.
        read: makes the features that are propagated.
    """

    fitted: TreesFit | Mixture
    features: FeatureMap
    members: tuple[StreamedMember, ...]
    columns: tuple[HopColumns, ...]
    read: Mapped

    @property
    def hops(self) -> int:
        """How far the columns reach."""
        return max((each.hops for each in self.columns), default=0)

    @property
    def reads_neighbours(self) -> bool:
        """Whether anything but networks reads neighbours."""
        return self.hops > 0 or any(isinstance(each, SpreadingFit) for each in self.members)

    @property
    def n_features(self) -> int:
        """Number of features that are propagated."""
        return self.read.maps[-1].n_features

    def start(self, graph: GraphOnDisk, files: BlockFiles) -> None:
        """Prepares the folder of finished blocks.

        Raises:
            InputError: columns and logits of all nodes do not fit on its disk.
        """
        states = [*self.fitted.state(), *self.features.state()]
        told = tuple(tuple(part.values()) if i % 2 == 0 else str(part) for i, part in enumerate(states))
        job = key_of(told, COLUMNS, BLOCK)
        if files.start(key_of(key_of_graph(graph), job), key_of(graph.whole, job), graph.first):
            return
        needed = 4 * graph.n_nodes * (self.n_features * (self.hops + 1) + 2 * self.fitted.n_classes)
        free = shutil.disk_usage(files.folder).free
        if needed > free:
            raise InputError(
                f"{files.folder}: {needed / 1e9:.2f} GB are needed for columns of all nodes, {free / 1e9:.2f} GB are "
                "free: write the scores where there is more room"
            )

    def logits(self, networks: list[Tensor | None], columns: dict[HopColumns, Tensor]) -> Tensor:
        """Returns logits of some nodes, float64 [r, k], from those of its networks and from columns of the nodes."""
        found = list[Tensor]()
        for member, z in zip(self.members, networks, strict=True):
            if isinstance(member, TreesFit):
                z = torch.from_numpy(member.trees.logits(columns[member.columns].numpy()))
            elif isinstance(member, HopsFit):
                z = perceptron(member.model, columns[member.columns])
            assert z is not None
            found.append(z)
        return self.fitted.pooled(found) if isinstance(self.fitted, Mixture) else found[0]


@dataclass(frozen=True, eq=False)
class Pooled:
    """A detector that asks neighbours too, as what a graph on disk is scored by.

    Attributes:
        alone: what scores each node.
        pool: how much its neighbours count.
    """

    alone: Passes | Streams
    pool: NeighbourPool


OnDisk = Passes | Streams | Pooled


def streams_of(fitted: Fitted, features: FeatureMap) -> OnDisk | str:
    """Returns a detector as what a graph on disk is scored by.

    Args:
        fitted: the detector.
        features: the map of the run.

    Returns:
        Of a network passes, of trees and mixtures streams; or why there is neither, as a sentence goes on after
        "because".
    """
    if isinstance(fitted, NeighbourPool):
        alone = streams_of(fitted.base, features)
        return Pooled(alone, fitted) if isinstance(alone, Passes | Streams) else str(alone)
    if not isinstance(fitted, TreesFit | Mixture):
        return passes_of(fitted, features)
    members = list[StreamedMember]()
    for each in [fitted] if isinstance(fitted, TreesFit) else [member.fitted for member in fitted.members]:
        network = each.network if isinstance(each, FoldedNetwork) else each
        direct = network if isinstance(network, TreesFit | HopsFit | SpreadingFit) else None
        member = passes_of(each, features) if direct is None else direct
        if isinstance(member, str):
            return member
        members.append(_threaded(member) if isinstance(member, TreesFit) else member)
    columns = tuple(dict.fromkeys(each.columns for each in members if isinstance(each, TreesFit | HopsFit)))
    owns = [each.own for each in columns]
    if len({key_of(() if own is None else tuple(own.state()[0].values())) for own in owns}) > 1:
        return "its detectors reduce the features in more than one way"
    read = mapped(features, owns[0] if owns else None)
    d = read.maps[-1].n_features
    if any(each.scaled.n_inputs != (each.hops + 1) * d + (each.hops > 0) for each in columns):
        return "its graph has typed or directed relations"
    return Streams(fitted, features, tuple(members), columns, read)


def _threaded(fit: TreesFit) -> TreesFit:
    """Returns trees that predict with as many threads as torch has; they were grown one beside the other."""
    ensemble = replace(fit.trees.all_labels, threads=torch.get_num_threads())
    return replace(fit, trees=replace(fit.trees, all_labels=ensemble))
