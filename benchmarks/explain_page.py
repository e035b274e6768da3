"""The tables of docs/research/explain.md and its example, from the results of explain, explain_speed, explain_peers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record

import calirare
from calirare.explain import draw, text_of
from calirare.graph import Graph

PAGE = record.ROOT / "docs" / "research" / "explain.md"
BEGIN, END = "<!-- measured:begin -->\n", "<!-- measured:end -->\n"
PEERS_BEGIN, PEERS_END = "<!-- peers:begin -->\n", "<!-- peers:end -->\n"
LABELS_BEGIN, LABELS_END = "<!-- labels:begin -->\n", "<!-- labels:end -->\n"
PICTURE = record.ROOT / "docs" / "figures" / "explain_example.png"
EXAMPLE = "explain_example.txt"
SOURCES = "explain", "explain_speed"
OURS, TOLD = "CaliRare", "CaliRare, own edges"
PEERS = "GNNExplainer", "PGExplainer", "Integrated Gradients", "Saliency"
FLOORS = "one edge masked", "gradient", "random"
SURE = 2  # standard errors
DIFFERENCES = ("and what that is more than with ours, with its standard error, paired by alerts:",)


def page(results: dict[str, Any], speeds: dict[str, Any]) -> str:
    """Returns the tables: labels against retraining, new runs without labels, and seconds of runs of their own."""
    names = list(results)
    members = list(dict.fromkeys(member for name in names for member in results[name]["labels_against_retraining"]))
    lines = [
        "Correlation of the change of P(rare) at the likeliest alerts with that of detectors trained without the",
        "label (networks to their minimum, from the full fit; trees grown anew with other bags and splits, mean over",
        "six seeds; in brackets how the means over three of them correlate with those over the others: what the",
        "retrained trees themselves agree on; spread labels spread anew, reach and prior as they were):",
        "",
        f"| graph | labels | {' | '.join(members)} |",
        f"| --- | ---: |{' ---: |' * len(members)}",
    ]
    for name in names:
        found = results[name]["labels_against_retraining"]
        cells = " | ".join(_cell(found[member]) if member in found else "" for member in members)
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
        "Seconds of `auto`: to load a run beside its graph, the first alert, the likeliest alerts together with their",
        "labels, edges and features; of a run loaded anew one alert after its first (the median of the next ten, the",
        "best of three such medians, and its processor time); on two cores with the load that is told. *million* is",
        "simulated:",
        "",
        "| graph | nodes | edges | load | first | alerts | edges | together | next | one | processor | machine |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in speeds.items():
        spent = found["speed"]
        once = f"{spent['prepare_s']:.2f} | {spent['first_s']:.2f}"
        together = f"{spent['alerts']} | {spent['edges']:,} | {spent['alerts_s']:.1f}"
        one = f"{spent['early_wall_s']:.3f} | {spent['one_wall_s']:.3f} | {spent['one_s']:.3f} | {spent['load']:.1f}"
        cells = f"{once} | {together} | {one}"
        lines.append(f"| {name} | {found['nodes']:,} | {found['edges']:,} | {cells} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any]) -> str:
    if found["correlation"] is None:
        return ""
    halves = found.get("halves_of_truth")
    return f"{found['correlation']:.2f}" + ("" if halves is None else f" ({halves:.2f})")


def write() -> Path:
    """Writes the tables into the page, from the committed results."""
    found, speeds = (json.loads((record.RESULTS / f"{name}.json").read_text())["results"] for name in SOURCES)
    return _put(page(found, speeds), BEGIN, END)


def write_peers() -> Path:
    """Writes the comparison with other explainers into the page, from the committed results."""
    found = json.loads((record.RESULTS / "explain_peers.json").read_text())["results"]
    return _put(peers_page(found), PEERS_BEGIN, PEERS_END)


def write_label_peers() -> Path:
    """Writes the comparison of labels' effects with other libraries into the page, from the committed results."""
    found = json.loads((record.RESULTS / "explain_labels.json").read_text())["results"]
    return _put(label_peers_page(found), LABELS_BEGIN, LABELS_END)


def label_peers_page(found: dict[str, Any]) -> str:
    """Returns the table: how each method agrees with networks trained without labels, and its seconds."""
    methods = list(dict.fromkeys(method for each in found.values() for method in each["methods"]))
    lines = [f"| labels' effects by | {' | '.join(found)} |", f"| --- |{' ---: |' * len(found)}"]
    for method in methods:
        lines.append(f"| {method} | {' | '.join(_judged(each['methods'].get(method)) for each in found.values())} |")
    return "\n".join(lines) + "\n"


def _judged(found: dict[str, float | None] | None) -> str:
    if found is None:
        return ""
    told = [found["correlation"], found["datamodelling_score"]]
    parts = ["" if value is None else f"{value:.2f}" for value in told]
    return f"{' / '.join(parts)} ({found['seconds']:.2g} s)"


def _put(tables: str, begin: str, end: str) -> Path:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(begin)[0], text.partition(end)[2]
    PAGE.write_text(before + begin + tables + end + after, encoding="utf-8")
    return PAGE


def peers_page(results: dict[str, Any]) -> str:
    """Returns the tables of other explainers: curves beside ours, planted motifs, seconds."""
    named = {"deletion": "taken from the graph (lower is better)", "insertion": "put into it (higher is better)"}
    lines = [_verdict(results), ""]
    for curve, words in named.items():
        lines += [f"Mean P(rare) of the alerts with the first 1, 2, 3, 5 and 10 edges {words},", *DIFFERENCES, ""]
        lines += _table(results, lambda found, curve=curve: _beside(found[curve]))
    lines += ["Area under the whole order, deletion / insertion:", ""]
    lines += _table(results, lambda found: " / ".join(f"{found[f'{curve}, all']['mean']:.3f}" for curve in named))
    planted = {name: found for name, found in results.items() if "motif" in found}
    lines += ["Planted edges: share of them among as many of the first ones / AUROC:", ""]
    lines += _table(planted, lambda found: f"{found['accuracy']['mean']:.2f} / {found['auroc']['mean']:.2f}")
    lines += ["Milliseconds of one thread for an alert (and seconds once, to train the explainer):", ""]
    lines += _table(results, _milliseconds)
    facts = "| graph | nodes | edges | AUPRC | alerts | edges that they read | P(rare) | without any of these |"
    lines += ["What was explained:", "", facts, "| --- |" + " ---: |" * 7]
    for name, found in results.items():
        size = f"{found['nodes']:,} | {found['edges']:,} | {found['auprc']:.2f} | {found['alerts']}"
        p = f"{found['p']:.2f} | {found['p_without_edges']:.2f}"
        lines.append(f"| {name} | {size} | {found['edges_of_alert']:.0f} | {p} |")
    return "\n".join(lines) + "\n"


def _table(results: dict[str, Any], cell: Callable[[dict[str, Any]], str]) -> list[str]:
    rows = [f"| edges in the order of | {' | '.join(results)} |", f"| --- |{' ---: |' * len(results)}"]
    for method in (OURS, TOLD, *PEERS, *FLOORS):
        cells = " | ".join(cell(found["methods"][method]) for found in results.values())
        rows.append(f"| {method} | {cells} |")
    return [*rows, ""]


def _beside(found: dict[str, float]) -> str:
    difference, error = found["minus_ours"], found["minus_ours_error"]
    return f"{found['mean']:.3f}" + (f" ({difference:+.3f} ± {error:.3f})" if difference or error else "")


def _milliseconds(found: dict[str, Any]) -> str:
    once = f" ({found['once_s']:.0f})" if found["once_s"] else ""
    return f"{1e3 * found['seconds']['mean']:.1f}{once}"


def counted(results: dict[str, Any], kinds: tuple[str, ...]) -> tuple[int, int, int]:
    """Returns how many curves of peers are worse than ours, better, and neither, by two standard errors."""
    signs = [
        (found["methods"][peer][kind]["minus_ours"] * (1 if kind.startswith("deletion") else -1))
        / max(found["methods"][peer][kind]["minus_ours_error"], 1e-12)
        for found in results.values()
        for peer in PEERS
        for kind in kinds
    ]
    worse, better = sum(sign > SURE for sign in signs), sum(sign < -SURE for sign in signs)
    return worse, better, len(signs) - worse - better


def _verdict(results: dict[str, Any]) -> str:
    first = counted(results, ("deletion", "insertion"))
    whole = counted(results, ("deletion, all", "insertion, all"))
    said = [f"{worse} of {worse + better + rest} are worse, {better} better" for worse, better, rest in (first, whole)]
    return (
        "The four peers' curves beside ours, where they are more than two standard errors apart: over the first edges\n"
        f"{said[0]}; over the whole order {said[1]}; the others are neither."
    )


def write_example(graph: Graph, seed: int) -> Path:
    """Writes what is said of the likeliest node below .9 with 4 to 16 edges and no label, and its picture."""
    outcome = calirare.train(graph, seed=seed)
    degree, explainer = graph.adjacency.indptr.diff(), outcome.explainer
    asked = ((degree >= 4) & (degree <= 16) & (graph.y < 0)).nonzero().flatten()
    p = explainer.p_rare(asked)
    one = outcome.explain(asked[p.where(p < 0.9, 0.0).argmax()][None])[0]
    path = record.RESULTS / EXAMPLE
    path.write_text(text_of(outcome.explain([one.node])), encoding="utf-8")
    draw(one, outcome.explainer.context, PICTURE)
    return path
