"""Dates: ages from the newest of the run's graph, and cycles that vary."""

import datetime
import math

import numpy as np
import torch

from calirare.features import FeatureMap
from tests.helpers.raw_columns import graph_of
from tests.helpers.tolerance import assert_within, sum_bound

DAY = datetime.timedelta(days=1)
NEW_YEAR = datetime.datetime(2024, 1, 1)


def columns_of(fitted, graph) -> dict[str, torch.Tensor]:
    out = fitted.transform(graph)
    assert bool(torch.isfinite(out.x).all())
    return dict(zip(out.feature_names, out.x.T, strict=True))


def test_ages_count_back_from_the_newest_of_the_run():
    days = [NEW_YEAR + i * DAY for i in (0, 3, 10, 4)]
    fitted = FeatureMap.fit(graph_of({"joined": days}), "none")
    got = columns_of(fitted, graph_of({"joined": days}))
    assert got["joined age"].tolist() == [10, 7, 0, 6]
    later = columns_of(fitted, graph_of({"joined": [NEW_YEAR + 12 * DAY]}))
    assert later["joined age"].tolist() == [-2]


def test_only_cycles_that_vary_are_made():
    def names(days) -> tuple[str, ...]:
        return FeatureMap.fit(graph_of({"t": days, "v": range(len(days))})).feature_names[2:]

    whole_days = [NEW_YEAR + i * DAY for i in range(30)]
    assert names(whole_days) == ("t day of week sin", "t day of week cos")
    assert names([NEW_YEAR + i * DAY / 24 for i in range(30)]) == ("t time of day sin", "t time of day cos")
    assert names([NEW_YEAR + 7 * i * DAY for i in range(80)]) == ("t day of year sin", "t day of year cos")
    assert names([NEW_YEAR + 31 * i * DAY / 24 for i in range(400)])[::2] == (
        "t time of day sin",
        "t day of week sin",
        "t day of year sin",
    )


def test_noon_is_opposite_to_midnight():
    graph = graph_of({"t": [NEW_YEAR, NEW_YEAR + DAY / 2, NEW_YEAR + DAY / 4, NEW_YEAR + 2 * DAY]})
    got = columns_of(FeatureMap.fit(graph, "none"), graph)
    want = torch.tensor([[math.sin(a), math.cos(a)] for a in (0, math.pi, math.pi / 2, 0)], dtype=torch.float64)
    pair = torch.stack([got["t time of day sin"], got["t time of day cos"]], 1)
    assert_within(pair, want, sum_bound(want, 4, torch.ones_like(want), out=torch.float32))


def test_a_missing_date_is_the_median_and_the_middle_of_the_circle():
    days = [NEW_YEAR + i * DAY / 3 for i in range(12)]
    graph = graph_of({"t": [*days[:5], None, *days[6:]]})
    got = columns_of(FeatureMap.fit(graph, "none"), graph)
    assert (got["t time of day sin"][5], got["t time of day cos"][5], got["t missing"][5]) == (0, 0, 1)
    known = torch.cat([got["t age"][:5], got["t age"][6:]])
    assert float(got["t age"][5]) == float(np.median(known.double().numpy()).astype(np.float32))
