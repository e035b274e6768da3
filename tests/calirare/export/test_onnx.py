"""An exported model says in onnxruntime what the run says."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.calibration import CALIBRATORS
from calirare.export import onnx_of
from calirare.export.maps import log_odds
from calirare.export.onnx.columns import mapped
from calirare.export.onnx.ranks import normal_scores
from calirare.export.onnx.sketch import DOUBLE, SINGLE, Sketch
from calirare.features import FeatureMap
from calirare.graph import Column, Graph
from calirare.models import GcnTraining, HopsTraining, fold_network, mixture_of
from calirare.run import Data, Scorer
from calirare_ext import Csr, __version__
from tests.calirare.export.test_parts import fitted_maps
from tests.helpers.command import rough_runs
from tests.helpers.warehouse import tables, written

onnx = pytest.importorskip("onnx", reason="onnx is not installed: models are not written")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: models are not run")

PARITY = 1e-5  # of P(rare): what is promised
QUICK = {"epochs": 30, "folds": 2}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "export.md"
HOSTILE = {"amount": "am\"o'unt; DROP", "spread": "x", "gaps": "v1\n\\", "kind": "édge_index ✓"}


def session_of(model):
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model, options)


def answers(model, x, edge_index, **more):
    """Returns p_rare, p_raw and alert."""
    return session_of(model).run(["p_rare", "p_raw", "alert"], {"x": x, "edge_index": edge_index, **more})


def arrays(graph):
    """Returns the inputs of a graph whose features are numbers."""
    a, x = graph.adjacency, graph.x
    out = {"x": (x.to_dense() if isinstance(x, Csr) else x).numpy()}
    out["edge_index"] = torch.stack([a.rows().long(), a.indices.long()]).numpy()
    return out | ({"edge_weight": a.values.numpy()} if bool((a.values != 1).any()) else {})


def error(scorer, graph, **changes):
    """Returns the largest difference of P(rare) from what the run says, and asserts equal alerts and raw numbers."""
    p_rare, p_raw, alert = answers(onnx_of(scorer), **arrays(graph) | changes)
    said = scorer.probabilities(scorer.prepared(graph))
    assert (alert == said.alert.numpy()).all()
    assert np.abs(p_raw - said.raw.numpy()).max() <= PARITY
    return float(np.abs(p_rare - said.rare.numpy()).max())


def learnt(graph, model):
    with rough_runs():
        return Scorer.of(calirare.train(graph, model=model, **QUICK))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A stranger's graph with names that are hostile, and a scorer of a graph convolution on it."""
    nodes, edges = tables()
    folder = tmp_path_factory.mktemp("tables")
    path = written(folder, nodes.rename(columns=HOSTILE), edges)
    graph = calirare.load_dataset(str(path), features=str(folder / "nodes.csv"))
    return graph, learnt(graph, "gcn")


def with_network(strangers, detector):
    """Returns the scorer with another detector, trained for a few steps, and its graph."""
    graph, scorer = strangers
    prepared = scorer.prepared(graph)
    return dataclasses.replace(scorer, fit=detector.fit(prepared, scorer.fit.nodes)), graph


NETWORKS = {
    **{f"gcn of {n} layers": GcnTraining(epochs=20, n_layers=n) for n in (1, 2, 3)},
    "gcn of 2 hops": GcnTraining(epochs=20, hops=2),
    "gcn that widens": GcnTraining(epochs=20, hidden=40),
    **{f"columns of {k} hops": HopsTraining(epochs=20, hops=k) for k in (0, 1, 2)},
    "linear": HopsTraining(epochs=20, hops=1, n_layers=1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_says_what_the_run_says(strangers, name):
    assert error(*with_network(strangers, NETWORKS[name])) <= PARITY


def test_networks_in_double_precision_too(strangers):
    scorer, graph = with_network(strangers, NETWORKS["gcn of 2 layers"])
    fit = scorer.fit.as_dtype(scorer.prepared(graph), torch.float64)
    assert error(dataclasses.replace(scorer, fit=fit), graph) <= PARITY


def test_a_run_of_hop_columns(strangers):
    graph, _ = strangers
    assert error(learnt(graph, "hops"), graph) <= PARITY


def test_an_average_of_networks(strangers):
    graph, scorer = strangers
    prepared, fits = scorer.prepared(graph), {}
    for name, detector in (("gcn", NETWORKS["gcn of 2 layers"]), ("hops", NETWORKS["columns of 1 hops"])):
        fits[name] = fold_network(detector, prepared, detector.fit(prepared, scorer.fit.nodes), 2)
    fit = mixture_of(fits, scorer.fit.sample_weights)
    assert error(dataclasses.replace(scorer, fit=fit), graph) <= PARITY


@pytest.mark.parametrize("name", ["gcn of 2 layers", "columns of 2 hops"])
class TestGraphs:
    @pytest.fixture
    def scorer(self, strangers, name):
        return with_network(strangers, NETWORKS[name])[0]

    @staticmethod
    def graph(like, n, pairs, weights=None):
        """Returns a graph of n nodes that have features as another's have."""
        ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        return of_numbers(like.x[torch.arange(n) % like.n_nodes], ends, weights, like.columns)

    @pytest.mark.parametrize("n", [1, 2, 9, 200])
    def test_of_other_sizes_some_nodes_isolated(self, scorer, strangers, n):
        pairs = np.random.default_rng(n).integers(0, max(n // 2, 1), (n, 2))
        pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], 1), axis=0)
        assert error(scorer, self.graph(strangers[0], n, pairs)) <= PARITY

    def test_without_an_edge(self, scorer, strangers):
        assert error(scorer, self.graph(strangers[0], 4, [])) <= PARITY

    def test_without_a_node(self, scorer, strangers):
        nothing = {"x": np.zeros((0, strangers[0].n_features), np.float32), "edge_index": np.zeros((2, 0), np.int64)}
        assert [out.shape for out in answers(onnx_of(scorer), **nothing)] == [(0,)] * 3

    def test_with_weights(self, scorer, strangers):
        pairs = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 5), (0, 6), (0, 7)]
        weights = np.random.default_rng(0).uniform(0.1, 4, len(pairs)).astype(np.float32)
        graph = self.graph(strangers[0], 9, pairs, weights)
        assert error(dataclasses.replace(scorer, weighted=True), graph) <= PARITY
        assert "edge_weight" not in {each.name for each in session_of(onnx_of(scorer)).get_inputs()}

    def test_in_any_order_of_edges(self, scorer, strangers):
        graph = strangers[0]
        edges = arrays(graph)["edge_index"]
        mixed = edges[:, np.random.default_rng(0).permutation(edges.shape[1])]
        assert error(scorer, graph, edge_index=mixed) <= PARITY

    def test_loops_are_left_out_unless_the_run_kept_them(self, scorer, strangers):
        graph = strangers[0]
        edges = arrays(graph)["edge_index"]
        looped = np.hstack([edges, np.array([[0, 7], [0, 7]])])
        assert error(scorer, graph, edge_index=looped) <= PARITY
        settings = dataclasses.replace(scorer.settings, data=Data(self_loops="keep"))
        keeping = dataclasses.replace(scorer, settings=settings)
        adjacency = Csr.from_coo(*torch.from_numpy(looped), None, (graph.n_nodes, graph.n_nodes))
        assert error(keeping, dataclasses.replace(graph, adjacency=adjacency)) <= PARITY


def test_a_value_that_may_not_be_missing_is_seen_where_it_reaches(strangers):
    scorer, _ = with_network(strangers, NETWORKS["gcn of 1 layers"])
    maps = [
        dataclasses.replace(m, fill=np.full_like(m.fill, np.nan)) if hasattr(m, "fill") else m
        for m in scorer.features.maps
    ]
    scorer = dataclasses.replace(scorer, features=dataclasses.replace(scorer.features, maps=tuple(maps)))
    x = strangers[0].x[:5].numpy().copy()
    x[:] = np.nan_to_num(x)
    x[0, [column.name for column in scorer.features.inputs].index("x")] = np.nan
    p, _, alert = answers(onnx_of(scorer), x, np.array([[0, 1, 3, 4], [1, 0, 4, 3]]))
    assert np.isnan(p).tolist() == [True, True, False, False, False]
    assert not alert[:2].any()


@pytest.mark.parametrize("n", [70, 25])
def test_the_page_scores_tables(strangers, tmp_path, monkeypatch, n):
    """The code of docs/export.md, on the run's tables and on others with fewer nodes, and a kind that is new."""
    _, scorer = strangers
    nodes, edges = tables(n, seed=0 if n == 70 else 5)
    nodes = nodes.rename(columns=HOSTILE)
    if n != 70:
        nodes.loc[:3, HOSTILE["kind"]] = ["new", None, "new", "two words"]
    path = written(tmp_path, nodes, edges)
    (tmp_path / "score.onnx").write_bytes(onnx_of(scorer))
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found: dict = {}
    exec(compile(code, "export.md", "exec"), found)
    graph = calirare.load_dataset(str(path), features=str(tmp_path / "nodes.csv"))
    said = scorer.probabilities(scorer.prepared(graph))
    order = [list(graph.node_names).index(name) for name in nodes.node]
    assert np.abs(found["p_rare"] - said.rare.numpy()[order]).max() <= PARITY
    assert (found["alert"] == said.alert.numpy()[order]).all()


def test_what_a_model_says_of_itself(strangers):
    graph, scorer = strangers
    session = session_of(onnx_of(scorer, "accounts"))
    assert [each.name for each in session.get_inputs()] == ["x", "edge_index"]
    assert [each.name for each in session.get_outputs()] == ["p_rare", "p_raw", "alert"]
    told = session.get_modelmeta()
    assert told.producer_name == "calirare"
    assert "days since the start of the year 2000" in told.description or told.description == ""
    facts = told.custom_metadata_map
    assert (facts["run"], facts["calirare"]) == ("accounts", __version__)
    assert json.loads(facts["classes"]) == list(graph.class_names)
    assert float(facts["threshold"]) == scorer.threshold
    columns = json.loads(facts["columns"])
    assert [each["name"] for each in columns] == [column.name for column in scorer.features.inputs]
    assert set(HOSTILE.values()) <= {each["name"] for each in columns}
    assert [each["categories"] for each in columns if each["kind"] == "categorical"] == [
        list(column.categories) for column in scorer.features.inputs if column.kind == "categorical"
    ]


def of_numbers(x, pairs, weights=None, columns=()):
    """Returns a graph with features that may be missing."""
    pairs = torch.from_numpy(np.vstack([pairs, pairs[:, ::-1]]))
    weights = None if weights is None else torch.from_numpy(np.r_[weights, weights])
    edges = Csr.from_coo(pairs[:, 0], pairs[:, 1], weights, (len(x), len(x)))
    columns = columns or tuple(Column(f"feature {i}") for i in range(x.shape[1]))
    return Graph(edges, x, feature_names=tuple(column.name for column in columns), columns=columns)


def computed(write, x):
    """Returns what a part of a model makes of numbers [n, d]."""
    sketch = Sketch()
    given = sketch.given("x", SINGLE if x.dtype == np.float32 else DOUBLE, ["n", x.shape[1]])
    sketch.give("y", write(given), ["n", "m"])
    return session_of(sketch.model({"calirare": ""}, "a part")).run(None, {"x": x})[0]


def skewed(n=300):
    """Returns numbers of every look: skewed with ties, mostly 0, two values, constant, far from 0, gaps."""
    rng = np.random.default_rng(0)
    mostly = np.where(rng.random(n) < 0.7, 0, rng.lognormal(3, 2, n))
    gaps = np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(0, 3, n))
    columns = [rng.integers(1, 9, n) ** 6, mostly, rng.random(n) < 0.1, np.full(n, 4.0), 1e6 + rng.normal(size=n), gaps]
    return torch.from_numpy(np.stack(columns, 1).astype(np.float32))


@pytest.mark.parametrize("how", ["auto", "rank", "standardize"])
def test_a_map_of_numbers_in_a_model_is_the_map(how):
    x = skewed()
    edges = np.array([[0, 1], [1, 2]])
    features = FeatureMap.fit(of_numbers(x, edges), how)
    other = torch.cat([x, 1.5 * x.flip(0), -x])
    expected = features.transform(of_numbers(other, edges)).x.numpy()
    found = computed(lambda given: mapped(given, features), other.numpy())
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= 2.0**-22 * np.abs(expected).max()


@pytest.mark.parametrize("how", ["none", "row", "tfidf", "svd"])
def test_a_map_of_words_in_a_model_is_the_map(how):
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(150, 140, generator=generator) < 0.1).float() * (1 + torch.rand(150, 140, generator=generator))
    x[3] = 0
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), Csr.from_dense(x), symmetrize=True)
    features = FeatureMap.fit(graph, how)
    made = features.transform(graph).x
    expected = (made.to_dense() if isinstance(made, Csr) else made).numpy()
    assert np.abs(computed(lambda given: mapped(given, features), x.numpy()) - expected).max() <= 2.0**-22


@pytest.mark.parametrize(("name", "fitted"), list(fitted_maps()))
def test_a_calibration_map_in_a_model_is_the_map(name, fitted):
    d = np.linspace(-40, 40, 401)
    z = torch.stack([torch.zeros(401), torch.from_numpy(d)], 1).double()
    found = computed(lambda given: log_odds(fitted, given).probability(), d[:, None])[:, 0]
    assert np.abs(found - fitted.transform(z)[:, 1].numpy()).max() < 1e-12, name


def test_normal_scores_are_normal_quantiles():
    from scipy.special import ndtri

    p = np.r_[5e-4, np.linspace(0.001, 0.999, 999), 0.9995]
    assert np.abs(computed(normal_scores, p[:, None])[:, 0] - ndtri(p)).max() < 1e-13


class TestRefusals:
    def refused(self, scorer, words, **changes):
        with pytest.raises(InputError, match=words):
            onnx_of(dataclasses.replace(scorer, **changes))

    def test_trees_and_what_holds_them(self, strangers):
        graph, scorer = strangers
        self.refused(scorer, "trees, as --model auto.*export it with --sql", fit=learnt(graph, "trees").fit)

    def test_another_detector(self, strangers):
        self.refused(strangers[1], "only runs of --model gcn and hops", fit=object())

    def test_directions_and_several_classes(self, strangers):
        scorer = strangers[1]
        directed = dataclasses.replace(scorer.settings, data=Data(directed=True))
        self.refused(scorer, "directions or types, which no export holds", settings=directed)
        self.refused(scorer, "must have two classes, got 3", class_names=("a", "b", "c"))

    def test_relations_of_a_graph_given_in_python(self, strangers):
        scorer, _ = with_network(strangers, NETWORKS["columns of 1 hops"])
        columns = scorer.fit.columns
        wider = dataclasses.replace(columns.scaled, n_inputs=columns.scaled.n_inputs + 2)
        fit = dataclasses.replace(scorer.fit, columns=dataclasses.replace(columns, scaled=wider))
        self.refused(scorer, "directions or types", fit=fit)

    def test_other_maps(self, strangers):
        z, y = torch.linspace(-2, 2, 40), torch.arange(40) % 2
        isotonic = CALIBRATORS["isotonic"]("population").fit(z, y)
        self.refused(strangers[1], "IsotonicCalibrator.*--map prior", calibrators={"population": isotonic})

    def test_more_than_a_file_holds(self, strangers, monkeypatch):
        monkeypatch.setattr("calirare.export.onnx.sketch.MOST_BYTES", 1000)
        self.refused(strangers[1], "ONNX holds up to 2")


@pytest.mark.slow
def test_cora():
    try:
        graph = calirare.load_dataset("cora")
    except InputError:
        pytest.skip("cora is not here: set CALIRARE_DATA")
    scorer = learnt(graph, "gcn")
    assert error(scorer, graph) <= PARITY
    assert error(*with_network((graph, scorer), NETWORKS["columns of 2 hops"])) <= PARITY
