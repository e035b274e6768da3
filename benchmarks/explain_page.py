"""The tables of docs/explain.md from explain.json and explain_speed.json, and its example of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import record

import calirare
from calirare.explain import draw, text_of
from calirare.graph import Graph

PAGE = record.ROOT / "docs" / "explain.md"
BEGIN, END = "<!-- measured:begin -->\n", "<!-- measured:end -->\n"
PICTURE = record.ROOT / "docs" / "figures" / "explain_example.png"
EXAMPLE = "explain_example.txt"
SOURCES = "explain", "explain_speed"


def page(results: dict[str, Any], speeds: dict[str, Any]) -> str:
    """Returns the tables: labels against retraining, new runs without labels, and seconds of runs of their own."""
    names = list(results)
    members = list(results[names[0]]["labels_against_retraining"])
    lines = [
        "Correlation of the change of P(rare) at the likeliest alerts with that of detectors trained without the",
        "label (networks to their minimum, from the full fit; trees grown anew with other bags and splits, mean over",
        "six seeds; in brackets how the means over three of them correlate with those over the others: what the",
        "retrained trees themselves agree on):",
        "",
        f"| graph | labels | {' | '.join(members)} |",
        f"| --- | ---: |{' ---: |' * len(members)}",
    ]
    for name in names:
        found = results[name]["labels_against_retraining"]
        cells = " | ".join(_cell(found[member]) for member in members)
        lines.append(f"| {name} | {results[name]['labels']} | {cells} |")
    lines += [
        "",
        "The weakest alerts of a run, what P(rare) was foreseen to be without the five labels that speak most for it,",
        "and what it is in a whole new run without these labels, and without five others (means):",
        "",
        "| graph | detector | P(rare) | foreseen | new run | new run without five others |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        for model, checked in results[name]["deletion"].items():
            mean = checked["mean"]
            cells = " | ".join(f"{mean[key]:.2f}" for key in ("p", "foreseen", "strongest", "random"))
            lines.append(f"| {name} | {model} | {cells} |")
    lines += [
        "",
        "Seconds of `auto` on one thread: made once when a run is loaded, one alert (processor time, and by the clock",
        "on two cores with the load that is told), the likeliest ones together with labels, edges and features:",
        "",
        "| graph | nodes | edges | once | one alert | by the clock | load | alerts | their edges | together |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in speeds.items():
        spent = found["speed"]
        once = spent["prepare_s"] + spent["first_s"]
        one = f"{spent['one_s']:.3f} | {spent['one_wall_s']:.3f} | {spent['load']:.1f}"
        cells = f"{once:.1f} | {one} | {spent['alerts']} | {spent['edges']:,} | {spent['alerts_s']:.1f}"
        lines.append(f"| {name} | {found['nodes']:,} | {found['edges']:,} | {cells} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, float]) -> str:
    halves = found.get("halves_of_truth")
    return f"{found['correlation']:.2f}" + ("" if halves is None else f" ({halves:.2f})")


def write() -> Path:
    """Writes the tables into the page, from the committed results."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    found, speeds = (json.loads((record.RESULTS / f"{name}.json").read_text())["results"] for name in SOURCES)
    tables = page(found, speeds)
    PAGE.write_text(before + BEGIN + tables + END + after, encoding="utf-8")
    return PAGE


def write_example(graph: Graph, seed: int) -> Path:
    """Writes what is said of the likeliest node below .9 with 4 to 16 edges and no label, and its picture."""
    outcome = calirare.train(graph, seed=seed)
    degree, explainer = graph.adjacency.indptr.diff(), outcome.explainer
    asked = ((degree >= 4) & (degree <= 16) & (graph.y < 0)).nonzero().flatten()
    p = explainer.p_rare(asked)
    one = outcome.explain(asked[p.where(p < 0.9, 0.0).argmax()][None])[0]
    path = record.RESULTS / EXAMPLE
    path.write_text(text_of(outcome.explain([one.node])), encoding="utf-8")
    draw(one, outcome.explainer.subject, PICTURE)
    return path
