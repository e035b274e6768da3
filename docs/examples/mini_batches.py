"""
Mini-batches of PyTorch Geometric
=================================

Training that outgrows the memory goes by batches: PyTorch Geometric's ``NeighborLoader`` trains a GraphSAGE (or a GCN),
and its logits get our calibration, decision, review queue and report. It is shown here, not run: ``NeighborLoader``
needs ``pyg-lib`` (https://data.pyg.org/whl), and ends with a sentence that names it where it is missing.
"""

import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE  # or GCN, which takes the same

import calirare

torch.manual_seed(0)
graph = calirare.datasets.synthetic_rare(4000, n_features=16, share=0.1)
graph = graph.with_split(calirare.Split.random(graph.y, label_rate=50, n_val=500, n_test=1000, seed=0))
x, edge_index = calirare.models.pyg_inputs(graph)
data, labels = Data(x=x, edge_index=edge_index, y=graph.y), torch.cat([graph.split.train, graph.split.val])


def trained(nodes, weights):
    """Returns a network that has seen the labels of some nodes alone, 10 neighbours of each a hop."""
    model = GraphSAGE(x.shape[1], 32, 2, 2, dropout=0.5)
    adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    loader = NeighborLoader(data, [10, 10], input_nodes=nodes, batch_size=128, shuffle=True)
    for _ in range(20):
        for batch in loader:
            adam.zero_grad()
            logits = model(batch.x, batch.edge_index)[: batch.batch_size]  # the nodes themselves come first
            F.cross_entropy(logits, batch.y[: batch.batch_size], weight=weights).backward()
            adam.step()
    return model.eval()


@torch.no_grad()
def logits_of(model):
    """Returns the logits of every node, in order, from all of its neighbours."""
    loader = NeighborLoader(data, [-1, -1], batch_size=512)
    return torch.cat([model(batch.x, batch.edge_index)[: batch.batch_size] for batch in loader])


# %%
# The network learns the training labels; the validation labels calibrate it.

weights = calirare.models.class_weights(graph.y[graph.split.train], 2).float()
model = trained(graph.split.train, weights)
given = calirare.models.Given(logits_of(model), class_weights=weights)
outcome = calirare.train(graph, given=given, decide="budget", budget=200)
print(outcome.summary())

# %%
# The run, for ``calirare report --run sage`` and ``calirare review --run sage``.

outcome.save("sage", overwrite=True)

# %%
# Few labels: every one trains, and calibrates by a network that has not seen its fold. Six trainings.

fold = torch.zeros(graph.n_nodes, dtype=torch.int64)
fold[labels] = calirare.models.fold_of(graph.y[labels], 5, seed=0)
weights = calirare.models.class_weights(graph.y[labels], 2).float()
without = torch.stack([logits_of(trained(labels[fold[labels] != k], weights)) for k in range(5)])
given = calirare.models.Given(logits_of(trained(labels, weights)), without, fold, weights)
crossed = calirare.train(graph, given=given)
print(crossed.verdict)
