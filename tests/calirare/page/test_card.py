"""The card of a case: what stands where among all cases, who is known around it, what is similar."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from calirare import Transactions
from calirare.explain import EdgeEffect, ExplanationContext
from calirare.explain.explanation import Explanation, FeatureShare, LabelEffect
from calirare.graph import Column, Graph
from calirare.page.card import Card, Cards
from calirare_ext import Csr

DAY = (datetime.date(2024, 6, 1) - datetime.date(2000, 1, 1)).days
N = 40  # cases; then a card (40) and a shop (41)


def context() -> ExplanationContext:
    """Cases 0 to 39 with amounts 0 to 39, at the card or not; even ones below 20 are labelled, 4 and 8 fraud."""
    ends = [(i, 40) for i in range(0, 12)] + [(i, 41) for i in range(N)]
    a, b = (torch.tensor(each) for each in zip(*ends, strict=True))
    matrix = Csr.from_coo(torch.cat([a, b]), torch.cat([b, a]), None, (42, 42))
    nan = float("nan")
    x = torch.tensor([[float(i), float(i % 4 == 0), 1.0, float(DAY + i)] for i in range(N)] + [[nan] * 4] * 2)
    columns = (Column("amount"), Column("city", "categorical", ("Oslo", "Rome")), Column("same"), Column("day", "date"))
    labelled = torch.arange(0, 20, 2)
    targets = torch.isin(labelled, torch.tensor([4, 8])).long()
    y = torch.full((42,), -1)
    y[labelled] = targets
    scored = torch.arange(42) < N
    names, time = np.array([f"n{i}" for i in range(42)]), torch.where(scored, DAY + torch.arange(42.0).double(), nan)
    more = {"columns": columns, "scored": scored, "node_names": names, "time": time}
    graph = Graph(matrix, x, y, class_names=("normal", "fraud"), **more)
    return ExplanationContext(graph, labelled, targets, ("normal", "fraud"), None, 0.5)


def card_of(node: int) -> Card:
    labels = (
        LabelEffect(4, "n4", "fraud", 0.2, 0.5, 0.9, own=False),
        LabelEffect(6, "n6", "normal", -0.009, 0.7, -0.1, own=False),
    )
    edges = (
        EdgeEffect(40, "n40", None, None, 0.4, 0.3, 1.7, "2 of 6 rare"),
        EdgeEffect(41, "n41", None, None, 0.01, 0.69, 0.05),
    )
    features = (
        FeatureShare("amount", 1.2, "39", "1.95 to 37.05"),
        FeatureShare("city", -0.4, "Oslo", "Oslo (75%)"),
        FeatureShare("day", 0.01, None),
    )
    why = Explanation(node, f"n{node}", 0.7, 0.5, 0.85, None, labels, None, edges, features, 0.0, "fraud")
    return Cards(context()).of(why, "an alert")


def test_fields_say_where_a_value_stands_and_what_is_usual():
    fields = {field.name: field for field in card_of(39).fields}
    assert list(fields) == ["time", "amount", "city", "day"], "the column that is the same for all tells nothing"
    assert fields["amount"].among == "higher than 99%"
    assert fields["amount"].usual == "1.95 to 37.05"
    assert fields["amount"].unusual
    assert (fields["city"].value, fields["city"].among, fields["city"].usual) == ("Oslo", "shared by 75%", "Oslo (75%)")
    assert fields["day"].value == "2024-07-10"


def test_parties_have_their_known_cases_without_the_case_itself_newest_first():
    card, own = card_of(39), card_of(4)
    assert [party.known for party in card.parties] == ["2 fraud, 4 normal", "2 fraud, 8 normal"]
    assert [party.known for party in own.parties] == ["1 fraud, 4 normal", "1 fraud, 8 normal"]
    assert card.parties[0].events == (("2024-06-11", "normal"), ("2024-06-09", "fraud"), ("2024-06-07", "normal"))
    assert not card.picture, "two neighbours need no picture"


def test_reasons_are_the_three_strongest_and_labels_those_that_count():
    card = card_of(39)
    assert card.reasons == (
        "The connection to n40 (known cases there: 2 of 6 rare) raises P(fraud) from 0.30 to 0.70.",
        "amount (39; usual 1.95 to 37.05) raises P(fraud) strongly.",
        "city (Oslo; usual Oslo (75%)) lowers P(fraud) clearly.",
    )
    assert card.labels == (("n4", "fraud", "+20.0"),)


@pytest.mark.parametrize(("node", "first"), [(7, "n6"), (4, "n0"), (39, "n18")])
def test_similar_cases_are_the_nearest_known_ones_but_the_case_itself(node, first):
    card = card_of(node)
    assert card.similar[0][0] == first
    assert f"n{node}" not in dict(card.similar)
    assert card.alike.startswith("1 of the 9" if node == 4 else "2 of the 10")


def test_a_transaction_names_its_parties_with_their_earlier_transactions_in_both_tables():
    """The next batch's card paid twice in the run's table, once as fraud, and once before in its own."""
    day = pd.Timestamp("2026-01-01 10:00:00")
    run = {"card": ["c1", "c1", "c2", "c2"], "shop": ["s1", "s2", "s1", "s2"], "amount": [5.0, 1234.5, 7.0, 8.0]}
    new = {"card": ["c1", "c9", "c1"], "shop": ["s2", None, "s1"], "amount": [1.0, 2.0, 3.0]}
    first = pd.DataFrame(run | {"when": day + pd.to_timedelta(range(4), unit="D"), "fraud": [0, 1, 0, 1]})
    later = pd.DataFrame(new | {"when": day + pd.to_timedelta([9, 10, 11], unit="D")})
    how = {"time": "when", "entities": ["card", "shop"], "amount": "amount"}
    trained = Transactions(first, label="fraud", **how).graph()
    graph = Transactions(later, **how).graph(need_label=False)
    labelled, names = torch.arange(4), ("0", "1")
    known = ExplanationContext(
        graph, labelled, trained.y, names, None, 0.5, own=trained, own_places=-torch.ones(3).long()
    )
    why = Explanation(2, "2", 0.7, 0.5, 0.85, None, (), None, (), (), 0.0, "1")
    card = Cards(known).of(why)
    fields = {field.name: field.value for field in card.fields}
    assert fields["when"] == "2026-01-12 10:00:00"
    assert (fields["card"], fields["shop"]) == ("c1", "s1")
    assert [(party.name, party.known) for party in card.parties] == [
        ("card c1", "1 class 1, 1 class 0, 1 not known"),
        ("shop s1", "2 class 0"),
    ]
    assert card.parties[0].events == (
        ("2026-01-10 10:00:00, 1.00", ""),
        ("2026-01-02 10:00:00, 1,234.50", "class 1"),
        ("2026-01-01 10:00:00, 5.00", "class 0"),
    )
    positive = Cards(dataclasses.replace(known, positive_only=True)).of(why)
    assert positive.parties[0].known == "1 class 1, 2 not known", "what is no known fraud has no label"
    alone = Cards(known).of(dataclasses.replace(why, node=1))
    assert {field.name: field.value for field in alone.fields}["shop"] == "missing"
    assert [(party.name, party.known) for party in alone.parties] == [("card c9", "no earlier transaction")]
