"""Time, memory and parity of scores in DuckDB and Spark.

    python benchmarks/bench_engines.py duckdb [--nodes 1000000] [--edges 10000000] [--no-parity]
    python benchmarks/bench_engines.py parity [--datasets facebook dblp ..] [--detectors auto trees ..]

DuckDB: `calirare predict --engine duckdb` with the default ensemble on simulated accounts with 16 numbers each, in a
process of its own, and how far P(rare) is from `calirare predict --scores-only` on the same tables. Parity: DuckDB and
a local Spark with two workers score data sets with every detector; needs Java and `pip install pyspark`.
Results are added to benchmarks/results/engines.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch

FILES = {"computers": "amazon_computers.npz"}  # in CALIRARE_DATA
FEATURES, LABELLED, TRAINED = 16, 0.1, 20_000  # a tenth of the nodes that the run is trained on have a label
RARE = "hash(range // 20) % 25 = 0"  # blocks of 20 accounts, 4 % of them rare
DATASETS = ["digits", "cora", "citeseer", "dblp", "facebook", "computers"]
FEW, LARGE = 100, 13_000  # labels per class for gcn on larger graphs: leaving out each of thousands takes minutes
DETECTORS = ["auto", "gcn", "hops", "trees", "forest"]
NEAR = 100  # most edges lead to accounts not farther away


def simulate(path: Path, n: int, m: int) -> None:
    """Writes a DuckDB database of accounts with labels and transfers between them."""
    import duckdb

    columns = ", ".join(
        f"(sqrt(-2 * ln(1 - random())) * cos(6.2832 * random()) + {0.5 if i % 4 == 0 else 0} * y)::FLOAT AS f{i}"
        for i in range(FEATURES)
    )
    with duckdb.connect(str(path)) as engine:
        engine.execute("SELECT setseed(0.25)").fetchall()
        labels = f"CASE WHEN random() < {LABELLED} THEN y ELSE -1 END AS label"
        who = f"(SELECT range AS node, ({RARE})::INT AS y FROM range({n}))"
        engine.execute(f"CREATE TABLE accounts AS SELECT node, {columns}, {labels} FROM {who}")
        other = f"CASE WHEN random() < 0.5 THEN source // 20 * 20 + random() * 20 ELSE source + random() * {NEAR} END"
        ends = f"SELECT (random() * {n - 1})::BIGINT AS source FROM range({m})"
        engine.execute(f"CREATE TABLE transfers AS SELECT source, ({other})::BIGINT % {n} AS target FROM ({ends})")


def trained(database: Path, folder: Path) -> Path:
    """Trains the default ensemble on the first accounts and returns the folder of the run."""
    import duckdb

    import calirare
    from calirare.graph import Graph

    run = folder / "run"
    if not run.exists():
        with duckdb.connect(str(database), read_only=True) as engine:
            nodes = engine.execute(f"FROM accounts WHERE node < {TRAINED}").df()
            edges = engine.execute(f"FROM transfers WHERE source < {TRAINED} AND target < {TRAINED}").df()
        calirare.train(Graph.from_tables(edges, nodes)).save(run)
    return run


def child(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Runs a command; returns its seconds, peak memory and the most that its temporary folder held."""
    folder.mkdir(exist_ok=True)
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            sizes = [file.stat().st_size for file in folder.rglob("*") if file.exists() and file.is_file()]
            most[0] = max(most[0], sum(sizes))

    watcher = threading.Thread(target=watch)
    started, env = time.perf_counter(), os.environ | {"OMP_NUM_THREADS": "2", "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "calirare", *arguments], env=env, stdout=subprocess.PIPE, text=True
    )
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    watcher.join()
    assert process.stdout is not None
    print(process.stdout.read(), flush=True)
    if process.returncode:
        raise RuntimeError(f"the command failed with {process.returncode}")
    seconds = time.perf_counter() - started
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "cpu_s": cpu, "peak_bytes": usage.ru_maxrss * 1024, "temporary_bytes": most[0]}


def in_duckdb(folder: Path, n: int, m: int, *, parity: bool) -> dict[str, Any]:
    """Scores simulated accounts and returns what it cost, and how far scores are from those in memory."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    database = folder / f"bank_{n}_{m}.duckdb"
    if not database.exists():
        simulate(database, n, m)
    words = ["predict", str(trained(database, folder)), "--nodes", f"{database}::accounts"]
    there = [
        *words,
        "--engine",
        "duckdb",
        "--edges",
        f"{database}::transfers",
        "--into",
        f"{folder / 'scores.duckdb'}::scores",
    ]
    out = {"nodes": n, "edges": m, "features": FEATURES} | child([*there, "--overwrite"], folder / "temporary")
    if parity:
        memory = folder / "memory.parquet"
        more = ["--graph", f"{database}::transfers", "--scores-only", "--out", str(memory), "--overwrite"]
        out["in_memory"] = child([*words, *more], folder / "temporary")
        with duckdb.connect(str(folder / "scores.duckdb"), read_only=True) as engine:
            both = f"FROM scores s JOIN '{memory}' m ON s.node::VARCHAR = m.node::VARCHAR"
            away = "max(abs(s.p_rare - m.p_rare)), count(*) FILTER (s.alert <> (m.alert::INT = 1)), count(*)"
            out["p_apart"], out["alerts_apart"], rows = engine.execute(f"SELECT {away} {both}").fetchall()[0]
        assert rows == n
    return out


def connected(engine: str) -> Any:
    """Returns an embedded DuckDB, or a local Spark with two workers."""
    import ibis

    if engine == "duckdb":
        return ibis.duckdb.connect()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "3g"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    return ibis.pyspark.connect(session)


def named(name: str, **options: Any) -> Any:
    """Returns a data set whose nodes have names."""
    import calirare

    path = str(Path(os.environ["CALIRARE_DATA"]) / FILES[name]) if name in FILES else name
    graph = calirare.load_dataset(path, **options)
    return dataclasses.replace(graph, node_names=np.array([f"n{i}" for i in range(graph.n_nodes)]), trusted=True)


def written(graph: Any, folder: Path) -> list[Path]:
    """Writes a graph as a table of nodes, features in one column of lists, and a table of edges."""
    import pyarrow as pa
    from pyarrow import parquet

    x = (graph.x if isinstance(graph.x, torch.Tensor) else graph.x.to_dense()).numpy()
    lists = pa.ListArray.from_arrays(np.arange(len(x) + 1, dtype=np.int32) * x.shape[1], x.ravel())
    ends = torch.stack([graph.adjacency.rows(), graph.adjacency.indices.long()]).numpy()
    source, target = graph.node_names[ends[:, ends[0] < ends[1]]]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "nodes.parquet", folder / "edges.parquet"]
    parquet.write_table(pa.table({"node": graph.node_names, "x": lists}), paths[0])
    parquet.write_table(pa.table({"source": source, "target": target}), paths[1])
    return paths


def parity(names: list[str], detectors: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Scores data sets with every detector in both engines: seconds, and how far scores are from those in memory."""
    import calirare
    from calirare import engines

    con = {engine: connected(engine) for engine in ("duckdb", "spark")}
    out: dict[str, dict[str, Any]] = {engine: {} for engine in con}
    for name in names:
        graph = named(name)
        paths = written(graph, folder / name)
        size = {"nodes": graph.n_nodes, "edges": graph.adjacency.nnz // 2, "features": graph.n_features}
        for detector in detectors:
            few = {"label_rate": FEW} if detector == "gcn" and graph.n_nodes > LARGE else {}
            run = calirare.train(named(name, **few), model=detector)
            wanted = run.scorer.probabilities(run.scorer.prepared(graph, print))
            p, alerts = wanted.rare.numpy(), wanted.alert.numpy()
            for engine, here in con.items():
                started = time.perf_counter()
                found = engines.score(run, *(here.read_parquet(str(path)) for path in paths), say=print)
                read = here.to_pandas(found) if engine == "duckdb" else here.raw_sql(here.compile(found)).toPandas()
                seconds = time.perf_counter() - started
                scores = read.set_index("node").loc[graph.node_names]
                apart = float(np.abs(scores.p_rare.to_numpy() - p).max())
                alerts_apart = int((scores.alert.to_numpy() != alerts).sum())
                measured = {"seconds": seconds, "p_apart": apart, "alerts_apart": alerts_apart}
                out[engine].setdefault(name, size | {"detectors": {}})["detectors"][detector] = measured
                print(engine, name, detector, measured, flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["duckdb", "parity"])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/engines"))
    parser.add_argument("--no-parity", action="store_true")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--detectors", nargs="+", default=DETECTORS)
    given = parser.parse_args()
    path = record.RESULTS / "engines.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {"duckdb": {}, "spark": {}}
    if given.what == "duckdb":
        sizes = given.nodes, given.edges
        measured = in_duckdb(given.folder, *sizes, parity=not given.no_parity)
        results["duckdb"] |= {f"{given.nodes} nodes, {given.edges} edges": measured | stamp()}
    else:
        found = parity(given.datasets, given.detectors, given.folder)
        for engine, data_sets in found.items():
            for name, measured in data_sets.items():
                before = results[engine].get(name, {}).get("detectors", {})
                results[engine][name] = measured | {"detectors": before | measured["detectors"]} | stamp()
    print(json.dumps(results, indent=2))
    print(record.write("engines", results))


def stamp() -> dict[str, Any]:
    """Returns commit and command: parts of the file are measured in runs of their own."""
    found = record.environment()
    return {name: found[name] for name in ("commit", "command")}


if __name__ == "__main__":
    main()
