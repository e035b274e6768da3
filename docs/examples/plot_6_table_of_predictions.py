"""
Any model's predictions
=======================

``calirare.metrics`` and ``calirare.plots`` need labels and probabilities, and no graph. Here a naive Bayes classifier,
which is famously too sure of itself, before and after a calibration map.
"""

from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB

from calirare import calibration, metrics, plots

x, y = make_classification(4000, n_informative=4, n_redundant=8, weights=[0.9], random_state=0)
model = GaussianNB().fit(x[:1000], y[:1000])
logits = model.predict_log_proba(x)
platt = calibration.platt_scaling("population").fit(logits[1000:2000], y[1000:2000])
y, before, after = y[2000:], model.predict_proba(x[2000:]), platt.transform(logits[2000:])

# %%
# Measures with what chance alone reads, and how sure they are.

for name, p in (("before", before), ("after", after)):
    sure = metrics.bootstrap_interval(metrics.ece, y, p)
    print(f"{name:7} ECE {metrics.ece(y, p):.3f} [{sure.lower:.3f}, {sure.upper:.3f}], ", end="")
    print(f"by chance {metrics.noise_floor(metrics.ece, p).mean:.3f}, NLL {metrics.nll(y, p):.3f}")

# %%
# The same from the command line: ``calirare evaluate predictions.csv``.

panels = [plots.Panel(name, y, p[:, 1]) for name, p in (("before", before), ("after", after))]
plots.reliability_diagram(panels, "table.png", x_label="P(rare)", y_label="share of rare")
