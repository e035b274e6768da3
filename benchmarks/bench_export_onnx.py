"""A run's ONNX model beside the run: largest difference of P(rare), alerts that differ, seconds.

    python benchmarks/bench_export_onnx.py [--sets cora otc ..] [--models gcn hops]
    python benchmarks/bench_export_onnx.py --page    # the table of docs/export.md from export_onnx.json, nothing is run

Each cell trains as in bench_export.py. `mixed` is the model with its edges in another order, `renumbered` the run
against itself with its nodes in another order.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import onnxruntime
import record
import torch
from bench_export import EPOCHS, FOLDS, PAGE, facts, renumbered
from detection.sets import SETS
from detection.tasks import draw
from readme_tables import between

import calirare
from calirare.export import onnx_of
from calirare.graph import Graph
from calirare.run import Scorer
from calirare_ext import Csr

NAME = "export_onnx"
REPEATS = 5


def arrays(graph: Graph, weighted: bool) -> dict[str, np.ndarray]:
    """Returns the inputs of a model, edges sorted."""
    a, x = graph.adjacency, graph.x
    given = {"x": (x.to_dense() if isinstance(x, Csr) else x).numpy()}
    given["edge_index"] = torch.stack([a.rows().long(), a.indices.long()]).numpy()
    return given | ({"edge_weight": a.values.numpy()} if weighted else {})


def mixed(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the same inputs with the edges in another order."""
    order = np.random.default_rng(0).permutation(given["edge_index"].shape[1])
    return given | {name: given[name][..., order] for name in given if name != "x"}


def cell(name: str, model: str) -> dict[str, Any]:
    """Returns what one data set and detector give."""
    graph = draw(SETS[name](), "scarce", 0).seen
    scorer = Scorer.of(calirare.train(graph, model=model, folds=FOLDS, epochs=EPOCHS))
    said = scorer.probabilities(scorer.prepared(graph))
    p, content = said.rare.numpy(), onnx_of(scorer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session, given, seconds = onnxruntime.InferenceSession(content, options), arrays(graph, scorer.weighted), []
    for _ in range(REPEATS):
        started = time.perf_counter()
        p_rare, alert = session.run(["p_rare", "alert"], given)
        seconds.append(time.perf_counter() - started)
    (other,) = session.run(["p_rare"], mixed(given))
    return {
        "nodes": graph.n_nodes,
        "edges": graph.adjacency.nnz,
        "features": graph.n_features,
        "model": facts(np.abs(p_rare - p)) | {"alerts": int((alert != said.alert.numpy()).sum())},
        "mixed": facts(np.abs(other - p)),
        "renumbered": facts(renumbered(scorer, graph, p)),
        "seconds": round(float(np.median(seconds)), 3),
        "kb": len(content) // 1000,
    }


def page(results: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's table."""
    lines = [
        "Largest difference of P(rare) from `calirare predict`, in brackets the nodes beyond 1e-5, and seconds",
        f"of onnxruntime {results['onnxruntime']} on one thread of a loaded machine; last, `predict` against itself",
        "with the nodes in another order:",
        "",
        "| graph | nodes | detector | model | edges mixed | alerts that differ | s | kB | `predict`, renumbered |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, model, found in ((*key.split("/"), found) for key, found in results.items() if "/" in key):
        said = {
            kind: f"{found[kind]['largest']:.0e} ({found[kind]['beyond']})" for kind in ("model", "mixed", "renumbered")
        }
        cells = [name, f"{found['nodes']:,}", model, said["model"], said["mixed"], found["model"]["alerts"]]
        cells += [f"{found['seconds']:.2f}", f"{found['kb']:,}", said["renumbered"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [*lines, "", f"`python benchmarks/bench_export_onnx.py`, benchmarks/results/{NAME}.json."]


def main() -> None:
    """Measures, cell by cell; or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["cora", "otc"])
    parser.add_argument("--models", nargs="+", default=["gcn", "hops"])
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    path = record.RESULTS / f"{NAME}.json"
    if asked.page:
        results = json.loads(path.read_text())["results"]
        PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), NAME, page(results)), encoding="utf-8")
        return
    torch.set_num_threads(1)
    results = {"onnxruntime": version("onnxruntime")}
    for model in asked.models:
        for name in asked.sets:
            results[f"{name}/{model}"] = cell(name, model)
            print(name, model, results[f"{name}/{model}"], flush=True)
    record.write(NAME, results)


if __name__ == "__main__":
    main()
