"""
A grid search
=============

``GraphClassifier`` is a scikit-learn classifier of a graph's nodes: X holds their numbers. The order of nodes, which
PR-AUC judges, does not depend on the calibration's check: of a single network ``folds=0`` saves its time in the search.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import PrecisionRecallDisplay
from sklearn.model_selection import GridSearchCV, train_test_split

import calirare
from calirare.sklearn import GraphClassifier

graph = calirare.load_dataset("digits")
labelled, rest = train_test_split(np.arange(graph.n_nodes), train_size=300, stratify=graph.y, random_state=0)
y = graph.y.numpy()

classifier = GraphClassifier(graph, model="gcn", folds=0)
search = GridSearchCV(classifier, {"weight_decay": [5e-4, 5e-2]}, scoring="average_precision", cv=3)
search.fit(labelled, y[labelled])
print(search.best_params_, f"PR-AUC {search.best_score_:.3f}")

# %%
# With the best setting and the check, on nodes that nothing was chosen on.

best = search.best_estimator_.set_params(folds=5).fit(labelled, y[labelled])
p = best.predict_proba(rest)[:, 1]
PrecisionRecallDisplay.from_predictions(y[rest], p, name="held-out nodes")
plt.show()
