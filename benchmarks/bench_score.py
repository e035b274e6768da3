"""Time and memory of `calirare predict --scores-only`, 100,000 to 111 million nodes, beside peers.

    python benchmarks/bench_score.py [--sizes 100000 1000000 10000000 111000000] [--wide 1000000 10000000] [--peers]
    python benchmarks/bench_score.py --columns 1000000     # trees, and the default mixture, by blocks and in memory
    python benchmarks/bench_score.py --page     # the tables of docs/research/scaling.md, nothing is run

Graphs are simulated on disk (`synthetic_on_disk`): 14.5 directed edges and 32 features in float16 per node; --wide: 16
edges and 128 features in float32. The run is a graph convolution of 16 hidden units, trained on a million nodes of the
same law. Times are of a process of its own, by stage; imports are told apart. --peers: the same network on the graph of
a million nodes with 128 features by PyG's GCNConv and by SciPy, arrays read from the same files, scores alone.
--columns: runs trained on 100,000 nodes with 16 edges and 32 features in float32 each score a graph of that law.
Results are added to benchmarks/results/score.json, so that sizes may be run one at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import record

PAGE = record.ROOT / "docs" / "research" / "scaling.md"
BEGIN, END = "<!-- score:begin -->", "<!-- score:end -->"
TRAINED_ON, HIDDEN = 1_000_000, 16
NARROW = {"n_features": 32, "mean_degree": 14.5, "dtype": "float16"}
SMALL, COLUMNS = 100_000, {"n_features": 32, "mean_degree": 16.0, "dtype": "float32"}
WIDE = {"n_features": 128, "mean_degree": 16.0, "dtype": "float32"}


def graph_folder(folder: Path, n: int, law: dict[str, Any]) -> Path:
    from calirare_lab.simulation import synthetic_on_disk

    path = folder / f"g{n}_{law['n_features']}_{law['dtype']}"
    if not path.exists():
        synthetic_on_disk(path, n, labels=n in (SMALL, TRAINED_ON), **law)
    return path


def trained(folder: Path, law: dict[str, Any], model: str = "gcn") -> Path:
    """Returns a run trained on a million nodes of a law, trees and mixtures on 100,000."""
    out = folder / f"run{law['n_features']}_{model}"
    if not out.exists():
        graph = graph_folder(folder, TRAINED_ON if model == "gcn" else SMALL, law)
        epochs = ["--epochs", "100"] if model == "gcn" else []
        how = ["--model", model, *epochs, "--interval-nodes", "alerts", "--out", str(out)]
        command = [sys.executable, "-m", "calirare", "train", "--no-report", "--dataset", str(graph), *how]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def one(kind: str, run: Path, graph: Path, out: Path) -> None:
    """Scores a graph in this process and prints what it took: the child of `measured`."""
    started = time.perf_counter()
    facts: dict[str, Any] = {"kind": kind, "stages_s": {}}
    if kind in ("calirare", "memory"):
        import sklearn.preprocessing  # noqa: F401

        from calirare._util.blocks import BlockFiles
        from calirare.datasets import read_graph
        from calirare.graph import GraphOnDisk
        from calirare.models import streams_of
        from calirare.run import Loaded, Streamed, load, write_scores

        begun = last = time.perf_counter()

        def report(stage: str, done: int, total: int) -> None:
            nonlocal last
            if done == total:
                facts["stages_s"][stage] = time.perf_counter() - last
                last = time.perf_counter()

        files = BlockFiles(out.parent / ".blocks")
        scorer = load(run).scorer
        if kind == "calirare":
            source = Streamed(scorer, GraphOnDisk.open(graph), streams_of(scorer.fit, scorer.features), files)
        else:
            source = Loaded(scorer, read_graph(str(graph))[0], print)
        scored = write_scores(source, out, report=report)
        files.remove()
        facts["stages_s"]["expected number"] = time.perf_counter() - last
        facts |= {"alerts": scored.alerts, "mean_p_rare": scored.mean, "drift": scored.verdict}
    else:
        begun, logits = peer(kind, run, graph)
        np.save(out, logits)
    facts |= {"imports_s": begun - started, "score_s": time.perf_counter() - begun, "cpu_s": time.process_time()}
    status = Path("/proc/self/status").read_text()  # the highest of this program, not of the one that started it
    facts["peak_bytes"] = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
    print(json.dumps(facts))


def peer(kind: str, run: Path, graph: Path) -> tuple[float, Any]:
    """Returns when the imports of a peer were over, and the logits it makes with the weights of a run."""
    import torch
    from safetensors import safe_open

    if kind == "pyg":
        from torch_geometric.nn import GCNConv
        from torch_geometric.typing import SparseTensor  # noqa: F401
    else:
        import scipy.sparse as sp
    begun = time.perf_counter()
    with safe_open(str(run / "model.safetensors"), "pt") as file:
        part = "fit.network." if "fit.network.weights.0" in file.keys() else "fit."  # noqa: SIM118
        w = [(file.get_tensor(f"{part}weights.{i}"), file.get_tensor(f"{part}biases.{i}")) for i in (0, 1)]
    from calirare.run import load

    _, factor, offset = load(run).scorer.features.affine()  # of the run's map of the features
    indptr, indices, x = (np.load(graph / f"{name}.npy") for name in ("indptr", "indices", "x"))
    x = torch.from_numpy(x) * factor.float() + offset.float()
    if kind == "scipy":
        n = len(indptr) - 1
        a = sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(n, n)) + sp.identity(
            n, np.float32
        )
        scale = sp.diags_array((np.asarray(a.sum(1)).ravel() ** -0.5).astype(np.float32))
        a = scale @ a.tocsr() @ scale
        h = np.maximum(a @ (x.numpy() @ w[0][0].numpy()) + w[0][1].numpy(), 0)
        return begun, a @ (h @ w[1][0].numpy()) + w[1][1].numpy()
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    edge_index = torch.from_numpy(np.stack([indices, rows]).astype(np.int64))
    layers = []
    for weight, bias in w:
        layer = GCNConv(*weight.shape)
        layer.lin.weight.data, layer.bias.data = weight.T.contiguous(), bias
        layers.append(layer)
    with torch.no_grad():
        return begun, layers[1](layers[0](x, edge_index).relu(), edge_index).numpy()


def measured(folder: Path, kind: str, run: Path, graph: Path, threads: int = 2) -> dict[str, Any]:
    """Returns what a process of its own took; files of the graph may be in the system's cache."""
    own = kind in ("calirare", "memory")
    out = folder / (f"{kind}.parquet" if own else f"{kind}.npy")
    command = [sys.executable, __file__, "--one", kind, str(run), str(graph), str(out)]
    load, started = os.getloadavg()[0], time.perf_counter()
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    wall = time.perf_counter() - started
    size = {"output_bytes": out.stat().st_size} if own else {}
    found = record.environment()
    stamp = {name: found[name] for name in ("commit", "command")}
    return (
        json.loads(done.stdout.splitlines()[-1])
        | {"wall_s": wall, "threads": threads, "load_before": load}
        | size
        | stamp
    )


def row_of(folder: Path, n: int, law: dict[str, Any]) -> dict[str, Any]:
    graph = graph_folder(folder, n, law)
    edges = int(np.load(graph / "indices.npy", mmap_mode="r").size)
    facts = {"n": n, "directed_edges": edges, "features": law["n_features"], "dtype": law["dtype"]}
    return facts | {"copy_bytes_per_s": copy_speed()} | measured(folder, "calirare", trained(folder, law), graph)


def by_columns(folder: Path, n: int) -> dict[str, Any]:
    """Returns what trees and the default mixture take by blocks, up to a million nodes also in memory, and how far P is
    apart."""
    graph, rows = graph_folder(folder, n, COLUMNS), {}
    for model in ("trees", "auto"):
        run = trained(folder, COLUMNS, model)
        blocks = rows[f"{model}, by blocks"] = measured(folder, "calirare", run, graph)
        if n <= TRAINED_ON:
            rows[f"{model}, in memory"] = measured(folder, "memory", run, graph)
            p = [raw(folder / f"{kind}.parquet") for kind in ("calirare", "memory")]
            blocks["difference"] = float(np.abs(p[0] - p[1]).max())
    edges = int(np.load(graph / "indices.npy", mmap_mode="r").size)
    return {"n": n, "directed_edges": edges, "rows": rows}


def copy_speed() -> float:
    """Returns bytes read and written in a second by a copy of 1 GB."""
    a = np.ones(1 << 27)
    b = np.empty_like(a)
    np.copyto(b, a)
    started = time.perf_counter()
    np.copyto(b, a)
    return 2 * a.nbytes / (time.perf_counter() - started)


def stage_bytes(row: dict[str, Any]) -> dict[str, float]:
    """Returns the bytes that each stage must read and write: of gathers every row in full, as if no cache held any."""
    n, e, d = row["n"], row["directed_edges"], row["features"]
    x = n * d * (2 if row["dtype"] == "float16" else 4)
    return {
        "features": x + 4 * n * HIDDEN,
        "pass 1": 8 * n + 8 * e + 4 * HIDDEN * (e + n) + 16 * n,
        "pass 2": 8 * n + 8 * e + 8 * (e + n) + 16 * n,
        "write": 8 * n + row.get("output_bytes", 0),
    }


def exponent(rows: list[dict[str, Any]]) -> float:
    """Returns the slope of log seconds over log n by least squares."""
    x, y = np.log([row["n"] for row in rows]), np.log([row["score_s"] for row in rows])
    return float(np.polyfit(x, y, 1)[0])


def page(kept: dict[str, Any]) -> str:
    lines = [
        "| nodes | directed edges | features | seconds | degrees, features | layer 1 | layer 2 | table | peak GB |"
    ]
    lines += ["| " + " | ".join(["---"] * 9) + " |"]
    for row in [*kept.get("sizes", []), *kept.get("wide", [])]:
        s = row["stages_s"]
        cells = [f"{row['n']:,}", f"{row['directed_edges']:,}", f"{row['features']}, {row['dtype']}"]
        cells += [f"{row['score_s']:.1f}", f"{s['degrees'] + s['features']:.1f}", f"{s['pass 1']:.1f}"]
        cells += [f"{s['pass 2']:.1f}", f"{s['write'] + s['expected number']:.1f}", f"{row['peak_bytes'] / 1e9:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    rows = kept.get("sizes", [])
    if rows:
        imports = max(row["imports_s"] for row in rows)
        fastest = min(row["copy_bytes_per_s"] for row in rows) / 1e9
        lines += [
            "",
            f"Two threads, without imports ({imports:.1f} s at most). Exponent of the seconds in n, fitted from",
        ]
        lines += [
            f"{rows[0]['n']:,} to {rows[-1]['n']:,} nodes: {exponent(rows):.2f}, last step {last_step(rows):.2f}."
        ]
        lines += [f"GB/s of each stage, every gathered row counted in full; a copy does {fastest:.0f}:", ""]
        lines += ["| nodes | features | layer 1 | layer 2 | table |", "| --- | --- | --- | --- | --- |"]
        for row in [*rows, *kept.get("wide", [])]:
            made = [f"{b / row['stages_s'][name] / 1e9:.1f}" for name, b in stage_bytes(row).items()]
            lines.append(f"| {row['n']:,}, {row['features']} features | " + " | ".join(made) + " |")
    if "peers" in kept:
        lines += ["", f"{kept['peers']['n']:,} nodes and 128 features, the same weights, files read, scores alone:", ""]
        lines += ["| | seconds | peak GB | largest difference of P |", "| --- | --- | --- | --- |"]
        for name, row in kept["peers"]["rows"].items():
            lines.append(
                f"| {name} | {row['score_s']:.1f} | {row['peak_bytes'] / 1e9:.2f} | {row.get('difference', 0):.0e} |"
            )
    if "columns" in kept:
        lines += ["", f"Runs trained on {SMALL:,} nodes with {COLUMNS['n_features']} features, scores alone:", ""]
        lines += ["| | nodes | directed edges | seconds | peak GB | largest difference of P |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        for part in kept["columns"].values():
            for name, row in part["rows"].items():
                cells = [name, f"{part['n']:,}", f"{part['directed_edges']:,}", f"{row['score_s']:.1f}"]
                cells += [f"{row['peak_bytes'] / 1e9:.2f}", f"{row['difference']:.0e}" if "difference" in row else ""]
                lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "[benchmarks/results/score.json](../../benchmarks/results/score.json): `python benchmarks/bench_score.py`.",
    ]
    return "\n".join(lines)


def last_step(rows: list[dict[str, Any]]) -> float:
    a, b = rows[-2:] if len(rows) > 1 else (rows[0], rows[0])
    return math.log(b["score_s"] / a["score_s"]) / math.log(b["n"] / a["n"]) if len(rows) > 1 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--wide", type=int, nargs="*", default=[])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--columns", type=int, default=0)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("score-graphs"))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], *map(Path, options.one[1:]))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    file = record.RESULTS / "score.json"
    kept: dict[str, Any] = json.loads(file.read_text())["results"] if file.exists() else {}
    for name, sizes, law in (("sizes", options.sizes, NARROW), ("wide", options.wide, WIDE)):
        rows = {row["n"]: row for row in kept.get(name, [])}
        for n in sizes:
            rows[n] = row_of(options.folder, n, law)
            print(json.dumps(rows[n]), flush=True)
            kept[name] = [rows[n] for n in sorted(rows)]
            record.write("score", kept)
    if options.peers:
        run, graph = trained(options.folder, WIDE), graph_folder(options.folder, TRAINED_ON, WIDE)
        rows = {name: measured(options.folder, name, run, graph) for name in ("calirare", "pyg", "scipy")}
        logits = {name: np.load(options.folder / f"{name}.npy") for name in ("pyg", "scipy")}
        p = raw(options.folder / "calirare.parquet")
        for name, z in logits.items():
            other = 1 / (1 + np.exp(np.clip(z[:, 0] - z[:, 1], -80, 80).astype(np.float64)))
            rows[name]["difference"] = float(np.abs(other - p).max())
        kept["peers"] = {"n": TRAINED_ON, "rows": rows}
    if options.columns:
        made = by_columns(options.folder, options.columns)
        kept["columns"] = kept.get("columns", {}) | {str(options.columns): made}
        print(json.dumps(made), flush=True)
    if not options.page:
        record.write("score", kept)
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, BEGIN, END, page(kept))


def raw(path: Path) -> Any:
    """Returns P of each node before calibration, float64 [n]."""
    import pyarrow.parquet as parquet

    return parquet.read_table(path, columns=["p_raw"])["p_raw"].to_numpy().astype(np.float64)


if __name__ == "__main__":
    main()
