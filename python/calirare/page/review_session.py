"""What the reviewer sees: the queue of a run, where in it one is, and why each node stands there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from calirare._util.amounts import amount, class_words, shortened
from calirare._util.errors import InputError
from calirare._util.pages import template_of
from calirare._util.run_files import RECALIBRATION
from calirare.explain import (
    Explainer,
    Explanation,
    draw,
    log_odds_of,
    tables_of,
    two_columns,
    written,
)
from calirare.page.messages import Clash, Message, clash, last, saved, taken_back, when
from calirare.page.verdicts import RARE, REST, SKIP, UNSURE, Answer, Verdicts
from calirare.run import SavedRun

TEMPLATE = "queue.html"
KEYS = {RARE: "F", REST: "N", UNSURE: "U", SKIP: "S"}  # and 1 to 4, in this order
OWN = {UNSURE: "no class", SKIP: "later"}  # what our buttons say more, where a class is called as they are
FEW = 4  # answers that stand in one row
Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A node of the queue.

    Attributes:
        place: in the queue, from 0.
        node: what the user calls it.
        p: P(rare) as the run has it; of many classes the probability of the predicted one.
        label: the class that the data give it; None where it has no label.
        what: what `p` is the probability of.
        more: what else there is to say of it.
    """

    place: int
    node: str
    p: float
    label: str | None
    what: str
    more: str


def keys_of(words: Mapping[str, str]) -> dict[str, str]:
    """Returns the key of each answer where there are many classes.

    The number of one digit that a class's name ends with, where some do and no two alike; else the first nine have
    their place. Others have none.

    Args:
        words: each class, and what it is called.
    """
    ends = {a: "".join(re.findall(r"(?<!\d)\d$", name)) for a, name in words.items()}
    used = [key for key in ends.values() if key]
    if not used or len(set(used)) < len(used):
        ends = {a: str(i) if i < 10 else "" for i, a in enumerate(words, 1)}
    return ends | {UNSURE: "U", SKIP: "S"}


def queue_of(saved: SavedRun) -> tuple[Case, ...]:
    """Returns the queue of a run, the nodes of review.csv in their order, with P(rare) by the run's map as it is now.

    Raises:
        InputError: the file is missing or damaged, or names no node.
    """
    table, names = saved.review(), [class_words(name) for name in saved.scorer.class_names]
    said = table["p_rare"].to_numpy(dtype=np.float64)
    if (saved.folder / RECALIBRATION).is_file():  # the table is of the map before
        raw = log_odds_of(torch.from_numpy(table["p_raw"].to_numpy(dtype=np.float64, copy=True)))
        mapping = saved.scorer.calibrators.get("population")
        said = (raw.sigmoid() if mapping is None else mapping.transform(two_columns(raw))[:, 1]).numpy()
    threshold = saved.scorer.threshold
    return tuple(
        Case(
            place,
            node,
            float(p),
            names[y] if y in (0, 1) else None,
            f"P({names[1]})",
            f"{'an alert' if p >= threshold else 'no alert'} at {threshold:.3g}",
        )
        for place, (node, p, y) in enumerate(zip(table["node"], said, table["y"].astype(int), strict=True))
    )


def queue_of_classes(saved: SavedRun) -> tuple[Case, ...]:
    """Returns the queue of a run of many classes, see `queue_of`."""
    table, names = saved.review(), saved.class_names
    p = table[[f"p_{name}" for name in names]].to_numpy(dtype=np.float64)
    words, cases = [class_words(name) for name in names], []
    for place, (node, y) in enumerate(zip(table["node"], table["y"], strict=True)):
        best, second = np.argsort(-p[place], kind="stable")[:2]
        more, label = f"or {words[second]} {written(p[place][second])}", class_words(y) if y else None
        cases.append(Case(place, node, float(p[place][best]), label, words[best], more))
    return tuple(cases)


class ReviewSession:
    """The queue of a run with the answers so far; one thread at a time may use it.

    Args:
        saved: the run.
        verdicts: the answers.
        explainer: makes what explains nodes, when the first is looked at.
        why_not: why there are no explanations, a sentence; empty: there are.
    """

    def __init__(
        self,
        saved: SavedRun,
        verdicts: Verdicts,
        explainer: Callable[[], Explainer] | None,
        why_not: str = "",
    ) -> None:
        many = saved.settings.many
        self.cases = queue_of_classes(saved) if many else queue_of(saved)
        if not self.cases:
            raise InputError(f"run {saved.folder}: review.csv names no node, so there is nothing to review")
        self.verdicts, self.why_not = verdicts, why_not
        self.class_names, self.name = saved.scorer.class_names, saved.folder.resolve().name
        self.words = {a: class_words(n) for a, n in zip(verdicts.answers, self.class_names, strict=False)}
        taken = {name.casefold() for name in self.words.values()}
        self._own = {answer: f"{answer}: {what}" if answer in taken else answer for answer, what in OWN.items()}
        self.what = None if many else f"P({self.words[RARE]})"
        self.keys = keys_of(self.words) if many else KEYS
        self._saved, self._make = saved, explainer
        self._made: Explainer | None = None
        self._explained: dict[str, Explanation] = {}
        self._page = template_of("calirare.page", TEMPLATE)

    def next(self, answers: dict[str, Answer]) -> Case | None:
        """Returns the first node without an answer, then those that were skipped, the longest ago first; None: done."""
        fresh = next((case for case in self.cases if case.node not in answers), None)
        if fresh is not None:
            return fresh
        skipped = {case.node: case for case in self.cases if answers[case.node].answer == SKIP}
        return next((skipped[node] for node in answers if node in skipped), None)

    def case(self, place: int) -> Case | None:
        """Returns the node at a place, None where there is none."""
        return self.cases[place] if 0 <= place < len(self.cases) else None

    def place(self, node: str) -> int | None:
        """Returns where in the queue a node is; None: it is not."""
        return next((case.place for case in self.cases if case.node == node), None)

    def counts(self, answers: dict[str, Answer]) -> Counter[str]:
        """Returns how many nodes of the queue have each answer."""
        return Counter(answers[case.node].answer for case in self.cases if case.node in answers)

    def progress(self, answers: dict[str, Answer]) -> str:
        """Returns how far the review is, a sentence without its full stop."""
        counts = self.counts(answers)
        done = counts.total() - counts[SKIP]
        told = [answer for answer in self.keys if answer in self.words and (self.what or counts[answer])]
        parts = [
            *(f"{counts[answer]} {self.words[answer]}" for answer in told),
            f"{counts[UNSURE]} {self._own[UNSURE]}",
        ]
        skipped = f"; {counts[SKIP]} skipped" if counts[SKIP] else ""
        return f"{done} of {len(self.cases)} decided: {', '.join(parts)}{skipped}"

    def explanation(self, case: Case) -> Explanation | None:
        """Returns why a node has its P(rare), or P of its likeliest class, made when it is first asked for.

        None where nothing can be said.
        """
        if case.node not in self._explained and self._make is not None:
            try:
                self._made = self._made or self._make()
                self._explained[case.node] = self._saved.explain([case.node], explainer=self._made)[0]
            except InputError as error:
                self._make, self.why_not = None, str(error)
        return self._explained.get(case.node)

    def picture(self, case: Case) -> bytes | None:
        """Returns a node among its neighbours as PNG, None of one that has none or cannot be explained."""
        why = self.explanation(case)
        if why is None or not why.edges or self._made is None:
            return None
        with TemporaryDirectory() as folder:
            return draw(why, self._made.context, Path(folder) / "picture.png").read_bytes()

    def page(
        self, case: Case | None, nonce: str, up: str = "", told: Message | None = None, other: Clash | None = None
    ) -> str:
        """Returns the page of a node.

        Args:
            case: the node; None: all are decided.
            nonce: of our script and style.
            up: leads from the page's address to the first page.
            told: of the answer that led here; None: of the last one.
            other: an answer of another page, in whose favour the reviewer's was not saved.
        """
        answers = self.verdicts.latest()
        values: Values = {"case": case, "up": up or "./", "told": told, "clash": other}
        if case is not None:
            why = self.explanation(case)
            values |= {"why": why, "tables": [] if why is None else [_narrow(*each) for each in tables_of(why)]}
            said = answers.get(case.node)
            values |= {"said": None if said is None else self.words_for(said), "known": said.number if said else 0}
        return self._rendered(answers, nonce, values)

    def after(self, number: int, nonce: str, up: str) -> str:
        """Returns the page of the next node, which says that an answer was saved."""
        answers = self.verdicts.latest()
        return self.page(self.next(answers), nonce, up, saved(number, answers, self.words_for))

    def back(self, said: Answer, nonce: str, up: str) -> str:
        """Returns the page of a node whose answer was to be taken back, which says what became of that."""
        place = self.place(said.node)
        case = self.next(self.verdicts.latest()) if place is None else self.cases[place]
        return self.page(case, nonce, up, taken_back(said, self.verdicts, self.words_for))

    def clash(self, case: Case, answer: str, nonce: str, up: str) -> str:
        """Returns the page of a node that was answered while its page was open: either answer can be taken."""
        now = self.verdicts.latest().get(case.node)
        if now is None or not clash(now, 0, answer):
            return self.page(case, nonce, up)
        told = f"Not saved: {shortened(case.node)} was answered meanwhile, {self.words_for(now)}, {when(now)}."
        return self.page(case, nonce, up, None, Clash(now, answer, told))

    def overview(self, nonce: str) -> str:
        """Returns the page with the whole queue."""
        answers = self.verdicts.latest()
        said = {node: self.words_for(each) for node, each in answers.items()}
        every = [(case, written(case.p), said.get(case.node)) for case in self.cases]
        return self._rendered(answers, nonce, {"every": every})

    def _rendered(self, answers: dict[str, Answer], nonce: str, given: Values) -> str:
        values: Values = {
            "every": None,
            "case": None,
            "why": None,
            "tables": [],
            "said": None,
            "clash": None,
            "up": "./",
        } | given
        values["told"] = values.get("told") or last(answers, self.words_for)
        counts = self.counts(answers)
        keys = enumerate(self.keys.items(), 1)  # of few answers each has its number too
        numbers = len(self.keys) <= FEW
        buttons = [(answer, self._words_of(answer), key, i if numbers else "") for i, (answer, key) in keys]
        labels = sum(said.answer in self.words for said in answers.values())  # of nodes that have left the queue too
        return self._page.render(
            **values,
            run=self.name,
            what=self.what,
            p="" if values["case"] is None else written(values["case"].p),
            n=len(self.cases),
            done=counts.total() - counts[SKIP],
            progress=self.progress(answers),
            buttons=buttons,
            few=len(self.keys) <= FEW,
            labels=labels,
            moved=self.verdicts.moved,
            exported=amount(labels, "label"),
            updates=not self._saved.settings.positive_only,
            word=self._words_of,
            untold=f"Why it has this {self.what or 'class'} is not here: {self.why_not}",
            nonce=nonce,
        )

    def words_for(self, said: Answer) -> str:
        """Returns what a node is said to be."""
        return {SKIP: "skipped"}.get(said.answer, self._words_of(said.answer))

    def _words_of(self, answer: str) -> str:
        return self.words.get(answer) or self._own[answer]


def _narrow(head: Any, rows: Any) -> tuple[list[str], list[list[str]]]:
    """Returns a table without its columns that have no name, a row of words alone as the end of the one above."""
    kept = [i for i, name in enumerate(head) if name]
    cells: list[list[str]] = []
    for row in rows:
        if any(row[1:]):
            cells.append([row[i] for i in kept])
        else:
            cells[-1][0] += f" {row[0].strip()}"
    return [head[i] for i in kept], cells
