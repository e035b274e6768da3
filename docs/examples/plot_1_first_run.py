"""
First run
=========

Trains on an embedded graph, in which one handwritten digit is the rare class, and looks at what comes out.
"""

import calirare

graph = calirare.load_dataset("digits")
outcome = calirare.train(graph)
print(outcome.summary())

# %%
# One row per node: the detector's probability, the calibrated one, its interval, and how far both can be trusted.

outcome.to_frame().head()

# %%
# ``save`` writes a folder that stands alone: tables, pictures, settings, weights. ``calirare.load`` reads it.

outcome.save("digits-run")
again = calirare.load("digits-run")
again.predict(graph)[["p_raw", "p_rare", "p_balanced"]].describe()
