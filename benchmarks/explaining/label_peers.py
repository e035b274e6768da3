"""Influence of labels by dattri and pyDVL, of the same network as ours: none of both is installed by CaliRare.

`torch.func` refuses products with sparse rows, so the peers read the network as a function of a node's number: features
and rows of the propagation matrix of the field that is asked about are dense buffers, and what it says of node i is

    (A[i] relu(S W_1 + b_1)) W_2 + b_2,

of a perceptron relu(x[i] W_1 + b_1) W_2 + b_2: the same parameters, loss and penalty, in float32.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from calirare.models import GcnFit, MlpFit
from calirare_ext import ReceptiveField, as_dense

RANK, PROJECTED, STEPS = 20, 512, 100  # of Arnoldi (with more that of dattri is no number), of TRAK, of CG
PASSES = 3
Peer = Callable[[], Tensor]  # returns influences, [labels, nodes]


class Dense(nn.Module):
    """A network of two layers at some nodes, by their places."""

    def __init__(self, fitted: GcnFit, field: ReceptiveField) -> None:
        super().__init__()
        (w_1, b_1), (w_2, b_2) = fitted.model.layers()
        self.first, self.second = nn.Linear(*w_1.shape), nn.Linear(*w_2.shape)
        for layer, weight, bias in ((self.first, w_1, b_1), (self.second, w_2, b_2)):
            layer.weight.data, layer.bias.data = weight.detach().T.float().contiguous(), bias.detach().float().clone()
        self.rows = field.blocks[0].to_dense().float()
        self.features = as_dense(field.features).float()
        self.alone = isinstance(fitted, MlpFit)
        if self.alone:  # the block is a permutation: a node reads its own row
            self.features = self.rows @ self.features

    def forward(self, place: Tensor) -> Tensor:
        """Returns the logits of nodes, [b, 2]."""
        place = place.reshape(-1)
        if self.alone:
            return self.second(torch.relu(self.first(self.features[place])))
        return self.second(self.rows[place] @ torch.relu(self.first(self.features)))


class LabelPeers:
    """What each peer says of labels.

    Args:
        fitted: the network at its minimum.
        field: of the labelled nodes, then those that are explained.
        n_nodes: how many are explained.
    """

    def __init__(self, fitted: GcnFit, field: ReceptiveField, n_nodes: int) -> None:
        self.model, self.damping = Dense(fitted, field), fitted.weight_decay
        m = fitted.nodes.numel()
        self.labels = torch.arange(m), fitted.targets, fitted.sample_weights.float()
        nobody = torch.zeros(n_nodes)
        self.nodes = m + torch.arange(n_nodes), nobody.long(), nobody
        self.linear = self.model.alone

    def all(self) -> dict[str, Peer]:
        """Returns every peer that takes the network."""
        cg = {"rtol": 1e-4, "maxiter": STEPS, "solve_simultaneously": True}
        peers: dict[str, Peer] = {
            "dattri, CG": lambda: self._dattri("IFAttributorCG", max_iter=STEPS, tol=1e-5),
            "dattri, Arnoldi": lambda: self._dattri("IFAttributorArnoldi", proj_dim=RANK, max_iter=100),
            "dattri, TRAK, penalty 1e-6": lambda: self._trak(1e-6),
            "dattri, TRAK, penalty 1e-4": lambda: self._trak(1e-4),
            "pyDVL, CG": lambda: self._pydvl("CgInfluence", **cg),
            "pyDVL, CG, Gauss-Newton": lambda: self._pydvl("CgInfluence", gauss_newton=True, **cg),
            "pyDVL, Arnoldi": lambda: self._pydvl("ArnoldiInfluence", rank=RANK),
        }
        if self.linear:  # EK-FAC wants a row of a batch for each sample in every layer
            peers["dattri, EK-FAC"] = self._ekfac
        return peers

    def _task(self, of_loss: bool = False) -> object:
        from dattri.task import AttributionTask

        model = self.model

        def loss(params: dict[str, Tensor], data: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            return _loss(functional_call(model, params, (data[0],)), *data[1:])

        def target(params: dict[str, Tensor], data: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            z = functional_call(model, params, (data[0],))
            return (z[:, 1] - z[:, 0]).sum()

        return AttributionTask(
            loss_func=loss, model=model, checkpoints=model.state_dict(), target_func=None if of_loss else target
        )

    def _loaders(self) -> tuple[DataLoader, DataLoader]:
        parts = (TensorDataset(*self.labels), TensorDataset(*self.nodes))
        labels, nodes = (DataLoader(part, batch_size=len(part), shuffle=False) for part in parts)
        return labels, nodes

    def _dattri(self, name: str, **options: float) -> Tensor:
        from dattri.algorithm import influence_function

        labels, nodes = self._loaders()
        found = getattr(influence_function, name)(self._task(), regularization=self.damping, **options)
        found.cache(labels)
        return found.attribute(labels, nodes)

    def _ekfac(self) -> Tensor:
        from dattri.algorithm.influence_function import IFAttributorEKFAC

        labels, nodes = self._loaders()
        found = IFAttributorEKFAC(self._task(of_loss=True), damping=self.damping)
        found.cache(labels)  # of what it is asked about it takes the factors too: here of the loss
        found.task = self._task()
        return found.attribute(labels, nodes)

    def _trak(self, penalty: float) -> Tensor:
        from dattri.algorithm.trak import TRAKAttributor

        model = self.model

        def right(params: dict[str, Tensor], data: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            return torch.exp(-cross_entropy(functional_call(model, params, (data[0],)), data[1].reshape(-1)))

        labels, nodes = self._loaders()
        found = TRAKAttributor(self._task(), right, {"proj_dim": PROJECTED}, regularization=penalty)
        found.cache(labels)
        return found.attribute(nodes)

    def _pydvl(self, name: str, gauss_newton: bool = False, **options: float) -> Tensor:
        import pydvl.influence.torch as methods
        from pydvl.influence import InfluenceMode

        labels, nodes = (_packed(part, of_loss) for part, of_loss in ((self.labels, 1.0), (self.nodes, 0.0)))
        loader = DataLoader(TensorDataset(*labels), batch_size=len(labels[0]))
        options |= {"second_order_mode": methods.SecondOrderMode.GAUSS_NEWTON} if gauss_newton else {}
        found = getattr(methods, name)(self.model, _packed_loss, regularization=self.damping, **options).fit(loader)
        return found.influences(*nodes, *labels, mode=InfluenceMode.Up).T


def _loss(z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return (weight.reshape(-1) * cross_entropy(z, y.reshape(-1), reduction="none")).mean()


def _packed(part: tuple[Tensor, Tensor, Tensor], of_loss: float) -> tuple[Tensor, Tensor]:
    """Returns places, and label, weight and whether it is a loss in one tensor, as pyDVL wants them."""
    place, y, weight = part
    return place, torch.stack([y.float(), weight, torch.full_like(weight, of_loss)], 1)


def _packed_loss(z: Tensor, y: Tensor) -> Tensor:
    """Returns the loss of labels, and the log-odds of nodes that are explained."""
    z, y = z.reshape(-1, 2), y.reshape(-1, 3)
    lost = y[:, 1] * (torch.logsumexp(z, 1) - torch.where(y[:, 0] > 0, z[:, 1], z[:, 0]))
    return torch.where(y[:, 2] > 0, lost, z[:, 1] - z[:, 0]).mean()


def timed(peer: Peer, forget: Callable[[], object]) -> tuple[float, Tensor]:
    """Returns seconds of the processor and what a peer says, its words and bars kept back.

    Args:
        peer: what is timed, in an instant the best of three: the first loads code.
        forget: called before, so that nothing is taken from another's work.
    """
    logging.disable(logging.WARNING)
    seconds = list[float]()
    while not seconds or (len(seconds) < PASSES and min(seconds) < 1):
        forget()
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = peer().detach().double()
        seconds.append(time.process_time() - begin)
    logging.disable(logging.NOTSET)
    return min(seconds), found
