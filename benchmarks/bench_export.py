"""A run's query beside the run: largest difference of P(rare), alerts that differ, seconds, on every data set.

    python benchmarks/bench_export.py [--sets otc sichuan cora ..] [--models gcn trees hops] [--seconds 600] [--again]
        [--engines duckdb sqlite postgres spark]
    python benchmarks/bench_export.py --page        # the table of docs/export.md from export.json, nothing is run

Each cell trains as `draw` of detection/tasks.py labels ("scarce": 100 labels, 20 of them rare), writes tables into the
engine and runs the query, in a process of its own for each engine that is ended after --seconds; that, too, is
recorded, and so is what the export says where it cannot write a run. `renumbered` is the run against itself:
predictions of the same graph with its nodes in another order. `make test-engines` brings PostgreSQL and Spark.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import record
import torch
from detection.sets import SETS
from detection.tasks import draw
from readme_tables import between

import calirare
from calirare._util.errors import InputError
from calirare.export import DIALECTS, Names, query_of, without_labels
from calirare.graph import Graph, csr_of_scipy
from calirare.run import Scorer
from calirare_ext import Csr

sys.path.append(str(record.ROOT))
from tests.helpers import postgres, spark

NAME, PAGE = "export", record.ROOT / "docs" / "export.md"
ENGINES, MODELS, PARITY = ("duckdb", "sqlite", "postgres", "spark"), ("gcn", "hops", "trees", "forest", "auto"), 1e-5
FOLDS, EPOCHS = 2, 100


def tables(graph: Graph) -> dict[str, pd.DataFrame]:
    """Returns a graph as tables with numbers for names."""
    a = graph.adjacency
    rows, cols = a.rows().numpy(), a.indices.numpy()
    once = rows <= cols
    edges = pd.DataFrame({"source": rows[once], "target": cols[once], "weight": a.values.double().numpy()[once]})
    every, x = np.arange(graph.n_nodes), graph.x
    if isinstance(x, Csr):
        words = {"node": x.rows().numpy(), "feature": x.indices.numpy(), "value": x.values.double().numpy()}
        return {"nodes": pd.DataFrame({"node": every}), "edges": edges, "features": pd.DataFrame(words)}
    names = graph.feature_names or tuple(f"feature {i}" for i in range(graph.n_features))
    nodes = pd.DataFrame(x.double().numpy(), columns=list(names))
    for column in graph.columns:
        if column.kind == "categorical":
            nodes[column.name] = [None if np.isnan(v) else column.categories[int(v)] for v in nodes[column.name]]
        elif column.kind == "date":
            days = pd.to_timedelta(nodes[column.name], "D") + pd.Timestamp("2000-01-01")
            nodes[column.name] = days.dt.strftime("%Y-%m-%d %H:%M:%S")
    return {"nodes": nodes.assign(node=every), "edges": edges}


def in_duckdb(query: str, frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, float]:
    """Returns nodes with P(rare) and alert, and seconds of the query."""
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("SET threads = 1")
        for name, frame in frames.items():
            engine.register("frame", frame)
            engine.execute(f'CREATE TABLE "{name}" AS SELECT * FROM frame')
        started = time.perf_counter()
        found = engine.execute(query).fetchall()
        return _sorted(found), time.perf_counter() - started


def in_sqlite(query: str, frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, float]:
    """Returns the same of SQLite."""
    engine = sqlite3.connect(":memory:")
    for name, frame in frames.items():
        frame.to_sql(name, engine, index=False)
    started = time.perf_counter()
    found = engine.execute(query).fetchall()
    return _sorted(found), time.perf_counter() - started


def in_postgres(query: str, frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, float]:
    """Returns the same of a PostgreSQL server that is started and ended here."""
    with postgres.server() as folder:
        postgres.put(folder, frames)
        started = time.perf_counter()
        found = postgres.asked(folder, query)
        seconds = time.perf_counter() - started
    return _sorted(found.to_numpy().tolist()), seconds


def in_spark(query: str, frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, float]:
    """Returns the same of Spark, on one thread of a new session that reads Parquet files."""
    with spark.session() as session, tempfile.TemporaryDirectory() as folder:
        for name, frame in frames.items():
            frame.to_parquet(f"{folder}/{name}.parquet")
            session.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)
        started = time.perf_counter()
        found = session.sql(query).collect()
        return _sorted(found), time.perf_counter() - started


def _sorted(found: list[Any]) -> pd.DataFrame:
    table = pd.DataFrame(found, columns=["node", "p_rare", "alert", "threshold"])
    return table.sort_values("node", ignore_index=True)


RUN: dict[str, Callable[[str, dict[str, pd.DataFrame]], tuple[pd.DataFrame, float]]] = {
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
    "postgres": in_postgres,
    "spark": in_spark,
}


def renumbered(scorer: Scorer, graph: Graph, p: np.ndarray) -> np.ndarray:
    """Returns how far P(rare) of each node is from p on the graph with its nodes in another order."""
    import scipy.sparse as sp

    order = np.random.default_rng(0).permutation(graph.n_nodes)

    def moved(a: Csr, columns: bool) -> Csr:
        parts = (a.values.numpy(), a.indices.numpy(), a.indptr.numpy())
        matrix = sp.csr_array(parts, shape=(a.n_rows, a.n_cols))[order]
        matrix = matrix[:, order].tocsr() if columns else matrix
        matrix.has_sorted_indices = False  # indexing does not tell
        matrix.sort_indices()
        return csr_of_scipy(matrix)

    x = moved(graph.x, False) if isinstance(graph.x, Csr) else graph.x[torch.from_numpy(order)]
    how = {"feature_names": graph.feature_names, "columns": graph.columns}
    other = Graph(moved(graph.adjacency, True), x, feature_normalisation=graph.feature_normalisation, **how)
    return np.abs(scorer.probabilities(scorer.prepared(other)).rare.numpy() - p[order])


def facts(error: np.ndarray) -> dict[str, Any]:
    """Returns the largest difference and how many are beyond what is promised."""
    return {"largest": float(error.max()), "beyond": int((error > PARITY).sum())}


def trained(name: str, model: str) -> tuple[Graph, Scorer]:
    """Returns a data set with a hundred labels, and what an export holds of a run on it."""
    graph = draw(SETS[name](), "scarce", 0).seen
    outcome = calirare.train(graph, model=model, folds=FOLDS, epochs=EPOCHS)
    return graph, without_labels(Scorer.of(outcome))[0]


def query(scorer: Scorer, engine: str, frames: dict[str, pd.DataFrame]) -> str:
    """Returns the query of a run on `tables`."""
    return query_of(
        scorer, DIALECTS[engine], Names(features="features" if "features" in frames else None, weight="weight")
    )


def cell(name: str, model: str, engine: str, seconds: float, out: Any) -> None:
    """Puts what one data set, detector and engine give within so many seconds into a queue, part by part."""
    torch.set_num_threads(1)
    end = time.monotonic() + seconds
    graph, scorer = trained(name, model)
    frames, said = tables(graph), scorer.probabilities(scorer.prepared(graph))
    p = said.rare.numpy()
    out.put({"nodes": graph.n_nodes, "edges": graph.adjacency.nnz, "features": graph.n_features})
    out.put({"renumbered": facts(renumbered(scorer, graph, p))})
    try:
        text = query(scorer, engine, frames)
    except InputError as refused:
        out.put({engine: {"refused": str(refused)}})
        return
    os.environ["PGOPTIONS"] = f"-c statement_timeout={1000 * (end - time.monotonic()):.0f}"  # ended with its server
    try:
        found, took = RUN[engine](text, frames)
    except Exception as failed:  # by whatever an engine raises
        out.put({engine: {"failed": str(failed)[:300]}})
        return
    error = np.abs(found.p_rare.to_numpy(dtype=float) - p)
    alerts = int((found.alert.to_numpy() != said.alert.long().numpy()).sum())
    out.put({engine: facts(error) | {"alerts": alerts, "seconds": round(took, 2), "kb": len(text) // 1000}})


def measured(name: str, model: str, engine: str, seconds: float) -> dict[str, Any]:
    """Returns one cell of one engine; an engine that did not end in time says after how many seconds it was ended."""
    out: Any = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=cell, args=(name, model, engine, seconds, out))
    process.start()
    process.join(seconds + 2)
    found: dict[str, Any] = {engine: {"ended_after": seconds} if process.is_alive() else None}
    process.kill()
    while not out.empty():
        found |= out.get()
    return found


def page(results: dict[str, Any]) -> list[str]:
    """Returns the lines of the page's table."""
    lines = [
        "Largest difference of P(rare) from `calirare predict`, in brackets the nodes beyond 1e-5 where there are any,",
        "and seconds of the query on one thread; the last column is `predict` against itself with the nodes in",
        "another order:",
        "",
        "| graph | nodes | detector | DuckDB | s | SQLite | s | PostgreSQL | s | Spark | s | renumbered |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for key, found in results.items():
        if isinstance(found, str):  # version of an engine
            continue
        name, model = key.split("/")
        cells = " | ".join(_cells(found.get(engine)) for engine in ENGINES)
        nodes = f"{found['nodes']:,}" if "nodes" in found else "-"
        lines.append(f"| {name} | {nodes} | {model} | {cells} | {_said(found.get('renumbered'))} |")
    lines += [
        "",
        "-: not tried. > s: ended after so long. Too long: refused, beyond 64 MB of text. `python",
        "benchmarks/bench_export.py`, benchmarks/results/export.json.",
    ]
    return lines


def _cells(found: dict[str, Any] | None) -> str:
    """Returns difference and seconds of one engine."""
    if not found:
        return "- | -"
    if "refused" in found:
        return "too long | -"
    if "failed" in found:
        return "failed | -"
    if "ended_after" in found:
        return f"- | > {found['ended_after']:.0f}"
    return f"{_said(found)} | {found['seconds']:.1f}"


def _said(found: dict[str, Any] | None) -> str:
    if not found:
        return "-"
    return f"{found['largest']:.0e}" + (f" ({found['beyond']})" if found["beyond"] else "")


def main() -> None:
    """Measures, cell by cell; or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    path = record.RESULTS / f"{NAME}.json"
    results = json.loads(path.read_text())["results"] if path.is_file() else {}
    if asked.page:
        PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), NAME, page(results)), encoding="utf-8")
        return
    versions = {"duckdb": lambda: version("duckdb"), "sqlite": lambda: sqlite3.sqlite_version}
    versions |= {"postgres": postgres.release, "spark": lambda: version("pyspark")}
    results |= {engine: versions[engine]() for engine in asked.engines}
    for model in asked.models:
        for name in asked.sets:
            for engine in asked.engines:
                known = results.get(f"{name}/{model}", {})
                if engine in known and not asked.again:
                    continue
                results[f"{name}/{model}"] = known | measured(name, model, engine, asked.seconds)
                record.write(NAME, results)
                print(name, model, engine, results[f"{name}/{model}"].get(engine), flush=True)


if __name__ == "__main__":
    main()
