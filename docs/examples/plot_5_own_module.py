"""
Your own network
================

Any torch module with ``model(x, edge_index) -> logits`` takes the same calls as ours: ``fit_of`` joins it with the
labels it was trained on.
"""

import torch
from torch.nn import functional as F
from torch_geometric.nn import SAGEConv

import calirare
from calirare_lab.intervals_picture import interval_diagram


class Net(torch.nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.first, self.second = SAGEConv(d, 8), SAGEConv(8, k)

    def forward(self, x, edge_index):
        return self.second(F.relu(self.first(x, edge_index)), edge_index)


torch.manual_seed(0)
graph = calirare.datasets.synthetic_rare(500, n_features=16, share=0.2)
graph = graph.with_split(calirare.Split.random(graph.y, label_rate=20, n_val=100, n_test=200, seed=0))
train, (x, edge_index) = graph.split.train, calirare.models.pyg_inputs(graph)
model = Net(16, 2)
adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(100):
    adam.zero_grad()
    F.cross_entropy(model(x, edge_index)[train], graph.y[train]).backward()
    adam.step()

result = calirare.jackknife(calirare.fit_of(model, graph, train), nodes=graph.split.test)
print(f"EICE {result.eice:.3f}; least certain: node {int(result.nodes[result.uncertainty.argmin()])}")
p = torch.softmax(model(x, edge_index), 1)[result.nodes, 1].detach()
interval_diagram(graph.y[result.nodes], p, result.lower, result.upper, "intervals.png")
