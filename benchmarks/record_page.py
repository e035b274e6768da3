"""The tables of docs/research/record.md, from results/gets.json, gats.json and rules.json."""

from __future__ import annotations

from typing import Any

from multilabel_page import rule, source
from readme_tables import between, load

from calirare_lab.studies.record import CHOSEN, OURS, PROTOCOLS, RECORD, RULES_PROTOCOL

TITLES = {"cora": "Cora", "citeseer": "CiteSeer", "computers": "Computers"}
CHOSEN_AMONG = ("temperature", "vector", "matrix", "prior-platt", "prior-slopes", OURS)  # where the rules were fixed
NETWORK_NAMES = {"gcn": "convolution", "gat": "attention", CHOSEN: "any detector"}
# ECE x 100 of the predicted class, mean of 10 seeds, as GETS prints it (Zhuang et al. 2025).
PUBLISHED = {
    "gcn": {
        "uncalibrated": {"cora": 22.62, "citeseer": 20.51, "computers": 5.63},
        "temperature": {"cora": 2.31, "citeseer": 3.10, "computers": 3.29},
        "vector": {"cora": 2.43, "citeseer": 2.82, "computers": 2.80},
        "ets": {"cora": 2.56, "citeseer": 3.06, "computers": 3.45},
        "cagcn": {"cora": 3.22, "citeseer": 2.79, "computers": 1.90},
        "gats": {"cora": 2.60, "citeseer": 3.36, "computers": 3.28},
        "GETS": {"cora": 2.29, "citeseer": 2.50, "computers": 2.03},
    },
    "gat": {
        "uncalibrated": {"cora": 16.70, "citeseer": 16.06, "computers": 6.71},
        "temperature": {"cora": 1.82, "citeseer": 2.18, "computers": 1.83},
        "vector": {"cora": 1.71, "citeseer": 2.89, "computers": 2.19},
        "ets": {"cora": 1.67, "citeseer": 2.38, "computers": 1.89},
        "cagcn": {"cora": 2.85, "citeseer": 2.49, "computers": 1.88},
        "gats": {"cora": 2.58, "citeseer": 2.50, "computers": 1.89},
        "GETS": {"cora": 2.00, "citeseer": 1.98, "computers": 1.77},
    },
}
NAMES = {
    "uncalibrated": "uncalibrated",
    "temperature": "temperature scaling",
    "vector": "vector scaling",
    "ets": "ensemble temperature scaling",
    "matrix": "matrix scaling (Dirichlet)",
    "prior-platt": "Platt scaling with a prior",
    "prior-slopes": "Platt with a prior, a slope for each class",
    OURS: "the same, neighbours asked",
    "cagcn": "CaGCN",
    "gats": "GATS",
    "default": "the default of `calirare train`",
}
LABELS = {"left-out": "all labels, left out", "folds": "all labels, by folds"}
SIDES = {"A": ("frozen", "peers"), "B": ("folds",)}  # what a track of the page is made of
NOT_SHOWN = "prior-platt"  # it is shown where maps were chosen
MEASURE_NAMES = {"nll": "NLL", "brier": "Brier", "ece": "ECE"}


def with_spread(values: dict[str, float | None]) -> str:
    """Returns mean ± standard deviation over draws, of a single draw its value."""
    assert values["mean"] is not None
    return f"{values['mean']:.3f}" + ("" if values["std"] is None else f" ± {values['std']:.3f}")


def sides(found: dict[str, Any], dataset: str, network: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the cells of a data set and network by track of the page and map."""
    out: dict[str, dict[str, dict[str, Any]]] = {side: {} for side in SIDES}
    for cell in found["results"]["cells"]:
        if (cell["dataset"], cell["network"]) != (dataset, network):
            continue
        for side, tracks in SIDES.items():
            if cell["track"] in tracks and cell["map"] != NOT_SHOWN:
                out[side][cell["map"]] = cell
    return out


def table(found: dict[str, Any], protocol: str, dataset: str, network: str) -> list[str]:
    """Returns a row per map, the lowest NLL of track B first; ECE beside the published one where there is one."""
    by = sides(found, dataset, network)
    if not by["A"]:
        return []
    known = PUBLISHED.get(network, {}) if protocol == "gets" else {}
    heads = ["map", *(f"{side}: {name}" for side in SIDES for name in MEASURE_NAMES.values())]
    heads += ["published"] * bool(known)
    lines = [f"**{TITLES[dataset]}, {NETWORK_NAMES[network]}**", ""]
    lines += ["| " + " | ".join(heads) + " |", rule(len(heads))]
    for name in sorted(by["A"] | by["B"], key=lambda name: _nll(by, name)):
        words = ["**ours**" if name == OURS else NAMES[name]]
        for side in SIDES:
            words += shown(by[side].get(name))
        if name in known and dataset in known[name]:
            words.append(f"{known[name][dataset]:.2f}")
        lines.append("| " + " | ".join(words + [""] * (len(heads) - len(words))) + " |")
    theirs = f" GETS itself, as published: ECE {known['GETS'][dataset]:.2f}." if known else ""
    return [*lines, "", *(f"{side}: {facts(cells)}." for side, cells in by.items() if cells), theirs.strip(), ""]


def _nll(by: dict[str, dict[str, dict[str, Any]]], name: str) -> float:
    cell = by["B"].get(name) or (by["A"][name] if not by["B"] else None)
    return float("inf") if cell is None else float(cell["nll"]["mean"])


def shown(cell: dict[str, Any] | None) -> list[str]:
    """Returns NLL, Brier score and ECE x 100 of a cell."""
    if cell is None:
        return [""] * 3
    return [with_spread(cell["nll"]), f"{cell['brier']['mean']:.3f}", f"{100 * cell['ece']['mean']:.2f}"]


def facts(cells: dict[str, dict[str, Any]]) -> str:
    """Returns draws and accuracy, and of our map ECE by chance, debiased and by class."""
    ours, name = (
        cells[OURS],
        {"ece_floor": "by chance", "debiased_ece": "debiased", "classwise_ece": "by class"},
    )
    every = ", ".join(f"{words} {100 * ours[key]['mean']:.2f}" for key, words in name.items())
    return f"{ours['seeds']} draws, accuracy {100 * ours['accuracy']['mean']:.1f}; ours: ECE {every}"


def free(found: dict[str, Any]) -> list[str]:
    """Returns a row for each data set of track C, calibrated; NLL and ECE without calibration beside it."""
    by = {(c["dataset"], c["map"]): c for c in found["results"]["cells"] if c["track"] == "anything"}
    if not by:
        return []
    heads = ["any detector (C)", "draws", "accuracy", "NLL", "Brier", "ECE", "by chance", "debiased", "by class"]
    heads += ["uncalibrated NLL", "ECE"]
    lines = ["| " + " | ".join(heads) + " |", rule(len(heads))]
    for dataset in RECORD:
        if (dataset, "default") not in by:
            continue
        cell, raw = by[dataset, "default"], by[dataset, "uncalibrated"]
        words = [TITLES[dataset], str(cell["seeds"]), f"{100 * cell['accuracy']['mean']:.1f}", *shown(cell)]
        words += [f"{100 * cell[name]['mean']:.2f}" for name in ("ece_floor", "debiased_ece", "classwise_ece")]
        words += [f"{raw['nll']['mean']:.3f}", f"{100 * raw['ece']['mean']:.2f}"]
        lines.append("| " + " | ".join(words) + " |")
    return [*lines, ""]


def compared(found: dict[str, Any]) -> list[str]:
    """Returns ours against the best rival by each measure, a row per data set, network and track."""
    every: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for pair in found["results"]["pairs"]:
        every.setdefault((pair["track"], pair["dataset"], pair["network"]), {})[pair["measure"]] = pair
    lines = ["| track | data set, network | draws | NLL | Brier | ECE |", rule(6)]
    for (track, dataset, network), by in sorted(every.items(), key=lambda item: _place(item[0])):
        words = [track, f"{TITLES[dataset]}, {NETWORK_NAMES[network]}", str(by["nll"]["seeds"])]
        words += [_difference(by[name]) for name in MEASURE_NAMES]
        lines.append("| " + " | ".join(words) + " |")
    return [*lines, ""]


def _place(key: tuple[str, str, str]) -> tuple[str, int, int]:
    track, dataset, network = key
    return track, RECORD.index(dataset), list(NETWORK_NAMES).index(network)


def _difference(pair: dict[str, Any]) -> str:
    """Returns such as "-0.021 (vector scaling, p .004)": ours less theirs; of ECE times 100."""
    factor, digits = (100, 2) if pair["measure"] == "ece" else (1, 3)
    p = "" if pair["p"] is None else f", p {max(pair['p'], 0.001):.3f}".replace("0.001", "< .001").replace("0.", ".")
    elsewhere = "" if pair["rival_network"] == pair["network"] else f", {NETWORK_NAMES[pair['rival_network']]}"
    return f"{factor * pair['difference']:+.{digits}f} ({NAMES[pair['rival']]}{elsewhere}{p})"


def verdicts(found: dict[str, Any]) -> list[str]:
    """Returns a sentence on how leave-one-out stood beside cross-validation."""
    said = [
        f"{TITLES[d]} " + ", ".join(f"{word} {n}" for word, n in sorted(counts.items()))
        for d, counts in found["results"]["verdicts"].items()
    ]
    return [f"Leave-one-out beside five-fold cross-validation, by draws: {'; '.join(said)}.", ""] if said else []


def rules(found: dict[str, Any]) -> list[str]:
    """Returns NLL, and ECE times 100, of every map that was to choose among, by graph."""
    by = {(c["dataset"], c["track"], c["map"]): c for c in found["results"]["cells"]}
    graphs = RULES_PROTOCOL.datasets
    lines = ["| map | fitted on | " + " | ".join(graphs) + " |", rule(2 + len(graphs))]
    for name in CHOSEN_AMONG:
        for track in ("left-out", "folds"):
            if (graphs[0], track, name) not in by:  # neighbours are asked by folds alone
                continue
            cells = [by[graph, track, name] for graph in graphs]
            words = [f"{cell['nll']['mean']:.3f} ({100 * cell['ece']['mean']:.1f})" for cell in cells]
            lines.append("| " + " | ".join([NAMES[name], LABELS[track], *words]) + " |")
    draws = min(cell["seeds"] for cell in found["results"]["cells"])
    return [*lines, "", f"NLL (ECE times 100), means over {draws} draws.", ""]


def page(text: str) -> str:
    """Returns the page with its tables made anew."""
    for name in PROTOCOLS:
        found = load(name)
        lines = compared(found)
        for dataset in RECORD:
            for network in NETWORK_NAMES:
                lines += table(found, name, dataset, network)
        lines += free(found)
        text = between(text, name, [*lines, *verdicts(found), source(name, found, "../..")])
    found = load(RULES_PROTOCOL.name)
    return between(text, "rules", [*rules(found), source("rules", found, "../..")])
