"""Targets of saved runs: damaged folders, other graphs to score, explain and recalibrate on, and pages of odd words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import calirare
from calirare import InputError
from calirare._util.run_files import seal
from calirare.explain import text_of
from calirare.graph import Column, Graph
from calirare.page import html_of, slices_of, variables_of
from calirare.run import SavedRun, Scored, recalibrated
from calirare_ext import Csr
from tests.fuzz.mutate import WORDS, odd_numbers, odd_text, some, spoilt_bytes, spoilt_tree
from tests.fuzz.oracles import finite, refused
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

NODES = 120
NAMES = (
    *WORDS,
    "<script>x</script>",
    "{{ 7 * 7 }}",
    '"><img src=x onerror=y>',
    "$\\frac{",
    "a\u202eb",
    "[/red]",
    "=1+1",
)


class Runs:
    """Targets on one small run of a network."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.graph = folder / "run", rare_task(n_nodes=NODES)
        with rough_runs():
            calirare.train(self.graph, epochs=20, folds=0, model="gcn").save(self.folder)
        self.files = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.saved = calirare.load(self.folder)
        self.explainer = self.saved.explainer(self.graph)

    def fuzz_run(self, rng: np.random.Generator) -> bool:
        """A file damaged byte by byte: what is read is refused, or is as it was written."""
        name = some(rng, sorted(self.files))
        content = spoilt_bytes(rng, self.files[name])
        (self.folder / name).write_bytes(content)

        def read() -> None:
            found = calirare.load(self.folder)
            found.to_frame()
            found.summary()
            assert content == self.files[name] or name not in READ, f"{name} was changed, and taken"

        try:
            return refused(read)
        finally:
            (self.folder / name).write_bytes(self.files[name])

    def fuzz_run_facts(self, rng: np.random.Generator) -> bool:
        """Measures with another value, listed as if the run had written them: by another release, or by hand."""
        tree = spoilt_tree(rng, json.loads(self.files["metrics.json"]))
        (self.folder / "metrics.json").write_text(json.dumps(tree, allow_nan=True), encoding="utf-8")
        try:
            seal(self.folder)
            return refused(some(rng, (self.saved.summary, lambda: page(self.saved))))
        finally:
            for name in ("metrics.json", "files.json"):
                (self.folder / name).write_bytes(self.files[name])

    def fuzz_score(self, rng: np.random.Generator) -> bool:
        """Another graph: p is a probability at every node, and all that is said is finite."""
        how: dict[str, Any] = {"prevalence": some(rng, (0.01, (0.05, 0.2), "estimate"))} if rng.random() < 0.3 else {}
        return refused(lambda: scored(self.saved.score(self._other(rng), quiet, **how)), (InputError, TypeError))

    def fuzz_recalibrate(self, rng: np.random.Generator) -> bool:
        def work() -> None:
            found = recalibrated(self.saved, self._other(rng), quiet)
            assert found.rare is not None
            finite((found.losses, found.rare.thresholds))
            assert found.summary().replace("\n", "").isprintable()

        return refused(work, (InputError, TypeError))

    def fuzz_explain(self, rng: np.random.Generator) -> bool:
        nodes: Any = [some(rng, (*map(str, range(NODES)), *WORDS, "1e3", "-1", "5"))] * int(rng.integers(1, 3))
        if rng.random() < 0.5:
            nodes = torch.from_numpy(rng.integers(-2, NODES + 2, 2))

        def work() -> None:
            found = self.saved.explain(nodes, explainer=self.explainer, labels=int(rng.integers(1, 5)))
            json.dumps(found.to_mapping(), allow_nan=False)
            assert text_of(found).replace("\n", "").isprintable()

        return refused(work)

    def fuzz_slices(self, rng: np.random.Generator) -> bool:
        """Columns of every kind with odd values and names."""
        x = odd_numbers(rng, rng.integers(0, 3, (NODES, 2)).astype("f4"), native=True)
        kinds = [some(rng, ("numeric", "categorical", "date")) for _ in range(2)]
        columns = tuple(
            Column(odd_text(rng, f"c{i}"), kind, ("a", some(rng, NAMES), "b") if kind == "categorical" else ())
            for i, kind in enumerate(kinds)
        )

        def work() -> None:
            graph = dataclasses.replace(self.graph, x=torch.as_tensor(x), columns=columns, feature_names=())
            nodes, p = np.arange(NODES), rng.random(NODES)
            for each in slices_of(variables_of(graph, p), p, p > 0.5, nodes):
                finite((each.mean_p, each.observed, each.noise, each.chance))
                assert 1 <= each.nodes <= NODES

        return refused(work, (InputError, ValueError, TypeError))

    def _other(self, rng: np.random.Generator) -> Graph:
        """Returns a graph that is a few changes away from the run's."""
        n = int(some(rng, (1, 2, 3, 40)))
        edges = np.triu(rng.random((n, n)) < some(rng, (0.0, 0.1, 0.9)), 1).astype("f4")
        weight = some(rng, (1.0, 1.0, 1e-40, 1e18, 3e38))
        x = rng.normal(size=(n, 6)).astype("f4")
        x = odd_numbers(rng, x, native=True) if rng.random() < 0.6 else x * some(rng, (0, 1, 1e18, 1e-40))
        y = torch.from_numpy(rng.integers(-1, 2, n))
        names = np.array([f"n{i}{some(rng, NAMES)}" for i in range(n)])
        features = Csr.from_dense(torch.as_tensor(x)) if rng.random() < 0.1 and x.ndim == 2 else torch.as_tensor(x)
        adjacency = Csr.from_dense(torch.from_numpy((edges + edges.T) * weight))
        named = {"node_names": names} if rng.random() < 0.3 else {}
        return Graph(adjacency=adjacency, x=features, y=y, class_names=self.graph.class_names, **named)


READ = ("model.safetensors", "config.yaml", "metrics.json", "predictions.csv")


def quiet(said: str) -> None:
    """Takes a note, which must be a printable line."""
    assert said.isprintable(), said


def page(saved: SavedRun) -> None:
    """Makes a page, in which nothing may run."""
    text = html_of(saved, None, "it is not looked for")
    assert text.count("<script") == 1, "our own"
    assert "<img src=x" not in text


def scored(found: Scored) -> None:
    """Checks a table of predictions."""
    table = found.table
    for name in ("p_rare", "p_balanced", "p_raw", "confidence", "threshold"):
        assert bool(table[name].between(0, 1.0001).all()), name
    ends = ["p_low", "p_high"] if "p_low" in table else ["lower", "upper"]
    finite(table[[*ends, "p_correct"]].to_numpy(dtype=float))
    assert found.summary().replace("\n", "").isprintable()
    json.dumps(found.to_mapping())
