"""Tables of transactions: every source, what is found and reported, all faults at once, and a run on them."""

from __future__ import annotations

import re
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import calirare
from calirare import InputError, Transactions
from calirare.datasets import synthetic_transactions
from calirare.run import read_yaml


def payments(n=60, seed=0):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"payment_id": [f"P{k}" for k in range(n)]})
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(draw.integers(0, 40 * 86_400, n), unit="s")
    frame["card"] = draw.choice(["007", "7", "c3"], n)
    frame["merchant"] = draw.choice(["m1", "m2"], n)
    frame["amount"] = draw.integers(1, 900, n) / 4
    frame["channel"] = draw.choice(["web", "pos"], n)
    frame["is_fraud"] = (np.arange(n) % 7 == 0).astype(int)
    return frame


@pytest.mark.slow
def test_every_source_gives_the_same_graph(tmp_path):
    frame = payments()
    frame.to_csv(tmp_path / "pay.csv", index=False)
    frame.to_parquet(tmp_path / "pay.parquet")
    (tmp_path / "parts").mkdir()
    frame[:20].to_parquet(tmp_path / "parts" / "a.parquet", index=False)
    frame[20:].to_parquet(tmp_path / "parts" / "b.parquet", index=False)
    with duckdb.connect(str(tmp_path / "bank.duckdb")) as bank:
        bank.execute("CREATE TABLE pay AS SELECT * FROM frame")
    sources = [tmp_path / name for name in ("pay.csv", "pay.parquet", "parts")]
    sources += [f"{tmp_path}/bank.duckdb::pay", pa.Table.from_pandas(frame)]
    berlin = frame.assign(when=frame.when.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"))
    graph = Transactions(frame).graph()
    for source in (*sources, berlin):
        other = Transactions(source).graph()
        assert other.feature_names == graph.feature_names
        assert torch.equal(other.x.nan_to_num(-7), graph.x.nan_to_num(-7))
        assert torch.equal(other.y, graph.y)
        assert torch.equal(other.time, graph.time)
        assert (other.node_names == graph.node_names).all()
    assert graph.n_edges == 0
    assert list(graph.node_names[:2]) == ["P0", "P1"]
    assert graph.class_names == ("0", "1")


def test_what_is_found_is_reported_and_stays():
    frame = payments()
    found = Transactions(frame).resolved()
    assert (found.time, found.label, found.amount, found.id) == ("when", "is_fraud", "amount", "payment_id")
    assert found.entities == ("card", "merchant")
    assert (found.batch, found.label_delay, found.windows) == ("1d", "1d", ("6h", "1d", "7d"))
    told = " ".join(found.notes)
    words = ("'when'", "'is_fraud'", "'amount'", "'payment_id'", "'card' and 'merchant'", "--label-delay", "--batch")
    for word in words:
        assert word in told
    assert Transactions(frame[:30], **found.chosen()).resolved().chosen() == found.chosen()


def test_two_roles_of_the_same_accounts_and_labels_in_words_are_found():
    frame = pd.DataFrame({"step": range(40), "nameOrig": list("abcd") * 10, "nameDest": list("bcda") * 10})
    frame["fraud"] = ["yes" if k % 9 == 0 else "no" for k in range(38)] + ["?", ""]
    table = Transactions(frame, unknown="?")
    found = table.resolved()
    assert found.shared == ("nameOrig", "nameDest")
    assert found.time == "step"
    graph = table.graph()
    assert graph.class_names == ("no", "yes")
    assert graph.y[-3:].tolist() == [0, -1, -1]
    assert "nameDest as nameOrig: known rate of fraud" in graph.feature_names


def test_all_faults_come_in_one_message():
    frame = payments(12).astype({"amount": object})
    with pytest.raises(InputError) as error:
        Transactions(frame, time="day", label="scam", entities=["card", "shop"]).graph()
    for word in ("3 faults", "'day'", "'scam'", "'shop'", "--time", "--label", "--entities", "payment_id, when"):
        assert word in str(error.value)
    with pytest.raises(InputError, match=r"two or more parties.* found: none.*--entities A,B"):
        Transactions(frame[["when", "amount", "is_fraud"]]).graph()
    with pytest.raises(InputError, match=r"several columns hold dates, .*opened.*closed.*--time COLUMN"):
        Transactions(payments(9).rename(columns={"when": "opened"}).eval("closed = opened")).graph()
    frame = payments(3).assign(when=["2026-01-01", "soon", "2026-01-02"], amount=[1.0, np.inf, 2.0], is_fraud=[0, 1, 2])
    with pytest.raises(InputError, match=r"(?s)3 faults.*column 'when'.*column 'amount'.*column 'is_fraud' has 3"):
        Transactions(frame, "when", "is_fraud", ["card", "merchant"], "amount").graph()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("P60,2026-02-01,7,m1,3,web,0,8,9", r"a cell for each of the 7 columns of the header, got 9 cells in line 62"),
        (
            "P7,2026-02-01,7,m1,3,web,0",
            r"'payment_id' must name each .* but 'P7' is in line 9 and line 62",
        ),
        ("P60,soon,7,m1,3,web,0", r"column 'when' has none, the first is line 62: 'soon'"),
        ("P60,2026-02-01,7,m1,,web,0", r"column 'amount' holds none, the first is line 62"),
    ],
)
def test_a_wrong_line_of_a_text_is_named(row, words, tmp_path):
    (tmp_path / "pay.csv").write_text(payments().to_csv(index=False) + row + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        Transactions(tmp_path / "pay.csv", "when", "is_fraud", ["card", "merchant"], "amount").graph()


def test_a_european_table_is_read_as_it_is(tmp_path):
    frame, plain = payments(), payments().assign(when=payments().when.dt.floor("min"))
    words = frame.rename(columns={"amount": "value_eur"}).assign(is_fraud=np.where(frame.is_fraud == 1, "yes", "no"))
    words = words.assign(
        when=frame.when.dt.strftime("%d.%m.%Y %H:%M"), tip=frame.amount, code="1,204", value_date="05.01.2026"
    )
    words.to_csv(tmp_path / "pay.csv", index=False, sep=";", decimal=",")
    graph, want = Transactions(tmp_path / "pay.csv").graph(), Transactions(plain).graph()
    assert graph.class_names == ("no", "yes")
    assert torch.equal(graph.y, want.y)
    assert torch.equal(graph.time, want.time)
    kinds = {column.name: column.kind for column in graph.columns}
    assert (kinds["tip"], kinds["code"], kinds["value_date"]) == ("numeric", "categorical", "date")
    assert torch.equal(graph.x[:, graph.feature_names.index("tip")], want.x[:, want.feature_names.index("amount")])
    assert graph.keys["value_eur"].tolist() == frame.amount.tolist()


@pytest.mark.parametrize("name", ["cell", "code", "row", "tick", "label", "source", "card: x", 'a"b', "it's"])
def test_any_name_of_a_column_will_do(name):
    frame = payments().assign(**{name: np.arange(60) % 3})
    frame[name + "s"] = frame[name].map(str)
    assert {name, name + "s"} <= set(
        Transactions(frame, "when", "is_fraud", ["card", "merchant"]).graph().feature_names
    )
    with pytest.raises(InputError, match="no column may be called 'rowid'"):
        Transactions(frame.rename(columns={name: "rowid"})).graph()


def test_a_table_without_names_of_columns_is_refused(tmp_path):
    payments().assign(**dict.fromkeys("pqrstu", 1.5)).to_csv(tmp_path / "pay.csv", index=False, header=False)
    with pytest.raises(InputError, match="write a line with the names of the columns"):
        Transactions(tmp_path / "pay.csv").graph()


def test_ends_of_lines_may_be_mixed(tmp_path):
    lines = payments().to_csv(index=False).splitlines()
    (tmp_path / "pay.csv").write_bytes("\r\n".join([*lines[:30], "\n".join(lines[30:])]).encode() + b"\r")
    assert torch.equal(Transactions(tmp_path / "pay.csv").graph().time, Transactions(payments()).graph().time)


def test_zones_and_parties_without_names_are_reported():
    zoned = payments(20).assign(device=None)
    zoned["when"] = zoned["when"].dt.tz_localize("Europe/Madrid")
    graph = Transactions(zoned, entities=["card", "merchant", "device"]).graph()
    told = " ".join(graph.notes)
    assert "no row has a device" in told
    assert "in UTC" in told
    assert str(graph.keys["when"][0]) == str(zoned["when"][0].tz_convert("UTC"))
    assert "in UTC" not in " ".join(Transactions(payments(20)).graph().notes)


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        ("when", ["2026-01-01", "soon", None], r"needs a time.*2 rows of column 'when'.*first is row 1: 'soon'"),
        ("amount", [-1.0, np.inf, np.nan], r"be numbers, but 2 rows of column 'amount'.*first is row 1.*--amount none"),
        ("amount", ["1", "2", "dear"], r"must be numbers, but column 'amount' holds 'dear' in row 2.*--amount"),
        ("is_fraud", ["0", "1", "2"], r"two values, but column 'is_fraud' has 3: 0, 1, 2.*--unknown"),
    ],
)
def test_cells_that_do_not_fit_are_named(column, cells, words):
    frame = payments(3).astype({column: object})
    frame[column] = cells
    with pytest.raises(InputError, match=words):
        Transactions(frame, "when", "is_fraud", ["card", "merchant"], "amount").graph()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": "week"}, r"batch must be a length of time, 12h, 1d, 7d.*got 'week'"),
        ({"batch": "0d"}, r"batch must be longer than 0"),
        ({"label_delay": "7"}, r"label_delay must be a length of time"),
        ({"known_at": "once"}, r"known_at must be batch or transaction, got 'once'"),
        ({"rare_class": "2"}, r"no class '2' of column 'is_fraud', the classes are 0, 1"),
    ],
)
def test_wrong_settings_are_named(options, words):
    with pytest.raises(InputError, match=words):
        Transactions(payments(20), **options).graph()


def test_a_table_of_edges_with_labels_points_to_transactions(tmp_path):
    path = tmp_path / "pay.csv"
    payments(20).to_csv(path, index=False)
    with pytest.raises(
        InputError, match=r"(?s)needs a table of nodes.*column 'is_fraud' seems to label.*--transactions"
    ):
        calirare.load_dataset(path)


@pytest.mark.slow
def test_a_run_on_transactions(tmp_path):
    frame, _ = synthetic_transactions(1000, 4, "rings")
    frame.to_csv(tmp_path / "pay.csv", index=False)
    path = str(tmp_path / "pay.csv")
    how = {"entities": ("card", "merchant"), "known_at": "transaction", "test_from": str(frame.when[800])}
    outcome = calirare.train(transactions=path, **how)
    assert outcome.choice is not None
    assert outcome.choice.graph_gain is None
    assert {row.name for row in outcome.choice.rows} == {"trees", "forest", "linear", "hops"}
    assert "GRAPH" not in outcome.summary()
    assert 'rare class "1" of column is_fraud' in " ".join(outcome.summary().split())
    words = [outcome.summary(verbose=True), str(outcome.verdict), outcome.metrics["decision"]["sentence"]]
    assert not [word for text in words for word in re.findall(r"\bnodes?\b", text)]
    split, time = outcome.graph.split, outcome.graph.time
    assert time[split.train].max() <= time[split.val].min() <= time[split.val].max() <= time[split.test].min()
    assert split.test.tolist() == list(range(800, 1000))
    for member in outcome.fit.members:  # each fold is a span of time, the newest first
        nodes, fold = member.fitted.nodes, member.fitted.fold
        spans = [time[nodes[(fold == k) & (outcome.graph.y[nodes] == 0)]] for k in range(5)]
        assert all(later.min() >= earlier.max() for later, earlier in pairwise(spans)), member.name
    outcome.save(tmp_path / "run")
    data = read_yaml(tmp_path / "run" / "config.yaml")["data"]
    assert (data["time"], data["label"], data["amount"], data["id"]) == ("when", "is_fraud", "amount", "transaction")
    assert data["windows"] == ["1d", "7d", "30d"]
    saved = calirare.load(tmp_path / "run")
    assert torch.equal(saved.graph().x.nan_to_num(-7), outcome.graph.x.nan_to_num(-7))
    later = frame.when >= frame.when[600]  # what happens from there on changes no score before
    changed = frame.assign(amount=frame.amount.where(~later, 5e4), card=frame.card.where(~later, frame.card[0]))
    scores = []
    for table in (frame, changed):
        graph = saved.settings.data.transactions_of(table).graph(need_label=False)
        scores.append(outcome.fit.logits_of(outcome.features.transform(graph)))
    before = torch.from_numpy(~later.to_numpy())
    assert torch.equal(scores[0][before], scores[1][before])
    with pytest.raises(InputError, match=r"missing: add device, amount$"):
        saved.settings.data.transactions_of(frame.drop(columns=["device", "amount"]), frame).graph()
    assert "neighbour" not in outcome.next_labels(2).summary()
    notes = outcome.metrics["notes"]
    assert "note" in outcome.summary()
    assert "note" not in outcome.summary(printed=notes)
    assert not torch.equal(scores[0], scores[1])


@pytest.mark.parametrize(
    ("cells", "first"),
    [(["$1,204.50", "3", "-2.5"], 1204.5), (["1.204,50 €", "3", "-2,5"], 1204.5), (["EUR 12", "3", "-2"], 12.0)],
)
def test_amounts_written_for_people_are_numbers(cells, first):
    frame = pd.DataFrame({"pan": list("ababab"), "shop": list("xyxyxy"), "fraud": list("NYNNYN")})
    frame["booked"] = pd.date_range("2026-01-01", periods=6)
    frame["amount_eur"], frame["txn_ref"] = 2 * cells, [f"T{i}" for i in range(6)]
    found = Transactions(frame).resolved()
    assert (found.entities, found.amount, found.id) == (("pan", "shop"), "amount_eur", "txn_ref")
    assert Transactions(frame).graph().x[:3, 0].tolist() == [first, 3.0, float(cells[2].replace(",", "."))]
    frame["amount_eur"] = "1,204"  # a thousand, or a fraction
    with pytest.raises(InputError, match="amounts must be numbers, but column 'amount_eur' holds '1,204' in row 0"):
        Transactions(frame, amount="amount_eur").graph()
