"""What is fuzzed: each target makes one case from a generator; anything but a refusal or a sound result is a finding.

A case may end in a refusal of the kind its target names, or in a result that `sound` accepts. All else is raised.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from calirare.cli.tables import TableColumns, load_table
from calirare.graph import Graph, Relation
from calirare.run import Settings, read_yaml
from calirare_lab.published.pickles import unpickle
from calirare_multilabel import MultilabelData, load_multilabel, multilabel_report
from calirare_multilabel.cli import read_table
from tests.fuzz.mutate import archive, some, spoilt_arrays, spoilt_bytes, spoilt_text, with_spoilt_member
from tests.fuzz.oracles import finite, refused, sound
from tests.helpers.tasks import rare_task


class Files:
    """Targets on files in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        task = rare_task()
        task.to_npz(folder / "task.npz")
        self.npz = (folder / "task.npz").read_bytes()
        with np.load(folder / "task.npz") as stored:
            self.arrays = dict(stored)
        task.to_folder(folder / "graph")
        self.files = {path.name: path.read_bytes() for path in (folder / "graph").iterdir()}
        rng = np.random.default_rng(0)
        self.labels = {
            "x": rng.normal(size=(12, 3)),
            "y": rng.integers(0, 2, (12, 2)),
            "train_idx": np.arange(8),
            "test_idx": np.arange(8, 12),
            "indptr": np.arange(13) // 2 * 2,
            "indices": np.arange(12) ^ 1,
        }
        self.nodes = "node,a,b,label,split\n" + "".join(
            f"n{i},{i},.5,{i % 2},{('train', 'val', 'test')[i // 2 % 3]}\n" for i in range(8)
        )
        self.yaml = (
            "method: jackknife\nseed: 3\ntraining: {epochs: 5, hidden: 8, weight_decay: 5e-4}\n"
            "loo: {method: alo, steps: 2}\ncalibration:\n  target: population\ndata: {dataset: digits, minority: 1}\n"
        )
        self.pickle = bytes.fromhex("80027d7100284b005d7101284b014b02654b015d71024b0061752e")

    def _graph(self, content: bytes) -> bool:
        (self.folder / "g.npz").write_bytes(content)
        return refused(lambda: sound(Graph.read(self.folder / "g.npz")[0]))

    def fuzz_npz_bytes(self, rng: np.random.Generator) -> bool:
        return self._graph(spoilt_bytes(rng, self.npz))

    def fuzz_npz_headers(self, rng: np.random.Generator) -> bool:
        return self._graph(with_spoilt_member(rng, archive(self.arrays)))

    def fuzz_npz_arrays(self, rng: np.random.Generator) -> bool:
        return self._graph(archive(spoilt_arrays(rng, self.arrays)))

    def fuzz_folder(self, rng: np.random.Generator) -> bool:
        name = some(rng, sorted(self.files))
        path = self.folder / "graph" / name
        path.write_bytes(spoilt_bytes(rng, self.files[name]))
        try:
            return refused(lambda: sound(Graph.read(self.folder / "graph")[0]))
        finally:
            path.write_bytes(self.files[name])

    def fuzz_tables(self, rng: np.random.Generator) -> bool:
        """Tables of nodes and edges, with types and times of edges."""
        nodes = self.nodes.replace("node,", some(rng, ("node,", "account,")), 1)
        edges = "source,target,weight,kind,day\n" + "".join(
            f"n{i},n{(i + 1) % 8},2,{'pays' if i % 2 else 'owes'},2024-01-0{i + 1}\n" for i in range(8)
        )
        nodes, edges = (spoilt_text(rng, nodes), edges) if rng.random() < 0.5 else (nodes, spoilt_text(rng, edges))
        for file, text in (("nodes.csv", nodes), ("edges.csv", edges)):
            (self.folder / file).write_text(text, encoding="utf-8", newline="")
        words = some(rng, ({}, {"relation": "kind"}, {"directed": True}, {"time": "day", "as_of": "2024-01-04"}))

        def read() -> None:
            graph = Graph.from_edges(self.folder / "edges.csv", None, symmetrize=True, **words)
            sound(graph)
            for relation in graph.relations:
                relation.out.check_structure()
                relation.into.check_structure()

        return refused(read)

    def fuzz_multilabel(self, rng: np.random.Generator) -> bool:
        (self.folder / "m.npz").write_bytes(archive(spoilt_arrays(rng, self.labels)))

        def read() -> None:
            data: MultilabelData = load_multilabel(self.folder / "m.npz")
            assert bool(torch.isfinite(data.x).all())
            if data.adjacency is not None:
                data.adjacency.check_structure()

        return refused(read)

    def fuzz_settings(self, rng: np.random.Generator) -> bool:
        text = spoilt_text(rng, self.yaml)
        (self.folder / "c.yaml").write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return refused(lambda: Settings.from_mapping(read_yaml(self.folder / "c.yaml"), "config c.yaml"))

    def fuzz_pickle(self, rng: np.random.Generator) -> bool:
        return refused(lambda: unpickle(spoilt_bytes(rng, self.pickle), Path("p")))

    def fuzz_relations(self, rng: np.random.Generator) -> bool:
        if not hasattr(self, "typed"):
            task = rare_task(n_nodes=30, split=None)
            out = Relation.of("pays", task.adjacency)
            dataclasses.replace(task, relations=(out,)).to_npz(self.folder / "typed.npz")
            with np.load(self.folder / "typed.npz") as stored:
                self.typed = dict(stored)
        return self._graph(archive(spoilt_arrays(rng, self.typed)))

    def fuzz_predictions(self, rng: np.random.Generator) -> bool:
        """A table that `calirare evaluate` reads."""
        text = "y,p,q,w,split\n" + "".join(f"{i % 2},.{i},.{9 - i},1,test\n" for i in range(1, 9))
        (self.folder / "t.csv").write_text(spoilt_text(rng, text), encoding="utf-8", newline="")
        where, weights = some(rng, (None, "split=test", "y=1")), some(rng, (None, "w"))
        columns = TableColumns(("y",), some(rng, (("p",), ("p", "q"))), (), weights, where, "1")

        def read() -> None:
            table = load_table(self.folder / "t.csv", columns)
            assert bool(((table.probabilities >= 0) & (table.probabilities <= 1)).all())
            assert set(np.unique(table.labels)) <= {0, 1}

        return refused(read)

    def fuzz_label_tables(self, rng: np.random.Generator) -> bool:
        """A table that `calirare multilabel evaluate` reads."""
        text = "y_a,p_a,y_b,p_b,split\n" + "".join(f"{i % 2},.{i},{i // 2 % 2},.{9 - i},test\n" for i in range(1, 9))
        (self.folder / "m.csv").write_text(spoilt_text(rng, text), encoding="utf-8", newline="")

        def read() -> None:
            scores, labels, _ = read_table(self.folder / "m.csv", some(rng, (None, "test")))
            finite(multilabel_report(labels, scores, floors=0))

        return refused(read, (ValueError,))
