"""What a run said of another graph: the JSON of `calirare predict`, for the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calirare._util.amounts import amount, count_of
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare.page.content import sentence

VERDICTS = ("ok", "caution", "do not trust")
CLASS_OF = {"ok": "trust", "caution": "caution", "do not trust": "do"}  # of a verdict, in the style of the page


@dataclass(frozen=True)
class Elsewhere:
    """What was said of another graph.

    Attributes:
        name: of the graph.
        verdict: whether P(rare) may be relied on there.
        verdict_class: the same in the style of the page.
        sentences: what to expect there, and what differs.
        rows: part, name, what is compared, here, in training, bound, verdict; the most doubtful first.
    """

    name: str
    verdict: str
    verdict_class: str
    sentences: list[str]
    rows: list[tuple[str, ...]]


def read_elsewhere(path: Path) -> Elsewhere:
    """Returns what a JSON file of `calirare predict` says.

    Raises:
        InputError: the file is missing, or is another one.
    """
    try:
        return told_of(parse_json(read_text(path, "report: --drift")))
    except OSError as error:
        raise InputError(f"report: --drift must be a file that can be read, got {path}: {error.strerror}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"report: --drift must be the JSON file that `calirare predict` writes next to its table, got {path}"
        ) from error


def told_of(said: dict[str, Any]) -> Elsewhere:
    """Returns what the JSON of a scoring says."""
    verdict, drift = said["verdict"], said["drift"]
    if verdict not in VERDICTS:
        raise ValueError(verdict)
    sentences = [f"{_expected(said)}; {amount(said['alerts'], 'alert')} from P(rare) of {said['threshold']:.3g} on."]
    if verdict != "ok":
        sentences.append(sentence(f"the run's verdict: {said['run']['sentence']}"))
    if drift is None:
        return Elsewhere(said["graph"], verdict, CLASS_OF[verdict], [*sentences, "Drift was not checked."], [])
    sentences.append(sentence(f"drift: {drift['sentence']}"))
    findings = sorted(drift["findings"], key=lambda each: -VERDICTS.index(each["verdict"]))
    return Elsewhere(said["graph"], verdict, CLASS_OF[verdict], sentences, [_row(each) for each in findings])


def _expected(said: dict[str, Any]) -> str:
    nodes, low, high = amount(said["nodes"], "node"), said["expected_rare_low"], said["expected_rare_high"]
    between = "" if low is None else f" ({100 * said['coverage']:.0f} %: {count_of(low)} to {count_of(high)})"
    rare, mean = said["expected_rare"], said["mean_p_rare"]
    return f"{count_of(rare)}{between} among {nodes} are expected to be rare, mean P(rare) {mean:.3g}"


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    numbers = ("" if each[key] is None else f"{each[key]:.4g}" for key in ("current", "reference", "critical"))
    return each["part"], each["name"], each["what"], *numbers, each["verdict"]
