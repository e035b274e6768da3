"""Time and memory of `calirare train` where labels come by the hundred thousand, stage by stage, for each detector.

    python benchmarks/bench_many_labels.py [--models gcn hops trees] [--labels 100000] [--nodes 200000] [--folder ..]
        [--epochs 20] [--nodes 32]
    python benchmarks/bench_many_labels.py --page

A simulated graph, 16 directed edges and 32 features per node, 10 % rare; half of its nodes are labelled, 20,000 others
are judged. The whole command is run, pictures and files included, in a process of its own with two threads. Results are
added to benchmarks/results/many_labels.json, one row per detector and number of labels, and their table to
docs/research/scaling.md. With `--epochs` a network takes so many gradient steps, not those that its loss asks for: the
row and the table say it, and the time of training is of no detector that anybody would train.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import record

PAGE = record.ROOT / "docs" / "research" / "scaling.md"
BEGIN, END = "<!-- many-labels:begin -->", "<!-- many-labels:end -->"
STAGE = re.compile(r"^ *[0-9.]+ s  ([a-z]+|everything but imports): ([0-9.]+) s$")
PER_CLASS, TEST, FEATURES = 20, 20_000, 32
BAR_S, BAR_BYTES = 60, 4e9  # of the own logits, the choice of damping and the calibration; of the whole command
KEY = ("model", "labels", "n", "features")  # one row of each
AFTER_TRAINING = ("check", "calibrate")


def graph_folder(folder: Path, n: int, labels: int, features: int) -> Path:
    path = folder / f"g{n}_{labels}_{features}"
    if not path.exists():
        import simulated

        simulated.folder_of(path, n, n_val=labels - 2 * PER_CLASS, n_test=min(TEST, n - labels), n_features=features)
    return path


def one(model: str, graph: Path, out: Path, epochs: str) -> None:
    """Trains in this process and prints what it took: the child of `measured`."""
    from calirare.cli.app import main as command
    from calirare.run.stages import Clock

    facts: dict[str, Any] = {"cpu_s": {}}
    timed = Clock.time

    def time_of_processor(self: Clock, stage: str, work: Any) -> Any:  # what other jobs take is not in it
        started = time.process_time()
        out = timed(self, stage, work)
        facts["cpu_s"][stage] = time.process_time() - started
        return out

    Clock.time = time_of_processor
    sys.argv = [
        "calirare",
        "train",
        "--no-report",
        "--model",
        model,
        "--dataset",
        str(graph),
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    sys.argv += ["--epochs", epochs]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            command()
        except SystemExit as ended:
            if ended.code:
                raise
    status = Path("/proc/self/status").read_text()  # the highest of this program, not of the one that started it
    facts["peak_bytes"] = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
    found = [STAGE.match(line) for line in (out / "log.txt").read_text().splitlines()]
    facts["stages_s"] = {match[1]: float(match[2]) for match in found if match}
    said = json.loads((out / "metrics.json").read_text())
    facts |= {name: said[name] for name in ("agreement", "notes", "epochs")}
    print(json.dumps(facts))


def measured(folder: Path, model: str, n: int, labels: int, features: int, epochs: int | None) -> dict[str, Any]:
    """Returns what a process of its own took; the graph's files may be in the system's cache."""
    graph, out, threads = graph_folder(folder, n, labels, features), folder / f"run_{model}", 2
    shutil.rmtree(out, ignore_errors=True)
    load = os.getloadavg()[0]
    command = [sys.executable, __file__, "--one", model, str(graph), str(out), str(epochs or "auto")]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    facts = {"model": model, "n": n, "labels": labels, "features": features, "threads": threads, "load_before": load}
    facts |= {"load_after": os.getloadavg()[0]} | ({"epochs_asked": epochs} if epochs else {})
    found = record.environment()
    return facts | json.loads(done.stdout.splitlines()[-1]) | {name: found[name] for name in ("commit", "command")}


def after_training(seconds: dict[str, float]) -> float:
    """Returns the seconds of own logits, choice of damping and calibration."""
    return sum(seconds[name] for name in AFTER_TRAINING)


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| detector | labels | train, s | check | calibrate | both of 60 | in CPU s | intervals | command | GB of 4 |",
        "| " + " | ".join(["---"] * 10) + " |",
    ]
    for row in rows:
        s, name, both, peak = row["stages_s"], row["model"], after_training(row["stages_s"]), row["peak_bytes"]
        asked = f", {row['features']} features" if row["features"] != FEATURES else ""
        asked += f", {row['epochs_asked']} epochs" if "epochs_asked" in row else ""
        cells = [f"`{name}`{asked}", f"{row['labels']:,}", *(f"{s[stage]:.1f}" for stage in ("train", *AFTER_TRAINING))]
        cells += [f"{both:.1f}{'' if both <= BAR_S else ' (missed)'}", f"{after_training(row['cpu_s']):.1f}"]
        cells += [f"{s['jackknife']:.1f}"]
        cells += [f"{s['everything but imports']:.1f}", f"{peak / 1e9:.2f}{'' if peak <= BAR_BYTES else ' (missed)'}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "What was sampled, as the runs say it:", ""]
    lines += [f"- `{row['model']}`, {note}" for row in rows for note in row["notes"] if "drawn at random" in note]
    loads = [row[when] for row in rows for when in ("load_before", "load_after") if when in row]
    lines += [
        "",
        f"Two threads on two cores that did other work (load before or after {min(loads):.1f} to {max(loads):.1f}).",
        "[benchmarks/results/many_labels.json](../../benchmarks/results/many_labels.json):",
        "`python benchmarks/bench_many_labels.py`.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["gcn", "hops", "trees"])
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--nodes", type=int, default=FEATURES)
    parser.add_argument("--page", action="store_true", help="write the page from the numbers that are there")
    parser.add_argument("--folder", type=Path, default=Path("many-labels-graphs"))
    parser.add_argument("--epochs", type=int, help="gradient steps of a network, however many it would take")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, graph, out, epochs = options.one
        one(model, Path(graph), Path(out), epochs)
        return
    file = record.RESULTS / "many_labels.json"
    kept: list[dict[str, Any]] = json.loads(file.read_text())["results"]["rows"] if file.exists() else []
    for model in [] if options.page else options.models:
        options.folder.mkdir(parents=True, exist_ok=True)
        row = measured(options.folder, model, options.nodes, options.labels, options.features, options.epochs)
        print(json.dumps(row), flush=True)
        key = (model, options.labels, options.nodes, options.features)
        kept = [*(old for old in kept if tuple(old[name] for name in KEY) != key), row]
        record.write("many_labels", {"rows": kept})
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, BEGIN, END, page(kept))


if __name__ == "__main__":
    main()
