"""What is fuzzed: each target makes one case from a generator; anything but a refusal or a sound result is a finding.

A case may end in a refusal of the kind its target names, or in a result that `sound` accepts. All else is raised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import calirare
from calirare import InputError
from calirare._util.errors import LONGEST
from calirare.datasets.pickles import unpickle
from calirare.graph import Graph
from calirare.multilabel import MultilabelData, load_multilabel
from calirare.run import Settings, read_yaml
from calirare_ext import Csr, LayerFactors, NodeGradients, propagate
from tests.fuzz.mutate import NUMBERS, archive, some, spoilt_arrays, spoilt_bytes, spoilt_text, with_spoilt_member
from tests.helpers.tasks import rare_task

Target = Callable[[np.random.Generator], bool]
FAULTS = 22  # lines of a message: a head, twenty faults, and how many more there are
SUFFIX = 40  # characters that a message may be longer than LONGEST: what stands where its middle was


def short(line: str) -> bool:
    """Returns whether a line of a message is printable and not too long."""
    return bool(line) and line.isprintable() and len(line) <= LONGEST + SUFFIX


def refused(work: Callable[[], object], kinds: tuple[type[Exception], ...] = (InputError,)) -> bool:
    """Returns whether the work was refused; a message must be printable lines of bounded length, one per fault."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    except kinds as error:
        lines = str(error).split("\n")
        if isinstance(error, InputError) and (len(lines) > FAULTS or not all(map(short, lines))):
            raise AssertionError(f"not short printable lines: {lines!r}") from error
        return True
    return False


def sound(graph: Graph) -> None:
    """Checks what everything that works on a graph rests on."""
    a, n = graph.adjacency, graph.n_nodes
    a.check_structure()
    dense = a.to_dense()
    assert bool((dense == dense.T).all())
    assert bool((a.values > 0).all())
    x = graph.x.values if isinstance(graph.x, Csr) else graph.x
    assert not bool((x.isinf() if graph.columns else ~x.isfinite()).any()), "only raw columns may have gaps"
    assert graph.x.shape[0] == n
    assert graph.y is None or (graph.y.shape == (n,) and -1 <= int(graph.y.min()) <= int(graph.y.max()) < n)
    assert len(set(graph.feature_names)) == len(graph.feature_names)


class Targets:
    """Every target, on files in a folder of its own."""

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
        self.edges = "source,target,weight\n" + "".join(f"n{i},n{(i + 1) % 8},2\n" for i in range(8))
        self.yaml = (
            "method: jackknife\nseed: 3\ntraining: {epochs: 5, hidden: 8, weight_decay: 5e-4}\n"
            "loo: {method: alo, steps: 2}\ncalibration:\n  target: population\ndata: {dataset: digits, minority: 1}\n"
        )
        self.pickle = bytes.fromhex("80027d7100284b005d7101284b014b02654b015d71024b0061752e")

    def all(self) -> dict[str, Target]:
        return {name.removeprefix("fuzz_"): getattr(self, name) for name in dir(self) if name.startswith("fuzz_")}

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
        texts = {"nodes.csv": self.nodes, "edges.csv": self.edges}
        name = some(rng, sorted(texts))
        texts[name] = spoilt_text(rng, texts[name])
        for file, text in texts.items():
            (self.folder / file).write_text(text, encoding="utf-8", newline="")
        return refused(lambda: sound(Graph.from_edges(self.folder / "edges.csv", None, symmetrize=True)))

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

    def fuzz_run(self, rng: np.random.Generator) -> bool:
        folder = self.folder / "run"
        if not folder.exists():
            calirare.train(rare_task(), preset="paper", epochs=2, folds=0).save(folder)
            self.run = {path.name: path.read_bytes() for path in folder.iterdir()}
        name = some(rng, ["model.safetensors", "config.yaml", "files.json"])
        (folder / name).write_bytes(spoilt_bytes(rng, self.run[name]))
        try:
            return refused(lambda: calirare.load(folder))
        finally:
            (folder / name).write_bytes(self.run[name])

    def fuzz_csr(self, rng: np.random.Generator) -> bool:
        indices = whole(rng, rng.integers(0, 5)).to(torch.int32)
        indptr = ends(rng, indices.numel())

        def multiply() -> None:
            n_cols = int(some(rng, NUMBERS if rng.random() < 0.2 else (3, 4, 5)))
            a = Csr(indptr, indices, torch.ones(indices.numel()), n_cols)
            if a.n_cols < 100:
                x = torch.randn(a.n_cols, 3, generator=torch.Generator().manual_seed(0))
                torch.testing.assert_close(propagate(a, x), a.to_dense() @ x)

        return refused(multiply, (ValueError,))

    def fuzz_factors(self, rng: np.random.Generator) -> bool:
        nodes = whole(rng, rng.integers(0, 4)).to(torch.int32)
        entry_ptr = ends(rng, nodes.numel())
        inputs, delta = torch.ones(4, 2), torch.ones(int(some(rng, [nodes.numel(), 2])), 1, 3)

        def pull_back() -> None:
            assert bool(torch.isfinite(NodeGradients((LayerFactors(entry_ptr, nodes, delta, inputs),)).dense()).all())

        return refused(pull_back, (ValueError,))


def whole(rng: np.random.Generator, size: int) -> Tensor:
    """A vector of whole numbers that begins at 0 and is small more often than not."""
    values = [0, *(int(some(rng, NUMBERS if rng.random() < 0.2 else (0, 1, 2, 3))) for _ in range(int(size)))]
    return torch.tensor(sorted(values) if rng.random() < 0.7 else values, dtype=torch.int64)


def ends(rng: np.random.Generator, total: int) -> Tensor:
    """Ends of rows, which mostly rise from 0 to the number of entries."""
    values = whole(rng, rng.integers(1, 5))
    if rng.random() < 0.7:
        values[-1] = total
    return values
