"""Trees grown on some columns are written as if they had been grown on all."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from calirare.models.tree_ensembles import widened
from calirare.models.tree_growth import settings_of


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_text_is_that_of_trees_to_which_other_columns_are_constant(n_classes):
    rng = np.random.default_rng(n_classes)
    targets, columns = rng.integers(0, n_classes, 90), rng.normal(size=(90, 50)).astype(np.float32)
    columns[:, 12] += targets
    columns[:, 30] = 0.5  # used, and constant
    used = rng.random(50) < 0.5
    used[[12, 30]] = True
    given = {"num_leaves": 7, "learning_rate": 0.1, "seed": 3, "num_threads": 1}
    settings = settings_of(90, n_classes, **given)

    def grown(x):
        return lightgbm.train(settings, lightgbm.Dataset(x, targets, params=settings), 12)

    narrow, wide = grown(columns[:, used]), grown(np.where(used, columns, np.float32(0)))
    text = widened(narrow.model_to_string(), used)
    assert text == wide.model_to_string()
    again = lightgbm.Booster(model_str=text).predict(columns, num_threads=1)
    np.testing.assert_array_equal(again, narrow.predict(columns[:, used], num_threads=1))
