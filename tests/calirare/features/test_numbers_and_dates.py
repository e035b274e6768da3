"""Columns of numbers and dates: what each is taken for, worked examples, ranks against scipy's, gaps."""

import dataclasses
import datetime
import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.stats import norm, rankdata

from calirare._util.errors import InputError
from calirare.features import FeatureMap, numeric, raw_table
from calirare.features.numeric import ColumnSummary, Ranked, together
from calirare.features.raw_table import RawTable
from calirare.graph import default_names, normalize_features, number_columns
from tests.helpers.raw_columns import graph_of, plain_graph
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

RNG = np.random.default_rng(3)
TAIL = np.exp(2 * RNG.standard_normal(400))
BELL = RNG.standard_normal(400) * 7 + 3
FLAG = (RNG.random(400) < 0.2).astype(float)
ZEROS = np.where(RNG.random(400) < 0.8, 0.0, TAIL)


def made(graph, how="auto", **options) -> dict[str, torch.Tensor]:
    """Returns the columns that a map makes of its own graph, by name."""
    fitted = FeatureMap.fit(graph, how, **options)
    out = fitted.transform(graph)
    assert out.x.dtype == torch.float32
    assert bool(torch.isfinite(out.x).all())
    assert (out.columns, out.feature_normalisation, out.feature_names) == ((), "none", fitted.feature_names)
    return dict(zip(out.feature_names, out.x.T, strict=True))


def assert_scores(got: torch.Tensor, values: np.ndarray) -> None:
    """Asserts normal scores of mean ranks, as scipy ranks; the slope of the quantile function carries the rounding."""
    ranks = (rankdata(values) - 0.5) / len(values)
    want = torch.from_numpy(norm.ppf(ranks))
    slope = torch.from_numpy(ranks / norm.pdf(norm.ppf(ranks)))
    assert_within(got, want, sum_bound(want, 8, want.abs() + slope, out=torch.float32), "normal scores")


def test_each_column_is_mapped_by_what_it_holds():
    graph = graph_of({"tail": TAIL, "bell": BELL, "flag": FLAG, "same": np.full(400, 7.0)})
    assert FeatureMap.fit(graph).log == (
        "flag: as they are",
        "bell: standardised",
        "tail: rank to normal",
        "same: dropped, constant",
    )
    got = made(graph)
    assert got.keys() == {"tail", "bell", "flag"}
    assert_identical(got["flag"], graph.x[:, 2])
    bell = graph.x[:, 1].double()
    want = (bell - bell.mean()) / bell.std(correction=0)
    assert_within(got["bell"], want, sum_bound(want, 2, want.abs() + 1, out=torch.float32), "standardised")
    assert_scores(got["tail"], graph.x[:, 0].numpy())


def test_ties_share_their_mean_rank():
    """A column that is mostly zero keeps its zeros near the middle, where plain scikit-learn sends them to -5.2."""
    got = made(graph_of({"zeros": ZEROS}), "rank")["zeros"]
    assert_scores(got, ZEROS.astype(np.float32))
    share = (ZEROS == 0).mean()
    assert_within(got.min(), *_near(norm.ppf(share / 2)))


def _near(value: float) -> tuple[torch.Tensor, torch.Tensor]:
    want = torch.tensor(value, dtype=torch.float64)
    return want, sum_bound(want, 16, want.abs() + 1, out=torch.float32)


def test_more_nodes_than_quantiles_stay_in_order():
    values = np.exp(3 * RNG.standard_normal(4000))
    got = made(graph_of({"v": values}), "rank")["v"].double()
    order = torch.from_numpy(np.argsort(values))
    assert bool((got[order].diff() >= 0).all())
    exact = torch.from_numpy(norm.ppf((rankdata(values) - 0.5) / len(values)))
    inner = exact.abs() < 2
    assert float((got - exact)[inner].abs().max()) < 2 / numeric.N_QUANTILES / norm.pdf(2)


def test_what_lies_beyond_the_run_counts_as_its_last():
    fitted = FeatureMap.fit(graph_of({"v": TAIL}), "rank")
    low, high, least, most = fitted.transform(graph_of({"v": [-1e18, 1e18, TAIL.min(), TAIL.max()]})).x[:, 0]
    assert (low, high) == (least, most)
    assert_within(most, *_near(norm.ppf(399.5 / 400)))


def test_missing_numbers_become_the_median_and_a_column_says_where():
    cells = [1.0, None, 3.0, 10.0, None, 3.5]
    graph = graph_of({"v": cells, "w": [0, 1, 1, 0, 0, 1]})
    got = made(graph, "none")
    assert got["v"].tolist() == [1.0, 3.25, 3.0, 10.0, 3.25, 3.5]
    assert got["v missing"].tolist() == [0, 1, 0, 0, 1, 0]
    assert made(graph, "none", impute="zero")["v"].tolist() == [1.0, 0, 3.0, 10.0, 0, 3.5]
    assert FeatureMap.fit(graph, "none").log == (
        "v and w: as they are",
        "v: missing values become the median, a column says where",
    )


def test_columns_missing_together_share_their_indicator():
    rows = {"a": [1, None, 3, 5], "b": [2, None, 2, 1], "c": [None, 1, 2, 4], "gone": [None] * 4}
    graph = graph_of(rows)
    names = FeatureMap.fit(graph).feature_names
    assert [name for name in names if name.endswith("missing")] == ["a missing", "c missing"]
    assert FeatureMap.fit(graph).log[-2:] == (
        "gone: dropped, constant",
        "a, b and c: missing values become the median, 2 columns say where",
    )


def test_a_constant_with_gaps_leaves_its_indicator():
    assert made(graph_of({"v": [5, None, 5, 5]})).keys() == {"v missing"}


def test_missing_numbers_are_refused_where_wanted_all_in_one_message():
    graph = graph_of({"a": [1, None, 3], "b": [None, None, 2], "c": [1, 2, 3]})
    with pytest.raises(InputError, match="no value may be missing, but 'a' lacks 1 and 'b' lacks 2: fill them in"):
        FeatureMap.fit(graph, impute="error")


def test_a_gap_in_a_new_graph_is_filled_by_the_run():
    fitted = FeatureMap.fit(graph_of({"v": [1.0, 2, 3, 4]}), "standardize")
    assert fitted.transform(graph_of({"v": [2.5, None]})).x.tolist() == [[0.0], [0.0]]
    kept = FeatureMap.fit(plain_graph([[1.0], [2]], feature_normalisation="standardize"), "stored")
    with pytest.raises(InputError, match="feature 0 must have a value for every node, as in the run's graph: fill"):
        kept.transform(graph_of({"feature 0": [2.5, None]}))


@pytest.mark.parametrize("how", ["none", "row", "standardize"])
def test_stored_is_what_the_graph_says_bit_for_bit(how):
    x = torch.rand(50, 5) ** 3 * torch.tensor([1, 1e4, 1e-3, 1, 1]) + torch.tensor([0, 1, 0, 0, 1e3])
    x[:, 3] = 0.1
    graph = plain_graph(x, feature_normalisation=how)
    assert_identical(FeatureMap.fit(graph, "stored").transform(graph).x, normalize_features(graph).x)


def test_none_is_the_very_tensor():
    graph = plain_graph([[1.0, 5.0], [2.0, 5.0]])
    assert FeatureMap.fit(graph, "none").transform(graph).x is graph.x


def test_blocks_of_columns_change_nothing(monkeypatch):
    graph = graph_of({f"c{i}": np.roll(TAIL if i % 2 else BELL, i) for i in range(7)} | {"gap": [None, *TAIL[1:]]})
    whole = FeatureMap.fit(graph)
    monkeypatch.setattr(raw_table, "BLOCK", 401)
    parts = FeatureMap.fit(graph)
    assert parts.feature_names == whole.feature_names
    assert_identical(parts.transform(graph).x, whole.transform(graph).x)


def test_columns_are_found_by_name_and_others_left_out():
    graph = graph_of({"tail": TAIL, "bell": BELL})
    fitted = FeatureMap.fit(graph)
    said = []
    turned = graph_of({"bell": BELL, "more": FLAG, "tail": TAIL})
    assert_identical(fitted.transform(turned, said.append).x, fitted.transform(graph).x)
    assert said == ["left out, as the run has no such feature: more"]
    with pytest.raises(InputError, match="but tail and bell are not among its columns more: name the columns as"):
        fitted.transform(graph_of({"more": FLAG}))


def test_numbers_without_names_are_counted():
    fitted = FeatureMap.fit(plain_graph(np.stack([TAIL, BELL], 1)))
    assert fitted.transform(plain_graph(np.stack([TAIL, BELL], 1))).feature_names == ("feature 1", "feature 0")
    with pytest.raises(InputError, match="must have the 2 features the run was trained on, got 1"):
        fitted.transform(plain_graph(TAIL[:, None]))


def test_a_graph_of_constants_is_refused():
    told = "graph 'plain' must have a column that varies, but all are constant: give columns that vary"
    with pytest.raises(InputError, match=told):
        FeatureMap.fit(plain_graph(torch.ones(4, 2)))


def test_unknown_words_are_refused():
    with pytest.raises(InputError, match=r"how must be one of auto, .*, got 'ranks'"):
        FeatureMap.fit(plain_graph([[1.0], [2]]), "ranks")
    with pytest.raises(InputError, match="impute must be one of median, zero, error, got 'mean'"):
        FeatureMap.fit(plain_graph([[1.0], [2]]), impute="mean")


def test_what_is_wrong_with_ranks_is_found():
    """The comparison with scipy's ranks rejects known wrong versions."""
    fitted = FeatureMap.fit(graph_of({"zeros": ZEROS}), "rank")
    (ranked,) = (each for each in fitted.maps if each.names == ("zeros",))
    reversed_ = dataclasses.replace(ranked, quantiles=-ranked.quantiles[::-1].copy())
    shifted = dataclasses.replace(ranked, quantiles=np.roll(ranked.quantiles, 1, axis=0))
    table = raw_table.read_table(graph_of({"zeros": ZEROS}), fitted.columns, {}, print)
    for wrong in (reversed_, shifted):
        out = np.empty((400, 1), dtype=np.float32)
        wrong.write(table, out)
        with pytest.raises(AssertionError, match="normal scores"):
            assert_scores(torch.from_numpy(out[:, 0]), ZEROS.astype(np.float32))


def test_a_number_that_many_share_has_one_rank_whatever_its_rounding():
    thirds = np.float32(1) / np.float32(3)
    shared = np.concatenate([np.full(40, thirds), np.full(20, np.nextafter(thirds, np.float32(1)))])
    x = np.concatenate([shared, np.zeros(30), np.linspace(-2, 2, 60)]).astype(np.float64)
    quantiles = together(np.sort(x))
    map_ = Ranked(("x",), (0,), fill=np.full(1, np.nan), quantiles=quantiles[:, None])
    near = thirds * (1 + np.array([-2e-7, 0.0, 6e-8, 2e-7]))
    scores = map_.scaled(np.concatenate([near, [1e-9, -1e-9, 0.0]])[:, None], slice(0, 1))[:, 0]
    assert np.ptp(scores[:4]) == 0
    assert np.ptp(scores[4:]) == 0
    days = np.sort(1.6e9 + 86400.0 * np.arange(500))
    np.testing.assert_array_equal(together(days), days)
    assert 10 < len(np.unique(together(1 + 1e-7 * np.arange(100)))) < 60, "a long run is not one number"
    plain = map_.scaled(np.array([[-1.0], [0.3], [1.0]]), slice(0, 1))[:, 0]
    assert plain[0] < scores[4] < plain[1] < scores[0] < plain[2]


def reference(column):
    """The attributes of `ColumnSummary` of one column."""
    numbers = column[~np.isnan(column)]
    gone = len(column) - len(numbers)
    if not len(numbers):
        return (gone, *[np.nan] * 2, 0.0, 0.0, *[np.nan] * 5)
    low, high, median = numbers.min(), numbers.max(), np.median(numbers)
    moments = (stats.skew(numbers), stats.kurtosis(numbers)) if low < high else (0.0, -3.0)
    between = ((numbers > low) & (numbers < high)).sum()
    return gone, low, high, between, (numbers == median).mean(), median, numbers.mean(), numbers.std(), *moments


@pytest.mark.parametrize("n", [1, 2, 301])
def test_a_summary_of_many_columns_is_that_of_each(n, monkeypatch):
    rng = np.random.default_rng(n)
    x = np.exp(rng.normal(size=(n, 23)))
    x[:, 3], x[:, 4], x[:, 5] = 0.1, np.round(x[:, 4]), rng.random(n) < 0.3
    x[:, 6] = np.nan
    x[rng.random(n) < 0.5, 7] = np.nan
    x[: n // 2, 8], x[n // 2 :, 8] = np.nan, 2.5
    raw = torch.from_numpy(x.astype(np.float32))
    table = RawTable(raw, number_columns(default_names(23)), tuple(range(23)), {}, {})
    monkeypatch.setattr(numeric, "TOGETHER", 5 * n)  # five columns at a time
    found = ColumnSummary.of(table, [*range(20), 22])
    wanted = np.array([reference(raw.numpy().astype(np.float64)[:, j]) for j in [*range(20), 22]]).T
    for field, value in zip(dataclasses.fields(ColumnSummary), wanted, strict=True):
        np.testing.assert_allclose(getattr(found, field.name), value, rtol=1e-9, atol=1e-12, err_msg=field.name)


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
