"""What a run said of another graph: the JSON of `calirare predict`, for the page."""

from __future__ import annotations

from typing import Any

from calirare._util.amounts import amount, class_words, count_of
from calirare.page.content import sentence

VERDICTS = ("ok", "caution", "do not trust")
CLASS_OF = {"ok": "trust", "caution": "caution", "do not trust": "do"}  # of a verdict, in the style of the page


def told_of(said: dict[str, Any]) -> dict[str, Any]:
    """Returns what the JSON of a scoring says: `verdict` with its `verdict_class`, `sentences`, and `rows` of drift.

    With many classes also `classes`: the name of each, how many nodes it is the likeliest of, and its mean P.

    A row holds part, name, what is compared, value there, value in training, bound and verdict; the most doubtful is
    first.
    """
    verdict, drift, shares = said["verdict"], said["drift"], said.get("estimated_shares", {})
    sentences = [f"{amount(said['nodes'], 'node')} scored." if shares else _expected(said)]
    if verdict != "ok" and not shares:
        sentences.append(sentence(f"verdict of the training run: {said['run']['sentence']}"))
    sentences.append("Drift was not checked." if drift is None else sentence(f"drift: {drift['sentence']}"))
    findings = [] if drift is None else sorted(drift["findings"], key=lambda each: -VERDICTS.index(each["verdict"]))
    rows = [_row(each) for each in findings]
    classes = [(class_words(k), f"{said['predicted'][k]:,}", f"{share:.2%}") for k, share in shares.items()]
    style = {"verdict": verdict, "verdict_class": CLASS_OF[verdict]}
    return style | {"sentences": sentences, "rows": rows, "classes": classes}


def _expected(said: dict[str, Any]) -> str:
    nodes, low, high = amount(said["nodes"], "node"), said["expected_rare_low"], said["expected_rare_high"]
    between = "" if low is None else f" ({100 * said['coverage']:.0f} %: {count_of(low)} to {count_of(high)})"
    rare, mean = said["expected_rare"], f"mean P(rare) {said['mean_p_rare']:.3g}"
    alerts, cut = amount(said["alerts"], "alert"), said.get("cut", f"{said['threshold']:.3g}")
    if said.get("caveat"):
        return f"{sentence(mean)[:-1]} among {nodes}: {said['caveat']}; {alerts} from P(rare) of {cut} on."
    expected = f"{count_of(rare)}{between} among {nodes} are expected to be rare, {mean}"
    return f"{expected}; {alerts} from P(rare) of {cut} on."


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    numbers = ("" if each[key] is None else f"{each[key]:.4g}" for key in ("current", "reference", "critical"))
    return each["part"], each["name"], each["what"], *numbers, each["verdict"]
