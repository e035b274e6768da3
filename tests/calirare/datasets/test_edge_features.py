"""What edges carry, as features of their nodes, against a table grouped by pandas."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph
from tests.helpers.command import succeed

NODES = pd.DataFrame({"node": list("pqrst"), "age": [1, 2, 3, 4, 5], "y": ["ok", "fraud", "ok", "ok", "fraud"]})
EDGES = pd.DataFrame(
    {
        "source": list("pppqr"),
        "target": list("qqrrs"),
        "amount": [2.0, 4.0, np.nan, 1.0, 8.0],
        "when": pd.to_datetime(
            ["2026-01-01", "2026-01-03", "2026-01-04", "2026-01-11", "2026-01-10T12:00"], format="ISO8601"
        ),
        "kind": list("aabba"),
    }
)


def features(graph):
    return pd.DataFrame(graph.x.numpy(), index=graph.node_names, columns=graph.feature_names)


def by_pandas(sides, values):
    long = pd.concat([pd.DataFrame({"node": EDGES[side], "value": values}) for side in sides])
    return long.groupby("node").value.agg(["mean", "sum", "min", "max", "count"]).reindex(NODES.node)


@pytest.mark.parametrize("directed", [False, True])
def test_numbers_and_times_are_summed_up_by_node(directed):
    graph = Graph.from_tables(EDGES, NODES, "y", edge_columns=("amount", "when"), directed=directed)
    x = features(graph)
    assert x.age.tolist() == [1, 2, 3, 4, 5]
    days = (EDGES.when.max() - EDGES.when) / pd.Timedelta(days=1)
    sides = {"out_": ["source"], "in_": ["target"]} if directed else {"": ["source", "target"]}
    for side, ends in sides.items():
        amount, when = by_pandas(ends, EDGES.amount), by_pandas(ends, days)
        for measure in ("mean", "sum", "min", "max"):
            want = amount[measure].where(amount["count"] > 0)
            np.testing.assert_allclose(x[f"amount_{side}{measure}"], want, rtol=1e-6)
        np.testing.assert_allclose(x[f"when_{side}last"], when["min"], rtol=1e-6)
        np.testing.assert_allclose(x[f"when_{side}first"], when["max"], rtol=1e-6)
    assert x.shape[1] == 1 + 6 * len(sides)
    assert x.loc["t"].isna().sum() == 6 * len(sides)  # a node without edges


def test_files_read_by_blocks_whole_and_as_text_agree(tmp_path):
    want = features(Graph.from_tables(EDGES, NODES, "y", edge_columns=("amount", "when")))
    NODES.to_csv(tmp_path / "nodes.csv", index=False)
    EDGES.to_csv(tmp_path / "edges.csv", index=False)
    EDGES.to_parquet(tmp_path / "edges.parquet")
    NODES.to_parquet(tmp_path / "nodes.parquet")
    for suffix in (".csv", ".parquet"):
        graph = Graph.from_edges(tmp_path / f"edges{suffix}", None, "y", edge_columns=("amount", "when"))
        pd.testing.assert_frame_equal(features(graph), want)


def test_times_of_one_minute_are_told_apart():
    seconds = np.array([0.0, 7.0, 31.5, 45.0, 59.0])
    edges = EDGES.assign(when=pd.Timestamp("2026-01-01T12:00") + pd.to_timedelta(seconds, "s"))
    for told in (edges, edges.assign(when=edges.when.astype(str))):
        graph = Graph.from_tables(told, NODES, "y", edge_columns=("when",))
        last = features(graph).loc[list("pqrs"), "when_last"] * 86400
        np.testing.assert_allclose(last, 59 - seconds[[2, 3, 4, 4]], rtol=1e-6)
        assert not any("rounded" in note for note in graph.notes)


def test_edges_after_a_time_carry_nothing():
    graph = Graph.from_tables(EDGES, NODES, "y", edge_columns=("amount", "when"), time="when", as_of="2026-01-03")
    x = features(graph)
    assert x.loc["p", ["amount_sum", "when_last", "when_first"]].tolist() == [6, 0, 2]
    assert np.isnan(x.loc["s", "amount_sum"])


def test_columns_that_are_not_read_are_named():
    graph = Graph.from_tables(EDGES, NODES, "y", edge_columns=("amount",), relation="kind")
    assert [note for note in graph.notes if "not read" in note] == [
        "edges: not read of the table: 'when' (--edge-columns sums columns up as features of the nodes)"
    ]
    assert not any("not read" in note for note in Graph.from_tables(EDGES[["source", "target"]], NODES, "y").notes)


@pytest.mark.parametrize(
    ("edges", "names", "message"),
    [
        (EDGES, ("kind",), "column 'kind' of the edges must hold numbers or dates to be summed up, got text"),
        (EDGES, ("sum",), "no column 'sum'; the columns are source, target, amount, when, kind: .*--edge-columns"),
        (EDGES.assign(amount=9e18), ("amount",), "features must be from .*, got .* at node p, column 'amount_sum'"),
        (EDGES.assign(amount=np.inf), ("amount",), "column 'amount' holds inf"),
    ],
)
def test_what_cannot_be_summed_up_is_refused(edges, names, message):
    with pytest.raises(InputError, match=message):
        Graph.from_tables(edges, NODES, "y", edge_columns=names)


def test_text_of_another_entry_in_every_row_is_no_name_of_nodes():
    edges = EDGES.assign(tx=[f"t{i}" for i in range(len(EDGES))])
    with pytest.raises(InputError) as error:
        Graph.from_tables(edges, NODES, "y", edge_columns=("tx",))
    assert "column 'tx' of the edges must hold numbers or dates" in str(error.value)
    assert "--id" not in str(error.value)


def test_times_that_no_counted_edge_has_are_missing():
    edges = EDGES.assign(day=range(len(EDGES)), when=EDGES.when.where(EDGES.index > 1))
    x = features(Graph.from_tables(edges, NODES, "y", edge_columns=("when",), time="day", as_of="1"))
    assert x[["when_last", "when_first"]].isna().to_numpy().all()


def test_a_name_that_is_there_is_refused():
    with pytest.raises(InputError, match="two features would be called 'amount_sum': rename one column"):
        Graph.from_tables(EDGES, NODES.assign(amount_sum=1.0), "y", edge_columns=("amount",))
    with pytest.raises(InputError, match="edge_columns must be left out for the data set digits"):
        load_dataset("digits", edge_columns=("amount",))


def month(folder, seed, fraud):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, len(fraud), (10 * len(fraud), 2))
    names = np.array([f"a{i}" for i in range(len(fraud))])
    edges = pd.DataFrame(names[ends], columns=["source", "target"])
    edges["amount"] = np.exp(rng.normal(size=len(ends)) + 2.5 * fraud[ends[:, 0]])
    nodes = pd.DataFrame({"node": names, "noise": rng.normal(size=len(fraud)), "y": np.where(fraud, "fraud", "ok")})
    folder.mkdir()
    edges.to_csv(folder / "edges.csv", index=False)
    nodes.to_csv(folder / "nodes.csv", index=False)
    return folder / "edges.csv"


@pytest.mark.slow
def test_a_run_finds_what_only_the_edges_tell_also_next_month(tmp_path):
    fraud = np.random.default_rng(0).random(400) < 0.1
    first, second = (month(tmp_path / str(seed), seed, fraud) for seed in (1, 2))
    words = ("--rare-class", "fraud", "--model", "hops", "--epochs", "30", "--directed", "--edge-columns", "amount")
    succeed("train", "--dataset", first, *words, "--out", tmp_path / "run")
    succeed("predict", "--run", tmp_path / "run", "--graph", second, "--out", tmp_path / "p.csv")
    assert average_precision_score(fraud, pd.read_csv(tmp_path / "p.csv").p_rare) > 0.8, "at random it is 0.1"


def test_a_time_without_an_end_is_told_to_do_nothing():
    said = "it leaves no edge out by itself"
    assert said in str(Graph.from_tables(EDGES, NODES, "y", time="when").notes)
    assert said not in str(Graph.from_tables(EDGES, NODES, "y", time="when", as_of="2026-01-03").notes)
