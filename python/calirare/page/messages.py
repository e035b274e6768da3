"""Messages of the review page: an answer was saved, taken back, or changed meanwhile by another page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calirare._util.amounts import shortened
from calirare.page.verdicts import SKIP, Answer, Verdicts

Words = Callable[[Answer], str]


@dataclass(frozen=True)
class Message:
    """What stands above a node.

    Attributes:
        sentence: of the answer that led here; empty where none did.
        undo: the answer that the page's button takes back; None: it has no button.
        of_undo: which answer that is, where `sentence` does not say it.
    """

    sentence: str = ""
    undo: Answer | None = None
    of_undo: str = ""


@dataclass(frozen=True)
class Clash:
    """An answer that was not saved, since the node was answered while its page was open.

    Attributes:
        now: the answer that stands.
        answer: the one that was not saved.
        sentence: says so.
    """

    now: Answer
    answer: str
    sentence: str


def last(answers: Mapping[str, Answer], words: Words, before: int | None = None, sentence: str = "") -> Message:
    """Returns the message on the last answer that can be taken back, with a number below `before`."""
    below = [said for said in answers.values() if before is None or said.number < before]
    found = below[-1] if below else None
    of_undo = "" if found is None else f"Last answer: {shortened(found.node)} is {words(found)}, {when(found)}."
    return Message(sentence, found, of_undo)


def saved(number: int, answers: Mapping[str, Answer], words: Words) -> Message:
    """Returns the message after an answer; if it was replaced since, the message on the last one."""
    said = next((each for each in answers.values() if each.number == number), None)
    return last(answers, words) if said is None else Message(f"Saved: {shortened(said.node)} is {words(said)}.", said)


def taken_back(said: Answer, verdicts: Verdicts, words: Words) -> Message:
    """Returns the message after taking an answer back, and the answer before it."""
    answers = verdicts.latest()
    if verdicts.undone(said.number):
        return last(answers, words, said.number, f"Taken back: {shortened(said.node)} is {words(said)}, {when(said)}.")
    now = answers[said.node]
    again = f"{shortened(said.node)} was answered again meanwhile, {words(now)}, {when(now)}"
    return last(answers, words, None, f"Nothing was taken back: {again}.")


def clash(now: Answer | None, known: int, answer: str) -> bool:
    """Returns whether an answer would replace another one that its page did not know of.

    Args:
        now: the node's answer.
        known: number of the answer that the page showed, 0 where it showed none.
        answer: the new one.
    """
    return now is not None and now.number != known and now.answer not in (SKIP, answer)


def when(said: Answer) -> str:
    """Returns when an answer was given, to the minute."""
    return f"{said.time[:10]} {said.time[11:16]} UTC"
