"""The tables of a run on transactions, and new transactions with the history that the run knows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare import InputError, Transactions
from calirare._util.amounts import count_of
from calirare.datasets import synthetic_transactions
from calirare.page import ReviewSession, Verdicts
from calirare.page.content import decision_rows
from tests.helpers.command import assert_refused, call, rough_runs, succeed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frames():
    frame, _ = synthetic_transactions(1500, 3)
    frame["when"] = frame["when"].dt.floor("h")  # some are made at one time
    later = frame.when >= "2025-06-01"
    return frame[~later], frame[later]


@pytest.fixture(scope="module")
def run(frames, tmp_path_factory):
    folder = tmp_path_factory.mktemp("transactions")
    frames[0].to_csv(folder / "old.csv", index=False)
    frames[1].drop(columns="is_fraud").to_csv(folder / "new.csv", index=False)
    known = {"label_delay": "3d", "known_at": "transaction"}
    outcome = calirare.train(Transactions(str(folder / "old.csv"), **known), model="trees")
    with rough_runs():
        outcome.save(folder / "run")
    return calirare.load(folder / "run")


@pytest.mark.parametrize("known_at", ["batch", "transaction"])
def test_columns_with_a_history_are_those_of_one_table(frames, known_at):
    old, new = frames
    how = {"known_at": known_at, "batch": "7d", "label_delay": "3d", "windows": ("1d", "7d", "30d")}
    unlabelled = new.drop(columns="is_fraud")
    whole = Transactions(pd.concat([old, new.assign(is_fraud=-1)]), **how).resolved()
    graph = Transactions(unlabelled, history=old, **whole.chosen()).graph(need_label=False)
    together = whole.graph()
    known = [k for k, name in enumerate(together.feature_names) if "known labels" in name]
    assert graph.feature_names == together.feature_names
    torch.testing.assert_close(graph.x, together.x[len(old) :], equal_nan=True)
    assert float(graph.x[:, known].max()) > 10
    assert list(graph.node_names) == list(new.transaction)
    assert list(graph.keys["merchant"]) == list(new.merchant)
    assert (graph.keys["when"] == new.when.to_numpy()).all()


@pytest.mark.parametrize("shared", [True, False])
def test_one_row_has_the_columns_that_a_table_gives_it(frames, shared):
    """Parties that are known, new, and named in both roles; from a table of numbers and texts."""
    frame = pd.concat(frames, ignore_index=True).assign(
        town=lambda rows: rows.card.str[-2:], share=lambda r: r.amount / 3
    )
    if shared:
        frame = frame.assign(card=frame.card.str[-2:], merchant=frame.merchant.str[-2:]).drop(
            columns=["device", "town"]
        )
    place, entities = 1400, ("card", "merchant") if shared else ("card", "merchant", "device")
    how = {"known_at": "transaction", "label_delay": "3d", "windows": ("1d", "7d", "30d"), "entities": entities}
    found = Transactions(frame[:place], shared=("card", "merchant") if shared else ("none",), **how).resolved()
    earlier, changed = found.one_row(), {"card": "x", "merchant": "x", "town": "y", "share": None}
    for cells in ({}, changed, {"amount": 0.0, "merchant": "x"}):
        row = frame.iloc[place].to_dict() | {name: cell for name, cell in cells.items() if name in frame}
        new = pd.DataFrame([row]).drop(columns="is_fraud").astype({"share": float})
        want = Transactions(new, history=frame[:place], **found.chosen()).graph(need_label=False)
        got = earlier.graph(row)
        assert got.columns == want.columns
        torch.testing.assert_close(got.x, want.x, equal_nan=True)
    with pytest.raises(InputError, match=r"batches of 7 days.*--known-at transaction"):
        Transactions(frame[:place], **how | {"known_at": "batch", "batch": "7d"}).one_row()


def test_tables_of_a_run_name_the_parties(run, frames):
    table, old = run.to_frame(), frames[0]
    assert list(table)[:7] == ["node", "when", "card", "merchant", "device", "amount", "rank"]
    for name in ("card", "merchant", "device"):
        assert list(table[name]) == list(old[name])
    assert np.allclose(table.amount, old.amount)
    assert (table.sort_values("rank").p_rare.diff().dropna() <= 0).all()
    parties = pd.read_csv(run.folder / "parties.csv").set_index(["party", "name"])
    for (party, name), row in parties.sample(25, random_state=0).iterrows():
        mine = table[table[party] == name]
        alerts = mine[mine.alert == 1].when
        assert row.transactions == len(mine)
        assert np.allclose(row.expected_fraud, mine.p_rare.sum(), rtol=1e-5)
        assert np.allclose(row.expected_amount, (mine.p_rare * mine.amount).sum(), rtol=1e-5)
        assert row.alerts == len(alerts)
        assert (row.first_alert if len(alerts) else "") == (min(alerts) if len(alerts) else "")


def test_the_interval_that_is_printed_is_the_verdict_s(run):
    metrics = json.loads((run.folder / "metrics.json").read_text())
    evidence, printed = metrics["verdict"]["evidence"], metrics["p_rare"]["population"]
    ends = printed["mean_p_over_share_lower"], printed["mean_p_over_share_upper"]
    assert (evidence["low"], evidence["high"]) == pytest.approx(ends, rel=1e-6), "both know which share a card"


def test_the_next_batch_is_scored_with_the_history_of_the_run(run, frames):
    source = str(run.folder.parent / "new.csv")
    told = succeed("predict", run.folder, "--transactions", source).out
    table = pd.read_csv(run.folder / "transactions_new.csv")
    assert list(table.node) == list(frames[1].transaction)
    assert np.allclose(table.expected_amount, table.p_rare * table.amount, rtol=1e-5)
    at_risk = table.expected_amount.sum(), table.expected_amount[table.alert == 1].sum()
    assert "amount at risk: {:,.0f}, {:,.0f} of it in alerts".format(*at_risk) in told
    again = run.predict(run.next_transactions(source, history=frames[0]), say=lambda note: None)
    assert np.allclose(table.p_rare, again.p_rare, rtol=1e-5)
    without = run.predict(run.next_transactions(source, history=frames[0].head(30)), say=lambda note: None)
    assert not np.allclose(table.p_rare, without.p_rare, rtol=0.1)
    assert pd.read_csv(run.folder / "transactions_new_parties.csv").transactions.sum() == 3 * len(table)


def test_alerts_have_their_reasons_in_the_table(run, tmp_path):
    source = str(run.folder.parent / "new.csv")
    how = ("--budget", 9, "--explain", 4, "--report", "--sort-by", "amount")
    succeed("predict", run.folder, "--transactions", source, *how, "--out", tmp_path / "june")
    table = pd.read_csv(tmp_path / "june/transactions.csv", keep_default_na=False).sort_values("rank")
    assert (table.reasons != "").tolist() == [True] * 4 + [False] * (len(table) - 4)
    assert table.alert.sum() == 9
    queue = pd.read_csv(tmp_path / "june/review.csv")
    assert queue.node.tolist() == table.sort_values("expected_amount", ascending=False).node.tolist()[: len(queue)]
    first = json.loads((tmp_path / "june/reasons.json").read_text())["explanations"][0]
    strongest = max(first["features"], key=lambda feature: feature["share"])
    assert table.reasons.iloc[0].startswith(f"{strongest['name']}: {strongest['value']}")
    assert np.isclose(calirare.load(tmp_path / "june").scorer.threshold, table.threshold.iloc[0])


def test_a_missed_transaction_costs_its_amount(run, frames, tmp_path):
    own, new, cost = run.folder.parent, run.folder.parent / "new.csv", ("--cost-fn", "amount", "--cost-fp", 5)
    how = ("--label-delay", "3d", "--known-at", "transaction", "--model", "trees", *cost)
    told = succeed("train", "--transactions", own / "old.csv", *how, "--out", tmp_path / "run").out
    saved = calirare.load(tmp_path / "run")
    table, said = saved.to_frame(), json.loads((tmp_path / "run/metrics.json").read_text())
    assert (table.alert == (table.p_rare * table.amount > 5 * (1 - table.p_rare))).all()
    assert 0 < table.alert.sum() != (table.p_rare > 0.5).sum()
    tested = table[table.split == "test"]
    lost = np.where(tested.alert, 5 * (tested.y == 0), tested.amount * (tested.y == 1)).sum()
    assert said["decision"]["test"]["cost"] == pytest.approx(lost, rel=1e-5)
    told = " ".join(told.split())
    assert "P(rare) >= 5 / (amount + 5); a missed rare transaction costs its amount" in told
    assert f"misses and false alarms cost {lost:,.0f}" in told
    assert ("cost observed on test transactions", count_of(lost), "") in decision_rows(said)
    one = frames[1].nlargest(1, "amount").drop(columns="is_fraud")
    alone, live = saved.predict(saved.next_transactions(one), say=lambda note: None), calirare.Scorer(saved)
    assert live.score(one.iloc[0].to_dict()).threshold.item() == pytest.approx(alone.threshold[0])
    succeed("predict", tmp_path / "run", "--transactions", new, "--max-alerts", 3, *cost, "--out", tmp_path / "june")
    june = pd.read_csv(tmp_path / "june/transactions.csv")
    gain = june.p_rare * june.amount - 5 * (1 - june.p_rare)
    assert set(gain.nlargest(3).index) == set(june.index[june.alert == 1])
    assert pd.read_csv(tmp_path / "june/review.csv").alert.tolist()[:4] == [1, 1, 1, 0]
    idle = call("predict", tmp_path / "run", "--transactions", new, *cost, "--budget", 5, "--out", tmp_path / "no")
    assert "--budget changes nothing with --decide cost" in assert_refused(idle)
    session = ReviewSession(calirare.load(tmp_path / "june"), Verdicts(tmp_path / "a.sqlite", "", ("0", "1")), None)
    alerts = {case.node for case in session.cases if case.more.startswith("an alert")}
    assert alerts == set(june.node[june.alert == 1])
    only = ("--scores-only", "--out", tmp_path / "scores.parquet")
    succeed("predict", tmp_path / "run", "--transactions", new, *only)
    assert pd.read_parquet(tmp_path / "scores.parquet").alert.sum() == (gain > 0).sum() > 3, "the run has no cap"
    refunds = frames[1].assign(amount=[-1.0, -2.0, *frames[1].amount[2:]])
    with pytest.raises(InputError, match=r"amounts of 2 of \d+ rows are negative or missing"):
        saved.predict(saved.next_transactions(refunds))


def test_labels_that_arrive_later_recalibrate(run, frames, tmp_path):
    labelled = frames[1].assign(is_fraud=(np.arange(len(frames[1])) % 9 == 0).astype(int))
    labelled.to_csv(tmp_path / "labelled.csv", index=False)
    to = ("--out", tmp_path / "again")
    told = succeed("recalibrate", run.folder, "--transactions", tmp_path / "labelled.csv", *to).out
    assert f"{len(labelled)} fresh labels, {labelled.is_fraud.sum()} of them rare" in told
    again, new = calirare.load(tmp_path / "again"), frames[1].drop(columns="is_fraud")
    one, other = (each.predict(each.next_transactions(new), say=lambda note: None) for each in (run, again))
    assert not np.allclose(one.p_rare, other.p_rare, rtol=1e-3)
    assert np.allclose(one.p_raw, other.p_raw)
    succeed("predict", run.folder, "--transactions", run.folder.parent / "new.csv", "--out", tmp_path / "new")
    told = succeed("recalibrate", tmp_path / "new", "--labels", tmp_path / "labelled.csv", "--out", tmp_path / "third")
    assert f"{len(labelled)} fresh labels" in told.out
    refused = call("update", run.folder, "--labels", tmp_path / "labelled.csv", "--out", tmp_path / "no")
    assert "calirare recalibrate --transactions" in assert_refused(refused)


def test_answers_to_scored_transactions_train_again(run, frames, tmp_path):
    old, new = frames
    succeed("predict", run.folder, "--transactions", run.folder.parent / "new.csv", "--out", tmp_path / "june")
    answers = new.assign(is_fraud=np.where(np.arange(len(new)) < 40, np.arange(len(new)) % 2, -1))
    told = answers.head(40).set_axis(["node", *new.columns[1:-1], "label"], axis=1)[["node", "label"]]
    told.to_csv(tmp_path / "answers.csv", index=False)
    update = ("update", tmp_path / "june", "--labels", tmp_path / "answers.csv", "--out", tmp_path / "july")
    succeed(*update)
    july, whole = calirare.load(tmp_path / "july"), run.settings.data.transactions_of(pd.concat([old, answers])).graph()
    graph = july.graph()
    torch.testing.assert_close(graph.x, whole.x, equal_nan=True)  # columns of later rows know the answers
    assert graph.y.tolist() == whole.y.tolist()
    assert torch.equal(july.split.test, run.split.test)
    assert torch.equal(july.split.val, run.split.val)
    assert set(july.split.train.tolist()) == {*run.split.train.tolist(), *range(len(old), len(old) + 40)}
    alone = (*update[:-1], tmp_path / "alone", "--calibrator-only")
    assert "pass --drawn random if the new labels are a random sample" in assert_refused(call(*alone))
    said = succeed(*alone, "--drawn", "random").out
    assert f"40 fresh labels and {run.split.val.numel()} labels of the run, " in said
    assert f"calirare predict {tmp_path / 'alone'} --transactions TABLE" in said
    (tmp_path / "answers.csv").write_text("node,label\nnobody,1\n")
    assert "calirare" not in assert_refused(call(*update, "--overwrite")).removeprefix("calirare: ")
    later = str(tmp_path / "july" / "history.parquet")
    assert july.history() == later
    again = "predict", tmp_path / "july", "--transactions", run.folder.parent / "new.csv", "--out", tmp_path / "again"
    assert f"{len(new)} transactions of {len(new)} are in the history already" in assert_refused(call(*again))


def test_a_history_that_changed_is_refused(run):
    old = run.folder.parent / "old.csv"
    text = old.read_text()
    old.write_text(text.replace("C000", "C001", 1))
    with pytest.raises(InputError, match=r"old\.csv is not the table .* \(--history\)"):
        run.next_transactions(str(run.folder.parent / "new.csv"))
    old.unlink()
    with pytest.raises(InputError, match=r"not there any more.*\(--history\)"):
        run.next_transactions(str(run.folder.parent / "new.csv"))
    old.write_text(text)


def test_one_transaction_is_scored_as_in_a_batch(run, frames):
    new = frames[1].drop(columns="is_fraud")
    scorer = calirare.Scorer(run)
    for place in (0, 1, len(new) - 1):
        row = new.iloc[[place]]
        alone = run.predict(run.next_transactions(row), say=lambda note: None)
        said = scorer.score(row.iloc[0].to_dict())
        assert np.allclose(said.rare, alone.p_rare, rtol=1e-6)
    stranger = {**row.iloc[0].to_dict(), "card": "nobody", "merchant": "nowhere", "device": 7}
    alone = run.predict(run.next_transactions(pd.DataFrame([stranger])), say=lambda note: None)
    assert np.allclose(scorer.score(stranger).rare, alone.p_rare, rtol=1e-6)
    with pytest.raises(InputError, match="earlier than the history"):
        scorer.score({**stranger, "when": "2025-01-01"})
    with pytest.raises(InputError, match="'amount' must hold a number, got nan"):
        scorer.score({**stranger, "amount": float("nan")})
    with pytest.raises(InputError, match="must have 'amount'"):
        scorer.score({**stranger, "amount": None})
