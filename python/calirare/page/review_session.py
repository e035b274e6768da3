"""What the reviewer sees: the queue of a run, where in it one is, and why each node stands there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from calirare._util.amounts import amount, class_words, shortened
from calirare._util.errors import InputError
from calirare._util.pages import template_of
from calirare._util.run_files import RECALIBRATION
from calirare.explain import Explainer, Explanation, draw, log_odds_of, two_columns, written
from calirare.page.card import Cards
from calirare.page.verdicts import RARE, REST, SKIP, UNSURE, Answer, Verdicts
from calirare.run import SavedRun

TEMPLATE = "queue.html"
KEYS = {RARE: "F", REST: "N", UNSURE: "U", SKIP: "S"}  # and 1 to 4, in this order
FEW = 4  # answers that stand in one row
Values = dict[str, Any]
Facts = tuple[float, str | None, str, str]  # of a `Case`: p, label, what and more


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
    """Returns the key of each answer where there are many classes: the first nine have their place, others none."""
    return {a: str(i) if i < 10 else "" for i, a in enumerate(words, 1)} | {UNSURE: "U", SKIP: "S"}


def queue_of(saved: SavedRun) -> tuple[Case, ...]:
    """Returns the queue of a run, the nodes of review.csv in their order, with P(rare) by the run's calibrator now.

    Raises:
        InputError: the file is missing or damaged, or names no node.
    """
    table = saved.review()
    each = _each_class if saved.settings.many else _each_rare
    rows = zip(table["node"], each(saved, table), strict=True)
    return tuple(Case(place, node, *facts) for place, (node, facts) in enumerate(rows))


def _each_rare(saved: SavedRun, table: pd.DataFrame) -> Iterator[Facts]:
    """Yields P(rare) of each node, its label, what the probability is of, and whether it is an alert."""
    names, deciding = [class_words(name) for name in saved.scorer.class_names], saved.settings.decision
    rule = deciding.rule_of(table[saved.settings.data.amount].to_numpy()) if deciding.by_amount else deciding.rule
    thresholds = np.broadcast_to(saved.scorer.threshold / rule.weights, len(table))
    p_rare = table["p_rare"].to_numpy(dtype=np.float64)
    if (saved.folder / RECALIBRATION).is_file():  # the table is of the calibrator before
        raw = log_odds_of(torch.from_numpy(table["p_raw"].to_numpy(dtype=np.float64, copy=True)))
        mapping = saved.scorer.calibrators.get("population")
        p_rare = (raw.sigmoid() if mapping is None else mapping.transform(two_columns(raw))[:, 1]).numpy()
    for p, y, threshold in zip(p_rare, table["y"].astype(int), thresholds, strict=True):
        alert = f"{'an alert' if p >= threshold else 'no alert'} at {threshold:.3g}"
        yield float(p), names[y] if y in (0, 1) else None, f"P({names[1]})", alert


def _each_class(saved: SavedRun, table: pd.DataFrame) -> Iterator[Facts]:
    """Yields P of each node's likeliest class, its label, that class, and the next likeliest one."""
    words = [class_words(name) for name in saved.class_names]
    every = table[[f"p_{name}" for name in saved.class_names]].to_numpy(dtype=np.float64)
    for p, y in zip(every, table["y"], strict=True):
        best, second = np.argsort(-p, kind="stable")[:2]
        yield float(p[best]), class_words(y) if y else None, words[best], f"or {words[second]} {written(p[second])}"


class ReviewSession:
    """The queue of a run with the answers so far; one thread at a time may use it.

    Args:
        saved: the run.
        verdicts: the answers.
        explainer: makes what explains nodes, when the first is looked at.
        why_not: why there are no explanations, a sentence; empty: there are.
    """

    def __init__(
        self, saved: SavedRun, verdicts: Verdicts, explainer: Callable[[], Explainer] | None, why_not: str = ""
    ) -> None:
        many = saved.settings.many
        self.cases = queue_of(saved)
        if not self.cases:
            raise InputError(f"run {saved.folder}: review.csv names no node, so there is nothing to review")
        self.verdicts, self.why_not = verdicts, why_not
        self.class_names, self.name = saved.scorer.class_names, saved.folder.resolve().name
        self.words = {a: class_words(n) for a, n in zip(verdicts.answers, self.class_names, strict=False)}
        self.what = None if many else f"P({self.words[RARE]})"
        self.keys = keys_of(self.words) if many else KEYS
        self._saved, self._make = saved, explainer
        self._made: Explainer | None = None
        self._cards: Cards | None = None
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
        parts = [*(f"{counts[answer]} {self.words[answer]}" for answer in told), f"{counts[UNSURE]} {UNSURE}"]
        skipped = f"; {counts[SKIP]} skipped" if counts[SKIP] else ""
        return f"{done} of {len(self.cases)} answered: {', '.join(parts)}{skipped}"

    def explanation(self, case: Case) -> Explanation | None:
        """Returns why a node has its P(rare), or P of its likeliest class, made when it is first asked for.

        None where nothing can be said.
        """
        if case.node not in self._explained and self._make is not None:
            try:
                self._made = self._made or self._make()
                self._cards = self._cards or Cards(self._made.context)
                self._explained[case.node] = self._saved.explain([case.node], explainer=self._made)[0]
            except InputError as error:
                self._make, self.why_not = None, str(error)
        return self._explained.get(case.node)

    def picture(self, case: Case) -> bytes | None:
        """Returns a node among its neighbours as PNG, None of one that has none or cannot be explained."""
        why = self.explanation(case)
        if why is None or self._made is None or self._cards is None or not self._cards.of(why).picture:
            return None
        with TemporaryDirectory() as folder:
            return draw(why, self._made.context, Path(folder) / "picture.png").read_bytes()

    def page(self, case: Case | None, nonce: str, up: str = "./", not_saved: bool = False) -> str:
        """Returns the page of a node.

        Args:
            case: the node; None: all are decided.
            nonce: of our script and style.
            up: leads from the page's address to the first page.
            not_saved: whether an answer was not saved, as the node had been answered while its page was open.
        """
        answers, values = self.verdicts.latest(), Values(case=case, up=up)
        if case is not None:
            why = self.explanation(case)
            values |= {"card": None if why is None or self._cards is None else self._cards.of(why)}
            said = answers.get(case.node)
            values |= {"said": None if said is None else self.words_for(said), "known": said.number if said else 0}
            if said is not None and not_saved:
                values["not_saved"] = f"Not saved: somebody answered it meanwhile. {self._of(said)}"
        return self._rendered(answers, nonce, values)

    def _of(self, said: Answer) -> str:
        """Returns an answer and when it was given, to the minute."""
        return f"{shortened(said.node)} is {self.words_for(said)}, {said.time[:10]} {said.time[11:16]} UTC."

    def overview(self, nonce: str) -> str:
        """Returns the page with the whole queue."""
        answers = self.verdicts.latest()
        said = {node: self.words_for(each) for node, each in answers.items()}
        every = [(case, written(case.p), said.get(case.node)) for case in self.cases]
        return self._rendered(answers, nonce, {"every": every})

    def _rendered(self, answers: dict[str, Answer], nonce: str, given: Values) -> str:
        values: Values = {"every": None, "case": None, "card": None, "said": None, "not_saved": "", "up": "./"} | given
        last = next(reversed(answers.values()), None)
        counts = self.counts(answers)
        keys = enumerate(self.keys.items(), 1)  # of few answers each has its number too
        numbers = len(self.keys) <= FEW
        buttons = [(answer, self._words_of(answer), key, i if numbers else "") for i, (answer, key) in keys]
        labels = sum(said.answer in self.words for said in answers.values())  # of nodes that have left the queue too
        return self._page.render(
            **values,
            last=last,
            of_last="" if last is None else f"Last answer: {self._of(last)}",
            run=self.name,
            what=self.what,
            p="" if values["case"] is None else written(values["case"].p),
            n=len(self.cases),
            unit=self._saved.settings.data.unit,
            done=counts.total() - counts[SKIP],
            progress=self.progress(answers),
            buttons=buttons,
            few=len(self.keys) <= FEW,
            labels=labels,
            exported=amount(labels, "label"),
            updates=not self._saved.settings.positive_only,
            no_reasons=f"No reasons for this {self.what or 'class'}: {self.why_not}",
            nonce=nonce,
        )

    def words_for(self, said: Answer) -> str:
        """Returns what a node is said to be."""
        return {SKIP: "skipped"}.get(said.answer, self._words_of(said.answer))

    def _words_of(self, answer: str) -> str:
        return self.words.get(answer, answer)
