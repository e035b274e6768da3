"""Explanations as a whole: numbers agree with each other, sentences with numbers, pictures with nothing cut off."""

from __future__ import annotations

import copy
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import calirare
from calirare import InputError
from calirare.explain import Explainer, ExplanationContext, draw, nodes_named, text_of
from calirare.explain.explainable_model import Kept, Shares
from calirare.explain.explanation import (
    EdgeEffect,
    Explanation,
    Explanations,
    FeatureShare,
    LabelEffect,
    apart,
    written,
)
from calirare.explain.network import ExplainableNetwork
from calirare.explain.text import WIDTH, _table
from calirare.explain.words import neighbours, with_words
from calirare.graph import Column, Relation, default_names
from calirare.models import GcnTraining, MlpTraining
from calirare.run.explaining import explained
from calirare_ext import Csr
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

NODES = torch.arange(60, 100).flip(0)  # as alerts come: in no order of their numbers
FLOAT32 = 100 * float(np.finfo(np.float32).eps)  # a float32 network adds in another order among other nodes


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    task = rare_task()
    model = ExplainableNetwork(MlpTraining(epochs=40, hidden=8).fit(task, task.split.train), task)
    city = np.random.default_rng(0).integers(0, 3, task.n_nodes)
    days = np.arange(task.n_nodes) % 60
    x = torch.cat([task.x, torch.from_numpy(np.stack([city, days], 1)).float()], 1)
    columns = (
        *(Column(f"f{i}") for i in range(6)),
        Column("city", "categorical", ("Oslo", "Rome", "Lima")),
        Column("day", "date"),
    )
    names = np.array([f"acc-{i:03d}" for i in range(task.n_nodes)])
    graph = dataclasses.replace(task, x=x, columns=columns, feature_names=(), node_names=names)
    fitted = model.fitted
    return Explainer(model, ExplanationContext(graph, fitted.nodes, fitted.targets, ("rest", "fraud"), None, 0.5))


@pytest.fixture(scope="module")
def found(explainer):
    return explainer.explain(NODES)


def test_numbers_of_an_explanation_agree_with_each_other(explainer, found):
    p = explainer.p_rare(NODES)
    effects = explainer.labels.effects(NODES, 1, p)
    for i, each in enumerate(found):
        assert each.p == pytest.approx(float(p[i]), abs=FLOAT32)
        assert each.alert == (each.p >= 0.5)
        total = each.base + sum(share.share for share in each.features)
        assert total == pytest.approx(each.log_odds, abs=1e-9)
        strongest = effects[i].abs().sort(descending=True).values[:10]
        assert [abs(label.effect) for label in each.labels] == pytest.approx(strongest.tolist(), abs=FLOAT32)
        for label in each.labels:
            assert label.without == each.p - label.effect
            assert label.effect * label.log_odds >= 0
        assert len(each.edges) == int(explainer.context.graph.adjacency.indptr.diff()[each.node])
        assert [abs(edge.log_odds) for edge in each.edges] == sorted(
            (abs(e.log_odds) for e in each.edges), reverse=True
        )


def test_labels_that_take_long_are_left_out_until_they_are_requested(explainer, found, monkeypatch):
    monkeypatch.setattr("calirare.explain.explainer.LABEL_WORK", 0)
    short = explainer.explain(NODES)
    assert all(not each.labels and each.needed is None for each in short)
    assert "--labels 10" in short.notes[0]
    assert [each.edges for each in short] == [each.edges for each in found]
    assert explainer.explain(NODES, 10).each == found.each


def test_of_many_columns_those_that_add_nothing_are_left_out(monkeypatch):
    task = rare_task()
    sparse = dataclasses.replace(task, x=Csr.from_dense(task.x.clamp(min=0)))
    model = ExplainableNetwork(GcnTraining(epochs=10, hidden=4).fit(sparse, sparse.split.train), sparse)
    fitted = model.fitted
    own = Explainer(model, ExplanationContext(sparse, fitted.nodes, fitted.targets, ("rest", "fraud"), None, 0.5))
    every = own.explain(NODES)
    monkeypatch.setattr("calirare.explain.explainer.MANY_COLUMNS", 3)
    some = own.explain(NODES)
    assert any(len(few.features) < len(all_.features) for few, all_ in zip(some, every, strict=True))
    for few, all_ in zip(some, every, strict=True):
        assert few.features == tuple(each for each in all_.features if each.share != 0)
        assert few.base + sum(each.share for each in few.features) == pytest.approx(few.log_odds, abs=1e-9)


def test_needed_labels_are_the_fewest_of_the_strongest(explainer, found):
    alerts = [each for each in found if each.alert]
    assert any(each.needed.enough for each in alerts)
    assert all(each.needed is None for each in found if not each.alert)
    names = [explainer.context.graph.node_name(int(node)) for node in explainer.context.labelled]
    for each in alerts:
        if not each.needed.enough or len(each.needed.names) > 4:
            continue
        node, places = torch.tensor([each.node]), torch.tensor([names.index(name) for name in each.needed.names])
        after = explainer.model.without_labels(node, [places, places[:-1]])[:, 0].softmax(1)[:, 1].tolist()
        assert after[0] == pytest.approx(each.needed.without, abs=FLOAT32)
        assert after[0] < 0.5
        assert after[1] >= 0.5 or len(places) == 1


def test_a_node_that_was_learned_from_says_so_and_its_own_label_is_marked(explainer):
    node = explainer.context.labelled[:1]
    each = explainer.explain(node, shown=100)[0]
    assert each.label == ("rest", "fraud")[int(explainer.context.targets[0])]
    assert [label.node for label in each.labels if label.own] == node.tolist()
    assert "was used in training" in each.sentences[0]


def test_text_fits_and_says_what_the_numbers_are(explainer, found):
    each = next(each for each in found if each.alert)
    text = text_of(dataclasses.replace(found, each=(each,)))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert f"P(rare) of {each.name} is {written(each.p)}, an alert at 0.5." in flat
    for sentence in each.sentences:
        assert " ".join(sentence.split()) in flat
    long = dataclasses.replace(
        each, name="n" * 90, features=tuple(dataclasses.replace(f, name="w" * 99) for f in each.features)
    )
    tables = text_of(dataclasses.replace(found, each=(long,)), 60).splitlines()[4:]
    assert max(map(len, tables)) <= 60


@pytest.mark.parametrize(
    ("p", "words"), [(0.5, "0.50"), (0.031, "0.031"), (0.99991, "0.99991"), (1 - 1e-12, "1.000000")]
)
def test_probabilities_have_the_digits_that_tell_them_from_certainty(p, words):
    assert written(p) == words


def test_nodes_are_known_by_name_or_number(explainer):
    graph = explainer.context.graph
    assert_identical(nodes_named(graph, ["acc-003", "acc-001"]), torch.tensor([3, 1]))
    assert_identical(nodes_named(graph, torch.tensor([5])), torch.tensor([5]))
    for wanted, nodes in (([4, "7"], [4, 7]), ("12", [12]), (12, [12]), (np.int64(12), [12])):  # not nodes 1 and 2
        assert_identical(nodes_named(rare_task(), wanted), torch.tensor(nodes))
    for wanted in (["acc-999"], [3], torch.tensor([260]), torch.tensor([-1])):
        with pytest.raises(InputError, match="has no node"):
            nodes_named(graph, wanted)
    for wanted in ([], torch.tensor([], dtype=torch.int64)):
        with pytest.raises(InputError, match="at least one node"):
            nodes_named(graph, wanted)


@pytest.mark.parametrize("given", [torch.ones(260, dtype=torch.bool), torch.ones(260), np.ones(260, dtype=bool)])
def test_a_mask_or_fractions_are_no_nodes(given):
    with pytest.raises(InputError, match=r"nodes must be names or whole numbers, got (bool|float32): of a mask take"):
        nodes_named(rare_task(), given)


@pytest.mark.slow
def test_threads_that_ask_the_same_run_get_its_answers():
    with rough_runs():
        outcome = calirare.train(rare_task())
    nodes = list(range(200, 208))
    want = [outcome.explain(node).each[0] for node in nodes]
    for _ in range(2):
        asked = copy.deepcopy(outcome)  # without what was worked out
        with ThreadPoolExecutor(4) as pool:
            found = [each.each[0] for each in pool.map(asked.explain, nodes)]
        assert [each.name for each in found] == [each.name for each in want]
        for one, other in zip(found, want, strict=True):  # to rounding: products depend on where memory begins
            assert one.p == pytest.approx(other.p, abs=1e-6)
            effects, wanted = ({each.name: each.effect for each in of.labels} for of in (one, other))
            assert effects == pytest.approx(wanted, abs=1e-5)


def test_of_fewer_than_no_labels_nothing_is_told(explainer):
    with pytest.raises(InputError, match="labels, how many are shown, must be at least 0, got -1"):
        explained(explainer, [0], None, None, -1)


@pytest.mark.slow
def test_a_picture_holds_all_of_its_words(explainer, found, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    kept = []
    save = Figure.savefig

    def looked_at(figure, *args, **options):
        save(figure, *args, **options)
        width, height = figure.get_size_inches() * figure.dpi
        legend = [each.get_text() for each in figure.legends[0].get_texts()]
        assert {"edge raises P(fraud)", "labelled, fraud", "labelled, normal"} <= set(legend), "classes by name"
        assert figure.axes[1].get_ylabel() == "P(fraud)"
        boxes = [text.get_window_extent() for text in [*figure.texts, *figure.axes[0].texts] if text.get_text()]
        kept.extend(boxes)
        assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)

    monkeypatch.setattr(Figure, "savefig", looked_at)
    each = max(found, key=lambda each: len(each.edges))
    edges = [dataclasses.replace(each.edges[0], node=i, name=f"Konto-Nummer-DE8937{i:05d}") for i in range(20)]
    many = dataclasses.replace(each, edges=tuple(edges))
    for i, shown in enumerate((each, many, dataclasses.replace(each, edges=()))):
        draw(shown, explainer.context, tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 10_000
    assert len(kept) > 20
    draw(each, explainer.context, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "0.png").read_bytes()


def test_what_moves_next_to_nothing_is_not_called_a_reason():
    label = LabelEffect(3, "acc-3", "fraud", effect=0.0004, without=0.9896, log_odds=0.04, own=False)
    edge = EdgeEffect(5, "acc-5", None, p_rare=0.4, effect=-0.0002, without=0.9902, log_odds=-0.02)
    said = Explanation(1, "acc-1", 0.99, 0.5, 4.6, None, (label,), edges=(edge,)).sentences
    assert said[1:] == ["No single label moves it by 0.1 points.", "No single edge moves it by 0.1 points."]
    strong = dataclasses.replace(label, effect=0.2, without=0.79)
    weak = dataclasses.replace(label, name="acc-4", effect=-1e-20, without=0.99)
    assert "acc-4" not in Explanation(1, "acc-1", 0.99, 0.5, 4.6, None, (strong, weak)).sentences[1]
    assert (
        "The label of acc-3 (fraud) raises it most"
        in dataclasses.replace(Explanation(1, "acc-1", 0.99, 0.5, 4.6, None, (strong,)), edges=(edge,)).sentences[1]
    )


def test_an_edge_is_told_with_its_types(explainer):
    graph = explainer.context.graph
    node, other, far = 20, *neighbours(graph.adjacency, 20)[:2].tolist()

    def pointing(*ends: tuple[int, int]) -> Csr:
        dense = torch.zeros(graph.n_nodes, graph.n_nodes)
        for a, b in ends:
            dense[a, b] = 1.0
        return Csr.from_dense(dense)

    relations = (Relation.of("calls", pointing((node, other))), Relation.of("pays", pointing((other, node))))
    relations += (Relation.of("same, or like", pointing((other, node), (node, other))),)
    context = dataclasses.replace(explainer.context, graph=dataclasses.replace(graph, relations=relations))
    types = ("calls to", "pays from", "same, or like")
    assert context.types_of_edges(node, torch.tensor([other, far])) == {other: types, far: ()}
    assert context.types_of_edges(other, torch.tensor([node])) == {node: ("calls from", "pays to", types[2])}
    assert explainer.context.types_of_edges(node, torch.tensor([other])) == {}
    typed = Explainer(explainer.model, context, lambda: None).explain(torch.tensor([node]))[0]
    assert {edge.node: edge.types for edge in typed.edges}[other] == types
    first = dataclasses.replace(typed, edges=tuple(edge for edge in typed.edges if edge.node == other))
    assert "  (calls to, pays from, 'same, or like')" in text_of(Explanations((first,), ())).splitlines()
    assert (
        f"he edge to {graph.node_name(other)} (calls to, pays from, 'same, or like') matters most"
        in first.sentences[-1]
    )


def test_a_sentence_says_what_is_usual_and_which_way_it_goes():
    share = FeatureShare("city", -1.0, "Oslo", "Rome (60%)")
    said = Explanation(1, "acc-1", 0.99, 0.5, 4.6, None, (), features=(share,))
    assert "city (Oslo; usual Rome (60%)) lowers it most" in said.sentences[-1]
    assert any(
        line.split() == ["city", "Oslo", "(Rome,", "60%)", "lowers", "-1.00"]
        for line in text_of(Explanations((said,), ())).splitlines()
    )


def test_hop_columns_of_directions_are_named_in_words():
    """`hops` and trees read more than 128 sparse features as directions, which are fewer than the features."""
    made = ("direction 1", "direction 2", "log degree", "neighbours' direction 1", "2 hops' direction 2")
    shares = Shares(torch.zeros(1), made, torch.zeros(1, 5))
    words = ("number of neighbours", "mean of neighbours of direction 1", "mean over 2 hops of direction 2")
    assert with_words(shares, default_names(9)).names == ("direction 1", "direction 2", *words)
    own = dataclasses.replace(shares, names=("amount", "neighbours' debts", *made[2:]))
    turned = with_words(own, ("neighbours' debts", "amount"))
    assert turned.names == ("amount", "neighbours' debts", *words), "columns are in another order than features are"
    assert with_words(own, ("amount", "neighbours' debts")).names == ("amount", "neighbours' debts", *words)
    fewer = with_words(own, ("amount", "neighbours' debts", "one that is not read"))
    assert fewer.names == ("amount", "neighbours' debts", *words)


def test_what_is_kept_of_one_set_of_nodes_is_never_told_of_another():
    """The last few sets are kept; what is asked in another order, or of many nodes, is the same as asked alone."""
    made = []

    def make(nodes):
        made.append(nodes.tolist())
        return nodes.double() * 2

    kept = Kept()
    for asked in ([1, 2], [2, 1], [1, 2], [3], [4], [5], [1, 2]):
        assert kept.of(torch.tensor(asked), make).tolist() == [2.0 * node for node in asked]
    assert made == [[1, 2], [2, 1], [3], [4], [5], [1, 2]], "the oldest goes"
    many = torch.arange(100)
    assert kept.of(many, make) is not kept.of(many, make), "of many nothing is kept"


def test_a_name_goes_on_over_empty_cells():
    name = "mean of the last 30 days of merchant gifts and toys"
    assert _table(("feature",), [(name, "", "", "", "+3.24")], WIDTH)[1] == f"{name:<71}    +3.24"


@pytest.mark.parametrize(
    ("p", "threshold", "text"),
    [
        (0.0985, 0.1, "0.099"),
        (0.09996, 0.1, "0.09996"),
        (0.1, 0.1, "0.10"),
        (0.12, 0.1, "0.12"),
        (0.5962, 0.597, "0.596"),
    ],
)
def test_a_probability_is_written_on_its_side_of_the_threshold(p, threshold, text):
    assert apart(p, threshold) == text
