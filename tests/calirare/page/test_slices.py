"""Slices of judged nodes have exact tails and honest flags."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom

from calirare.explain import day_in_words
from calirare.graph import Graph, Split, default_names
from calirare.graph.columns import Column
from calirare.page.render import _sliced
from calirare.page.slices import FEWEST, Slice, count_distribution, slices_of, two_sided
from calirare.page.variables import Variable, _number, variables_of
from calirare_ext import Csr

CLOSE = 1e-12
FARTHEST = "3 or more, or none"


def test_the_distribution_of_a_count_is_exact():
    rng = np.random.default_rng(0)
    for m in (1, 2, 3, 7, 300):
        p = rng.random(m)
        by_hand = np.ones(1)
        for each in p:
            by_hand = np.convolve(by_hand, [1 - each, each])
        assert np.abs(count_distribution(p) - by_hand).max() < CLOSE
    same = count_distribution(np.full(5000, 0.01))
    assert np.abs(same - binom.pmf(np.arange(5001), 5000, 0.01)).max() < CLOSE


@pytest.mark.parametrize(("count", "chance"), [(0, 2 * 0.9**3), (1, 2 * (1 - 0.9**3)), (3, 2 * 0.1**3)])
def test_two_tails(count, chance):
    assert two_sided(np.full(3, 0.1), count) == pytest.approx(min(chance, 1.0), rel=1e-9)


def variables(n: int, rng: np.random.Generator) -> list[Variable]:
    return [Variable(f"v{i}", rng.integers(0, 4, n), tuple("abcd")) for i in range(6)]


@pytest.mark.slow
def test_a_calibrated_model_has_a_flag_as_seldom_as_it_says():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(300):
        p = rng.beta(0.3, 3, 400)
        found = slices_of(variables(400, rng), p, rng.random(400) < p, np.arange(400))
        wrong += any(each.flag for each in found)
    assert wrong <= 300 * 0.05 + 2.6 * np.sqrt(300 * 0.05 * 0.95)


def test_a_slice_that_is_wrong_has_a_flag_and_says_by_how_much():
    rng = np.random.default_rng(2)
    p = np.full(2000, 0.2)
    division = Variable("city", np.arange(2000) % 4, ("a", "b", "c", "d"))
    rare = rng.random(2000) < np.where(division.group == 2, 0.44, 0.12)
    found = slices_of([division, *variables(2000, rng)], p, rare, np.arange(2000))
    assert {each.variable for each in found if each.flag} == {"city"}
    worst = next(each for each in found if each.value == "c")
    assert worst.flag
    inside = rare[division.group == 2]
    assert worst == Slice(
        "city", "c", 500, int(inside.sum()), pytest.approx(0.2), inside.mean(), worst.noise, worst.chance, True
    )
    assert worst.noise == pytest.approx(np.sqrt(2 / np.pi * 0.16 / 500))
    few = Variable(
        "tiny", np.r_[np.zeros(FEWEST - 1, dtype=int), np.ones(2000 - FEWEST + 1, dtype=int)], ("few", "many")
    )
    assert [each.value for each in slices_of([few], p, rare, np.arange(2000))] == ["many"]


def path_graph(n: int = 9) -> Graph:
    """A path with a lone node at its end, columns of every kind, one training label at each of two nodes."""
    i = torch.arange(n - 2)
    adjacency = Csr.from_coo(torch.cat([i, i + 1]), torch.cat([i + 1, i]), None, (n, n))
    x = torch.stack([torch.arange(n) % 3, torch.linspace(0, 1, n), torch.arange(n) * 400.0], 1).float()
    x[0, 1] = float("nan")
    columns = (Column("kind", "categorical", ("a", "b", "c")), Column("size"), Column("since", "date"))
    y = torch.zeros(n, dtype=torch.int64)
    y[0] = 1
    split = Split(torch.tensor([0, 5]), torch.tensor([], dtype=torch.int64), torch.tensor([1, 2]))
    names = ("kind", "size", "since")
    return Graph(adjacency, x, y, split=split, columns=columns, feature_names=names, class_names=("rest", "rare"))


def said(variable: Variable) -> list[str]:
    return [variable.names[k] for k in variable.group]


def test_nodes_are_divided_by_place_and_column():
    graph = path_graph()
    p = np.arange(9) / 10
    by_name = {variable.name: variable for variable in variables_of(graph, p)}
    assert said(by_name["number of neighbours"]) == ["1"] + ["2"] * 6 + ["1", "0"]
    assert said(by_name["steps to the nearest training label"]) == ["0", "1", "2", "2", "1", "0", "1", "2", FARTHEST]
    mean = by_name["mean P(rare) of its neighbours"]
    assert said(mean)[-1] == "(no neighbour)"
    assert np.array_equal(np.argsort(mean.group[1:7], kind="stable"), np.arange(6)), "it rises along the path"
    assert said(by_name["missing values"]) == ["one or more"] + ["none"] * 8
    assert said(by_name["kind"]) == ["a", "b", "c"] * 3
    assert said(by_name["size"])[0] == "(missing)"
    assert said(by_name["since"])[0].startswith("2000-01-01 to under 20")
    assert len({*said(by_name["since"])}) == 4


def test_many_categories_leave_one_slice_of_others():
    graph = path_graph()
    column = Column("kind", "categorical", tuple("abcdefghi"))
    x = graph.x.clone()
    x[:, 0] = torch.arange(9)
    found = variables_of(dataclasses.replace(graph, x=x, columns=(column, *graph.columns[1:])), np.zeros(9))
    kinds = said(next(v for v in found if v.name == "kind"))
    assert kinds == ["a", "b", "c", "d", "e", "f", "others", "others", "others"]


def test_a_date_of_no_year_is_told_in_days():
    assert day_in_words(8796.0) == "2024-01-31"
    assert day_in_words(-9e18) == "-9e+18 days from 2000"


def test_a_table_of_scored_nodes_alone_is_sliced_by_where_they_stand():
    """Half of the nodes carry edges alone, and the first of them is one: rows of the table are not numbers of nodes."""
    n, rng = 800, np.random.default_rng(0)
    scored = np.arange(n) % 2 == 1
    pairs = np.unique(np.sort(rng.integers(0, n, (3 * n, 2)) ** 2 // n, 1), axis=0)
    x = rng.normal(size=(n, 1)).astype(np.float32)
    known = np.where(scored, (rng.random(n) < 0.3).astype(int), -1)
    graph = Graph.from_edges(pairs, x, known, symmetrize=True, duplicates="drop", self_loops="drop")
    nodes = torch.arange(n)
    split = Split(nodes[1:101:2], nodes[:0], nodes[101::2], "by hand")
    graph = dataclasses.replace(graph, scored=torch.from_numpy(scored), split=split)
    told = np.flatnonzero(scored)
    parts = np.where(told < 101, "train", "test")
    y, p = known[told], rng.random(len(told))
    sliced = _sliced(graph, pd.DataFrame({"split": parts, "y": y, "p_rare": p}))
    slices = sliced["slices"]
    assert not sliced["no_slices"]
    of_column = [each for each in slices if each.variable == default_names(1)[0]]
    judged = told[parts == "test"]
    assert sum(each.nodes for each in of_column) == len(judged)
    edges = np.unique(np.quantile(x[:, 0], np.linspace(0, 1, 5)[1:-1], method="higher"))
    group = np.searchsorted(edges, x[judged, 0], side="right")
    assert [each.rare for each in of_column] == np.bincount(group, y[parts == "test"]).astype(int).tolist()
    near = [each for each in slices if each.variable == "mean P(rare) of its neighbours"]
    of_scored = sum(bool(scored[graph.adjacency.select_rows(torch.tensor([v])).indices].any()) for v in judged)
    alone = sum(each.nodes for each in near if each.value == "(none is scored)")
    assert sum(each.nodes for each in near) == len(judged)
    assert alone == len(judged) - of_scored > 0


def test_large_numbers_are_written_out():
    assert [_number(value) for value in (15540.2, 1.7e9, 1234.5, 0.00241, -25000.0)] == [
        "15,540",
        "1,700,000,000",
        "1234",
        "0.00241",
        "-25,000",
    ]
