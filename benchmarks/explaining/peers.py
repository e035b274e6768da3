"""Scores of edges by PyTorch Geometric's and Captum's explainers, for the same network as ours, and by floors."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType
from torch_geometric.nn import MessagePassing

from explaining.judge import Field, Judge

GNN_EPOCHS, PG_EPOCHS, PG_RATE = 200, 30, 0.003  # as in PyG's examples
CHUNK = 256  # edges worked on together
HIDDEN, PLAIN, CHANCE = "one edge masked", "gradient", "random"
OPTIONS = "edge_weight", "loops"
Scores = Callable[[Field, int], Tensor]


class Convolution(MessagePassing):
    """PyG's GCNConv with weights that are normalised before, self loops apart: those have no mask there either."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(aggr="add")
        self.weight, self.bias = nn.Parameter(weight.detach().clone()), nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, loops: Tensor) -> Tensor:
        x = x @ self.weight
        return self.propagate(edge_index, x=x, edge_weight=edge_weight) + loops[:, None] * x + self.bias

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return edge_weight[:, None] * x_j


class Plain(nn.Module):
    """The trained network as a module of PyG; it returns log-probabilities, [n, 2]."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.first, self.second = (Convolution(*layer) for layer in judge.network.layers())

    def logits(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, loops: Tensor) -> Tensor:
        hidden = self.first(x, edge_index, edge_weight, loops).relu()
        return self.second(hidden, edge_index, edge_weight, loops)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, loops: Tensor) -> Tensor:
        return F.log_softmax(self.logits(x, edge_index, edge_weight, loops), 1)


def inputs(judge: Judge, field: Field) -> tuple[Tensor, ...]:
    """Returns what the module reads of a field: features, each edge in both directions, weights and self loops."""
    edges = torch.cat([field.ends, field.ends.flip(1)]).T.contiguous()
    scale = field.degree**-0.5
    weights = scale[edges[0]] * scale[edges[1]] * field.weights.repeat(2)
    return judge.x[field.nodes], edges, weights.float(), (field.loops * scale**2).float()


def rare(x: Tensor) -> Tensor:
    """Returns the class that is explained, for each node."""
    return torch.ones(len(x), dtype=torch.int64)


def undirected(mask: Tensor) -> Tensor:
    """Returns the sum of the scores of both directions, float64 [e]."""
    return mask.detach().double().view(2, -1).sum(0)


class Peers:
    """Every peer's scores of the edges of a field.

    Args:
        judge: with the network.
        fields: those that are explained, on which PGExplainer is trained.
        seed: of all that is drawn.
    """

    def __init__(self, judge: Judge, fields: list[Field], seed: int) -> None:
        self.judge, self.fields, self.seed, self.module = judge, fields, seed, Plain(judge).eval()
        self.scores: dict[str, Scores] = {
            "GNNExplainer": self._by(self._explainer(GNNExplainer(epochs=GNN_EPOCHS))),
            "Integrated Gradients": self._by(self._explainer(CaptumExplainer("IntegratedGradients"))),
            "Saliency": self._by(self._explainer(CaptumExplainer("Saliency"))),
            HIDDEN: self._masked,
            PLAIN: self._by(self._explainer(CaptumExplainer("Saliency", abs=False))),
            CHANCE: self._random,
        }

    def difference(self, field: Field) -> float:
        """Returns how far the module's logits of the node are from those of the run."""
        with torch.no_grad():
            logits = self.module.logits(*inputs(self.judge, field))[0]
        outcome = self.judge.outcome
        return float((logits - outcome.fit.logits_of(self._graph, field.nodes[:1])[0]).abs().max())

    @property
    def _graph(self) -> object:
        outcome = self.judge.outcome
        return outcome.mapped

    def pg_explainer(self, number: int) -> Scores:
        """Returns the scores of PGExplainer, trained with a seed of its own on all that is explained."""
        torch.manual_seed(self.seed + number)
        explainer = self._explainer(PGExplainer(epochs=PG_EPOCHS, lr=PG_RATE), "phenomenon")
        warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad")
        for epoch in range(PG_EPOCHS):
            for field in self.fields:
                x, edges, *more = inputs(self.judge, field)
                options = {"target": rare(x), "index": 0} | dict(zip(OPTIONS, more, strict=True))
                explainer.algorithm.train(epoch, explainer.model, x, edges, **options)
        return self._by(explainer)

    def _explainer(self, algorithm: ExplainerAlgorithm, kind: str = "model") -> Explainer:
        module = Plain(self.judge).eval()  # of its own: a mask that one explainer leaves behind breaks the next one
        config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "log_probs"}
        return Explainer(module, algorithm, kind, config, edge_mask_type="object")

    def _by(self, explainer: Explainer) -> Scores:
        """Returns the scores of an explainer of PyG."""

        def scores(field: Field, number: int) -> Tensor:
            torch.manual_seed(self.seed + number)
            x, edges, *more = inputs(self.judge, field)
            asked = rare(x) if explainer.explanation_type == ExplanationType.phenomenon else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                said = explainer(x, edges, target=asked, index=0, **dict(zip(OPTIONS, more, strict=True)))
            return undirected(said.edge_mask)

        return scores

    def _masked(self, field: Field, _: int) -> Tensor:
        """Returns log-odds with all edges minus those where one carries nothing and degrees stay: no peer's score."""
        kept = ~torch.eye(len(field.ends), dtype=torch.bool)
        said = torch.cat([self.judge.log_odds(field, some, masked=True) for some in kept.split(CHUNK)])
        return self.judge.log_odds(field, torch.ones_like(kept[:1])) - said

    def _random(self, field: Field, number: int) -> Tensor:
        return torch.rand(len(field.ends), generator=torch.Generator().manual_seed(self.seed + number)).double()
