"""Seconds and memory to read a graph of ten million edges from tables where they live, by kind of name.

    python benchmarks/bench_tables.py [--edges 10000000] [--folder build/tables] [--names text UUIDs]
    python benchmarks/bench_tables.py --page     # the table of docs/research/data.md, nothing is run

One graph, a node for ten edges and 8 columns, is written as a folder of Parquet files and as a DuckDB database, its
nodes named by whole numbers, text or UUIDs. Every cell is a process of its own that imports, then reads the graph as
`calirare train` does (`Graph.from_tables` for Arrow tables that are in memory already). Memory is the process's most
above what it held after the imports; for Arrow tables in memory, above what it held with them. It is told beside the
memory of the arrays of the graph: both directions of every edge, columns, labels and names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import record

PAGE = record.ROOT / "docs" / "research" / "data.md"
BEGIN, END = "<!-- tables:begin -->", "<!-- tables:end -->"
NAMES, PLACES = ("whole numbers", "text", "UUIDs"), ("parquet", "duckdb", "arrow")
PARTS, COLUMNS, REPEATS = 8, 8, 3


def names(kind: str, n: int, rng: np.random.Generator) -> Any:
    """Returns the nodes' names as an Arrow array."""
    import pyarrow as pa

    numbers = rng.permutation(10 * n)[:n]
    if kind == "whole numbers":
        return pa.array(numbers)
    if kind == "text":
        return pa.array([f"account-{number:09d}" for number in numbers])
    return pa.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(n)])


def tables(kind: str, n_edges: int) -> tuple[Any, Any]:
    """Returns the tables of edges and nodes: ends drawn with hubs, a twentieth of the labels known."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    n = n_edges // 10
    ids = names(kind, n, rng)
    source, target = rng.integers(n, size=n_edges), (n * rng.random(n_edges) ** 1.5).astype(np.int64)
    edges = pa.table({"source": ids.take(pa.array(source)), "target": ids.take(pa.array(target))})
    columns = {f"x{i}": rng.standard_normal(n, dtype=np.float32) for i in range(COLUMNS)}
    known, rare = rng.random(n) < 0.05, rng.random(n) < 0.03
    label = pa.array(np.where(rare, "fraud", "other"), mask=~known)
    return edges, pa.table({"id": ids, **columns, "label": label})


def written(folder: Path, kind: str, n_edges: int) -> Path:
    """Writes the tables of one kind of name once: two folders of Parquet files and a database."""
    import duckdb
    import pyarrow.parquet as pq

    place = folder / f"{kind.replace(' ', '_')}_{n_edges}"
    if (place / "done").exists():
        return place
    edges, nodes = tables(kind, n_edges)
    for name, table in (("edges", edges), ("nodes", nodes)):
        (place / name).mkdir(parents=True, exist_ok=True)
        rows = -(-len(table) // PARTS)
        for part in range(PARTS):
            pq.write_table(table.slice(part * rows, rows), place / name / f"part-{part:05d}.parquet")
    with duckdb.connect(str(place / "graph.duckdb")) as engine:
        for name in ("edges", "nodes"):
            engine.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM read_parquet('{place / name}/*.parquet')")
    (place / "done").touch()
    return place


def one(place: Path, where: str) -> None:
    """Reads the graph in this process and prints what it took: the child of `measured`."""
    import pandas  # noqa: F401
    import psutil
    import pyarrow.parquet as pq

    from calirare.datasets import load_dataset
    from calirare.graph import Graph

    held = [pq.read_table(place / name) for name in ("edges", "nodes")] if where == "arrow" else []
    before, begun = psutil.Process().memory_info().rss, time.perf_counter()
    if where == "arrow":
        graph = Graph.from_tables(*held, "label")
    else:
        edges, nodes = (f"{place}/{'graph.duckdb::' if where == 'duckdb' else ''}{name}" for name in ("edges", "nodes"))
        graph = load_dataset(edges, nodes=nodes, rare_class="fraud")
    seconds = time.perf_counter() - begun
    most = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line).split()[1])
    a = graph.adjacency
    arrays = [a.indptr, a.indices, a.values, graph.x, graph.y, graph.original_y, graph.node_names]
    size = sum(array.nbytes for array in arrays if array is not None)
    print(json.dumps({"s": seconds, "memory_bytes": most * 1024 - before, "arrays_bytes": size}))


def measured(place: Path, where: str) -> dict[str, float]:
    """Returns the quickest of a few readings, with the most memory of any, in bytes."""
    command = [sys.executable, __file__, "--one", where, "--folder", str(place)]
    found = []
    for _ in range(REPEATS):
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode:
            raise SystemExit(child.stderr)
        found.append(json.loads(child.stdout.splitlines()[-1]))
    return {key: (min if key == "s" else max)(row[key] for row in found) for key in found[0]}


def page(stored: dict[str, Any]) -> str:
    lines = ["| names | arrays | " + " | ".join(PLACES) + " |", "| --- " * (len(PLACES) + 2) + "|"]
    for kind in NAMES:
        cells = [row for row in stored["rows"] if row["names"] == kind]
        told = [f"{r['s']:.1f} s, {r['memory_bytes'] / r['arrays_bytes']:.1f}x" for r in cells]
        lines.append(f"| {kind} | {cells[0]['arrays_bytes'] / 1e9:.2f} GB | " + " | ".join(told) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--folder", type=Path, default=record.ROOT / "build" / "tables")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--one", choices=PLACES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.folder, chosen.one)
        return
    if not chosen.page:
        path = record.RESULTS / "tables.json"
        rows = json.loads(path.read_text())["results"]["rows"] if path.is_file() else []
        for kind in chosen.names:
            place = written(chosen.folder, kind, chosen.edges)
            made = [{"names": kind, "place": where, **measured(place, where)} for where in PLACES]
            print(*made, sep="\n", flush=True)
            rows = [*(row for row in rows if row["names"] != kind), *made]
            record.write("tables", {"n_edges": chosen.edges, "rows": rows})
    stored = json.loads((record.RESULTS / "tables.json").read_text())["results"]
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, BEGIN, END, page(stored))


if __name__ == "__main__":
    main()
