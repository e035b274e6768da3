"""
Leave-one-out beside retraining
===============================

Each method says how the logits move without a label. Retraining is the judge: here for ten labels of a small network,
trained to its minimum in double precision.
"""

import torch

import calirare
from calirare.graph import Split
from calirare.models import GcnTraining, converge
from calirare_lab.leave_one_out import compare

graph = calirare.datasets.synthetic_rare(600, seed=3, n_features=12, share=0.2)
graph = graph.with_split(Split.random(graph.y, label_rate=20, n_val=100, n_test=200, seed=0))
fitted = calirare.fit(graph, training=GcnTraining(hidden=4, weight_decay=5e-3))
fitted, end = converge(fitted, graph)
print(f"gradient {end.gradient_norm:.1e} after {end.steps} steps")

chosen, elsewhere = torch.arange(0, 40, 4), graph.split.test
found = compare(fitted, graph, chosen, elsewhere)
for row in found.rows:
    print(f"{row.method:18} error {row.relative_error:6.3f}, correlation {row.correlation:6.3f}  {row.note}")

# %%
# Points on the diagonal: the step foresees what retraining does.

import matplotlib.pyplot as plt

for name in ("alo", "influence, exact"):
    plt.scatter(found.truth[:, 0], found.estimates[name][:, 0], label=name)
plt.axline((0, 0), slope=1, color="grey", linestyle="--")
plt.xlabel("change by retraining")
plt.ylabel("change by the method")
plt.legend()
plt.show()
