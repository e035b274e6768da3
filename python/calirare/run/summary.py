"""A run in a terminal: at most 25 lines of 80 characters; verbose, the tables behind them too."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from calirare._util.amounts import amount, in_unit, listed
from calirare._util.errors import printable
from calirare._util.measure_tables import (
    CLASS_HEAD,
    KNOWN_OR_DRAWN,
    OF_RARE,
    SIDES,
    before_and_after,
    budgets_of,
    class_rows,
    detection_head,
    detection_rows,
    event_of,
    table_of,
)
from calirare.run.choice import Choice
from calirare.run.judging import TOGETHER
from calirare.run.parties import at_risk_words

WIDTH = 80  # characters, where there is no terminal; the tables need no more
LINES = 25  # of the short text, with the four that say where the run is saved
SAVED_LINES = 4
REASON_LINES, NOTE_LINES = 4, 2
NOTES = 3
SERIOUS = (
    "not to be read",
    "do not trust",
    "so out-of-fold predictions",
    "leak",
    "gives the labels away",
    "a label counts as known",
)
SHOWN_CLASSES = 5
VERDICTS = {"trust": "OK", "caution": "CAUTION", "do not trust": "DO NOT TRUST"}
EXPECTED = "in brackets: the value expected if calibrated, from sampling noise on as many nodes"
OF_KNOWN = "these measures check P(known); predictions.csv has P(rare), which these labels cannot check"


def summary_of(
    metrics: dict[str, Any], *, verbose: bool = False, seconds: float | None = None, printed: Sequence[str] = ()
) -> str:
    """Returns the summary of a run's metrics (`run.report`) for a terminal.

    Args:
        metrics: as metrics.json holds them.
        verbose: whether the tables follow: detectors, and every measure before and after calibration.
        seconds: that the run took; None: it is not shown.
        printed: notes that the user has seen; they are not counted again.
    """
    judged = _Judged(metrics)
    if metrics.get("task") == "classes":
        blocks = [_class_calibration(metrics, judged), _class_detection(metrics, judged)]
    else:
        blocks = [_calibration(metrics, judged), _detection(judged), _alerts(metrics["decision"], judged.unit)]
    if metrics["choice"] is not None:
        effect = Choice.from_mapping(metrics["choice"]).graph_effect
        blocks += [_wrapped(f"{'GRAPH':<14}{effect[0].upper()}{effect[1:]}")] if effect else []
    lines = [line for block in [_headline(metrics, judged, seconds), *blocks] for line in [*block, ""]][:-1]
    printed = metrics["notes"] if verbose else printed
    lines += _notes([note for note in metrics["notes"] if note not in printed], LINES - SAVED_LINES - len(lines))
    return "\n".join(lines) + "\n" + (f"\n{_tables(metrics)}" if verbose else "")


class _Judged:
    """Which nodes a run is judged on, in words, and the measures of P(rare) for them."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        on = metrics["judged_on"]
        self.known = on == KNOWN_OR_DRAWN
        self.tested = on == "test"
        self.unit = metrics["graph"].get("unit", "node")
        names = {"test": f"test {self.unit}s", "fresh": f"fresh {self.unit}s", KNOWN_OR_DRAWN: "known or drawn"}
        self.nodes = names.get(on, f"labelled {self.unit}s")
        self.event = "known" if self.known else "rare"
        self.n, self.n_rare = metrics["n_judged"], metrics.get("n_judged_rare")
        self.how = "out-of-fold" if metrics["choice"] is not None else "leave-one-out"
        if "p_rare" in metrics:
            self.rare = metrics["p_rare"].get("population", metrics["p_rare"]["raw"])
            self.detection = metrics["detection"].get("population", metrics["detection"]["raw"])
            self.n, self.n_rare = self.rare["n"], self.rare["n_rare"]


def _wrapped(text: str, indent: str = "  ", most: int | None = None) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False, max_lines=most, placeholder=" ..."
    )


def _ends(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f}{'-' if low >= 0 else ' to '}{high:.{digits}f}"


def _headline(metrics: dict[str, Any], judged: _Judged, seconds: float | None) -> list[str]:
    """Returns the data and the rare class, and on how many labels the run was trained and tested."""
    graph = metrics["graph"]
    head = f"{graph['name']}: {amount(graph['nodes'], judged.unit)}, "
    head += f"{amount(graph['directed_edges'], 'edge')}, " if graph["directed_edges"] else ""
    head += f"{amount(graph['features'], 'feature')}; "
    if "rare_class" in graph:
        head += f'rare class "{graph["rare_class"]}"'
        head += f" of column {graph['label']}" if graph.get("label") else ""
        rate = "" if judged.known else f" ({graph['rare_share']:.1%} of labels)"
        head += rate if len(head + rate) <= WIDTH else rate.replace(" of labels", "")
    else:
        head += f"{len(graph['classes'])} classes"
    trained = f"Trained on {amount(graph['labels_trained_on'], 'label')}, tested "
    rare = "" if judged.n_rare is None else f" ({judged.n_rare:,} {judged.event})"
    if metrics["judged_on"] == "test":
        trained += f"on {judged.n:,} other {judged.unit}s{rare}."
    elif metrics["judged_on"] == "fresh":
        trained += f"on {judged.n:,} fresh {judged.unit}s{rare}."
    elif judged.known:
        trained += f"{judged.how} on {judged.n:,} known or drawn nodes{rare}."
    else:
        trained += f"{judged.how} on {judged.n:,} of them{rare}."
    took = "" if seconds is None else f" Took {seconds:,.0f} s."
    if len(trained + took) > WIDTH:  # the number and its unit stay in one line
        return [*_wrapped(head, most=2), *_wrapped(trained), f" {took}"]
    return [*_wrapped(head, most=2), trained + took]


def _calibration(metrics: dict[str, Any], judged: _Judged) -> list[str]:
    """Returns the verdict on P(rare), and how many rare nodes were predicted and observed."""
    p = judged.rare
    ends = _ends(p["mean_p_over_share_lower"], p["mean_p_over_share_upper"], 2)
    predicted = f"  {judged.nodes.capitalize()}: {p['mean_p'] * p['n']:,.0f} {judged.event} predicted"
    counted = f"{predicted}, {p['n_rare']:,} observed (ratio {p['mean_p_over_share']:.2f}, 95% CI {ends})"
    return [*_verdict(metrics), *_left_out(metrics), *_wrapped(counted, "    ")]


def _verdict(metrics: dict[str, Any]) -> list[str]:
    """Returns whether the probabilities can be read as such, and if not why, and what helps."""
    verdict = metrics["verdict"]
    sentence = verdict["sentence"][:1].upper() + verdict["sentence"][1:] + ("." if verdict["why"] else "")
    lines = _wrapped(f"{'CALIBRATION':<14}{sentence}", most=REASON_LINES)
    return lines + (_wrapped(f"  {verdict['why']}", most=REASON_LINES) if verdict["why"] else [])


def _left_out(metrics: dict[str, Any]) -> list[str]:
    """Returns the verdict on the leave-one-out models, where they are not trusted."""
    check = metrics["agreement"]
    if check is None or check["verdict"] == "trust":
        return []
    return _wrapped(f"  Leave-one-out {VERDICTS[check['verdict']]}: {check['reason']}", "    ", most=2)


def _detection(judged: _Judged) -> list[str]:
    """Returns how well rare nodes are ranked, next to a random order."""
    found = judged.detection
    rows = [("AUPRC", "auprc", found, found["prevalence"])]
    for at in budgets_of(found)[-1:]:
        top = f"top {at['nodes']:,.0f}"
        rows += [(f"Precision in {top}", "precision", at, found["prevalence"])]
        rows += [(f"Recall in {top}", "recall", at, at["share"])]
    head = f"{'DETECTION':<14}{judged.nodes}"
    lines = [f"{head:<31}{format(found['level'], '.0%') + ' CI':>17}{'random':>10}"]
    for label, name, values, random in rows:
        if values[name] is not None:
            ends = _ends(values[f"{name}_lower"], values[f"{name}_upper"], 3)
            lines.append(f"  {label:<22}{values[name]:>7.3f}{ends:>17}{random:>10.3f}")
    return lines


def _alerts(decision: dict[str, Any], unit: str) -> list[str]:
    """Returns which nodes are alerts, how good they were among test nodes, and what to expect of the others."""
    threshold, test = decision["threshold"], decision["test"]
    cut = decision.get("cut", f"{threshold:.3g}")
    rule = f"P(rare) >= {cut}" if threshold <= 1 or decision["alerts"] else f"no {unit} is one"
    lines = _wrapped(f"{'ALERTS':<14}{rule}; {decision['rule_sentence']}")
    if test is not None:
        false = test["alerts"] - test["hits"]
        lines += _wrapped(
            f"  Test {unit}s: {amount(test['alerts'], 'alert')}, {test['hits']:,} correct, {false:,} false, "
            f"{amount(test['misses'], f'rare {unit}')} missed{_cost(decision, test.get('cost', 0.0))}",
            "    ",
        )
    same = test is not None and decision["on"] == "held-out" and decision["nodes"] == test["nodes"]
    text = f"  {decision['on'].capitalize()} {unit}s: {amount(decision['alerts'], 'alert')}"
    if decision["caveat"] and decision["hits"] is None:
        text += f"; {decision['caveat']}"
    if decision["hits"] is not None:
        hits, covered = decision["hits"], decision["coverage"]
        text = "  Expected of them:" if same else f"{text}, expected"
        text += (
            f" {hits['expected']:,.0f} correct ({covered:.0%} CI {_ends(hits['low'], hits['high'], 0)}), "
            f"{decision['misses']['expected']:,.0f} missed{_cost(decision, **decision['cost'])}"
        )
    lines += _wrapped(text, "    ")
    if (risk := decision.get("amount_at_risk")) is not None:
        lines += _wrapped(f"  Amount at risk: {at_risk_words(risk['all'], risk['alerts'])}", "    ")
    if decision.get("tied") is not None:
        lines.append(f"  {decision['tied']['nodes']:,} {unit}s tie at the end of the budget; none of them is an alert")
    return lines + ["  Change with: --decide budget --budget 50 (of train or predict)"] * (decision["rule"] == "cost")


def _cost(decision: dict[str, Any], expected: float, low: float | None = None, high: float | None = None) -> str:
    """Returns what misses and false alarms cost, where a miss costs its amount."""
    ends = "" if low is None or high is None else f" ({_ends(low, high, 0)})"
    return f"; misses and false alarms cost {expected:,.0f}{ends}" if decision.get("by_amount") else ""


def _class_calibration(metrics: dict[str, Any], judged: _Judged) -> list[str]:
    """Returns how far the probabilities of several classes are from what was observed."""
    side, raw = metrics["report"].get(metrics["target"]), metrics["report"]["raw"]
    p = raw if side is None else side
    before = "" if side is None else f" (before: {raw['nll']:.3f})"
    lines = [
        *_verdict(metrics),
        f"  ECE {p['ece']:.3f} (expected if calibrated: {p['ece_noise_floor']:.3f}), log loss {p['nll']:.3f}{before}",
    ]
    rows = _classes(metrics)
    ratios = sorted((row["mean_p_over_share"], row["name"]) for row in rows if row["mean_p_over_share"] is not None)
    if ratios:
        (low, first), (high, last) = ratios[0], ratios[-1]
        lines += _wrapped(f"  Predicted / observed rate: {low:.2f} ({first}) to {high:.2f} ({last})", "    ", most=2)
    return [*lines, *_left_out(metrics)]


def _class_detection(metrics: dict[str, Any], judged: _Judged) -> list[str]:
    """Returns how well the rarest classes are found, and all of them together."""
    rows, side = _classes(metrics), metrics["report"].get(metrics["target"], metrics["report"]["raw"])
    head = f"{'DETECTION':<14}{judged.nodes}"
    lines = [f"{head:<31}{'nodes':>8}{'recall':>8}{'precision':>11}{'AUPRC':>8}{'random':>8}"]
    for row in rows[:SHOWN_CLASSES]:
        name = textwrap.shorten(printable(row["name"]), 29, placeholder=" ...")[:29]
        cells = (_number(row["recall"]), _number(row["precision"]), _number(row["auprc"]), f"{row['share']:.2f}")
        widths = (8, 11, 8, 8)
        shown = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {name:<29}{row['n']:>8,}{shown}")
    more = len(rows) - SHOWN_CLASSES
    lines += [f"  {amount(more, 'more class', 'more classes')}, less rare: --verbose"] * (more > 0)
    return [*lines, f"  All classes: accuracy {side['accuracy']:.3f}, macro-F1 {side['macro_f1']:.3f}"]


def _classes(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the measures of each class, the rarest first."""
    rows = metrics["classes"].get(metrics["target"], metrics["classes"]["raw"])
    return sorted(rows, key=lambda row: row["n"])


def _notes(notes: list[str], room: int) -> list[str]:
    """Returns the most important notes that there is room for, and how many more there are."""
    lines, shown = list[str](), 0
    for note in sorted(notes, key=lambda note: not any(words in note for words in SERIOUS)):
        text = _wrapped(f"Note: {note}", most=NOTE_LINES)
        counted = shown + 1 < len(notes)  # which needs a line, as the blank one does
        if shown == NOTES or len(lines) + len(text) + 1 + counted > room:
            break
        lines, shown = lines + text, shown + 1
    left = len(notes) - shown
    if left:
        more = amount(left, "more note" if shown else "note")
        lines.append(f"{more} in metrics.json and the report; --verbose prints {'it' if left == 1 else 'them'}")
    return ["", *lines] if lines else []


def _tables(metrics: dict[str, Any]) -> str:
    """Returns every measure before and after calibration, the detectors, and every note."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, markup=False, emoji=False)
    many, known = metrics.get("task") == "classes", metrics["judged_on"] == KNOWN_OR_DRAWN
    title = f"{metrics['graph']['name']}: {_Judged(metrics).nodes}"
    lines = [EXPECTED]
    if len(metrics["report"]) > 1:
        lines.append(OF_KNOWN if known else f"P(rare) in tables is for: {SIDES[metrics['target']]} (--calibrate-for)")
    if many:
        side = metrics["target"] if metrics["target"] in metrics["classes"] else "raw"
        by_class = f"by class, {SIDES[side]}"
        tables = [table_of(*before_and_after(metrics, TOGETHER), title)]
        tables.append(table_of(CLASS_HEAD, class_rows(metrics["classes"][side]), by_class))
        rare = listed(metrics["rare_classes"]) if metrics["rare_classes"] else "none"
        lines.append(f"rare classes (less than half as common as with equal sizes): {rare}")
    else:
        found = _Judged(metrics).detection
        tables = [table_of(detection_head(found), detection_rows(found), title)]
        tables.append(table_of(*before_and_after(metrics, OF_RARE)))
        lines += _of_rare(metrics)
    if metrics["agreement"] is not None:
        lines.append(f"leave-one-out check: {metrics['agreement']['verdict']} ({metrics['agreement']['reason']})")
    if not many:
        lines += _decision(metrics["decision"])
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    for table in tables:
        console.print(table, highlight=False)
    text = "\n".join([*lines, *(f"note: {note}" for note in metrics["notes"])]) + "\n"
    return out.getvalue() + in_unit(text, _Judged(metrics).unit)


def _of_rare(metrics: dict[str, Any]) -> list[str]:
    raw, covered, lines = metrics["p_rare"]["raw"], metrics["interval_coverage"], list[str]()
    if raw["n"] != metrics["n_judged"]:
        p = event_of([raw])
        lines.append(f"{p} and detection: {raw['n']:,} {raw['judged_on']} nodes that are a random sample")
    shown = ", ".join(f"{name} {covered[name]:.1%}" for name in ("all", "rare", "rest") if covered[name] is not None)
    return [*lines, f"intervals contain the label: {shown} (target {covered['wanted']:.0%})"]


def _decision(decision: dict[str, Any]) -> list[str]:
    """Returns what is an alert, and what to expect of it."""
    where = amount(decision["nodes"], f"{decision['on']} node")
    lines = [f"decision on {where}: {decision['sentence']}"]
    return lines + ([f"  {decision['caveat']}"] if decision["caveat"] else [])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
