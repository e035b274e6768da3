"""
Several labels at once
======================

A model of several labels can be right label by label and wrong all the same: here the second score also says something
about the first label, which the model does not use. Only the canonical error, of all scores together, sees it.
"""

import matplotlib.pyplot as plt
import numpy as np

from calirare_multilabel import canonical_calibration_error, marginal_ece

random = np.random.default_rng(0)
scores = random.uniform(0.25, 0.75, size=(2000, 2))
honest = scores
ignoring = scores + np.stack([scores[:, 1] - 0.5, np.zeros(2000)], axis=1)  # what is true beside what is said
draws = random.uniform(size=scores.shape)

# %%
# Each label's own error is about what chance gives in both cases.

errors = {}
for name, truth in {"nothing left out": honest, "second score ignored": ignoring}.items():
    y = (draws < truth).astype(int)
    errors[name] = canonical_calibration_error(y, scores, norm=1).mean
    print(f"{name:21} canonical {errors[name]:.3f}, label by label {np.mean(marginal_ece(y, scores)):.3f}")
plt.bar(errors.keys(), errors.values())
plt.ylabel("canonical calibration error per label")
plt.show()
