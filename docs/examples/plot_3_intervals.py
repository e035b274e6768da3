"""
Intervals and a review list
===========================

Every label is left out once, without retraining. From these models come an interval for each node's label, the
probability that its prediction is right, and the order in which a human should look at nodes.
"""

import torch

import calirare
from calirare_lab.intervals_picture import interval_diagram

graph = calirare.load_dataset("digits")
outcome = calirare.train(graph, model="gcn", epochs=100, coverage=0.9)
result, test = outcome.jackknife, graph.split.test
held = calirare.metrics.coverage(graph.y[test], result.lower[test], result.upper[test])
print(f"intervals hold the label of {held:.1%} of the test nodes, wanted {result.coverage:.0%}")

p = outcome.probabilities("population")[:, 1]
ends = result.lower[test], result.upper[test]
interval_diagram(graph.y[test], p[test], *ends, "intervals.png", max_nodes=120, class_names=graph.class_names)

# %%
# A tenth of the nodes, those most likely wrong, holds most of the mistakes.

first = outcome.review()
first = first[torch.isin(first, test)][: len(test) // 10]
wrong = (p > 0.5) != (graph.y == 1)
print(f"{int(wrong[first].sum())} of {int(wrong[test].sum())} mistakes are among {len(first)} of {len(test)} nodes")
