"""
Which population
================

A probability is right for a population. ``population`` means nodes as they come; ``balanced`` means classes equally
common, as cost-sensitive training does. Both maps are fitted in every run; here both are judged on test nodes.
"""

import calirare
from calirare.plots import confidence_panel, reliability_diagram

graph = calirare.load_dataset("digits")
outcome = calirare.train(graph, model="gcn", epochs=100)
test = graph.split.test
y = graph.y[test]

# %%
# The calibration error of nodes as they come, beside what chance alone reads on so many nodes.

panels = []
for title, target in [("network", None), ("balanced", "balanced"), ("population", "population")]:
    p = outcome.probabilities(target)[test]
    floor = calirare.metrics.noise_floor(calirare.metrics.ece, p)
    print(f"{title:10}  ECE {calirare.metrics.ece(y, p):.3f}, by chance {floor.mean:.3f}")
    panels.append(confidence_panel(title, y, p))

# %%
# Bars that reach into the grey band are no fault: a perfectly calibrated model scatters as much.

reliability_diagram(panels, "population.png", n_bins=10)
