"""What the reviewer sees: the queue of a run, where in it one is, and why each node stands there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calirare._util.amounts import amount, class_words
from calirare._util.errors import InputError
from calirare._util.pages import template_of
from calirare.explain import Explainer, Explanation, draw, tables_of, written
from calirare.page.verdicts import RARE, REST, SKIP, UNSURE, Said, Verdicts
from calirare.run import SavedRun, read_review

TEMPLATE = "queue.html"
KEYS = {RARE: "F", REST: "N", UNSURE: "U", SKIP: "S"}  # and 1 to 4, in this order
Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A node of the queue.

    Attributes:
        place: in the queue, from 0.
        node: what the user calls it.
        p_rare: P(rare) as the run has it.
        label: the class that the data give it; None where it has no label.
    """

    place: int
    node: str
    p_rare: float
    label: str | None


def queue_of(saved: SavedRun) -> tuple[Case, ...]:
    """Returns the queue of a run, the nodes of review.csv in their order.

    Raises:
        InputError: the file is missing or damaged, or names no node.
    """
    table, names = read_review(saved.folder), [class_words(name) for name in saved.scorer.class_names]
    cases = tuple(
        Case(place, node, float(p), names[y] if y in (0, 1) else None)
        for place, (node, p, y) in enumerate(zip(table["node"], table["p_rare"], table["y"].astype(int), strict=True))
    )
    if not cases:
        raise InputError(f"run {saved.folder}: review.csv names no node, so there is nothing to review")
    return cases


class Desk:
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
        self.cases, self.verdicts, self.why_not = queue_of(saved), verdicts, why_not
        self.class_names = saved.scorer.class_names[:2]
        self.rest, self.rare = (class_words(name) for name in self.class_names)
        self.threshold, self.name = saved.scorer.threshold, saved.folder.resolve().name
        self._saved, self._make = saved, explainer
        self._made: Explainer | None = None
        self._explained: dict[str, Explanation] = {}
        self._page = template_of("calirare.page", TEMPLATE)

    def next(self, answers: dict[str, Said]) -> Case | None:
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

    def counts(self, answers: dict[str, Said]) -> Counter[str]:
        """Returns how many nodes of the queue have each answer."""
        return Counter(answers[case.node].answer for case in self.cases if case.node in answers)

    def progress(self, answers: dict[str, Said]) -> str:
        """Returns how far the review is, a sentence without its full stop."""
        counts = self.counts(answers)
        done = counts.total() - counts[SKIP]
        parts = [f"{counts[RARE]} {self.rare}", f"{counts[REST]} {self.rest}", f"{counts[UNSURE]} unsure"]
        skipped = f"; {counts[SKIP]} skipped" if counts[SKIP] else ""
        return f"{done} of {len(self.cases)} decided: {', '.join(parts)}{skipped}"

    def explanation(self, case: Case) -> Explanation | None:
        """Returns why a node has its P(rare), made when it is first asked for; None where nothing can be said."""
        if case.node not in self._explained and self._make is not None:
            try:
                self._made = self._made or self._make()
                found = self._saved.explain([case.node], explainer=self._made)
                self._explained[case.node] = found[0]
            except InputError as error:
                self._make, self.why_not = None, str(error)
        return self._explained.get(case.node)

    def picture(self, case: Case) -> bytes | None:
        """Returns a node among its neighbours as PNG, None of one that has none or cannot be explained."""
        why = self.explanation(case)
        if why is None or not why.edges or self._made is None:
            return None
        with TemporaryDirectory() as folder:
            return draw(why, self._made.subject, Path(folder) / "picture.png").read_bytes()

    def page(self, case: Case | None, nonce: str, up: str = "") -> str:
        """Returns the page of a node, None: that all are decided; `up` leads from its address to the first page."""
        answers = self.verdicts.latest()
        values: Values = {"case": case, "up": up or "./"}
        if case is not None:
            why = self.explanation(case)
            values |= {"why": why, "tables": [] if why is None else [_narrow(*each) for each in tables_of(why)]}
            values |= {"said": self._words(answers.get(case.node))}
        return self._rendered(answers, nonce, values)

    def overview(self, nonce: str) -> str:
        """Returns the page with the whole queue."""
        answers = self.verdicts.latest()
        every = [(case, written(case.p_rare), self._words(answers.get(case.node))) for case in self.cases]
        return self._rendered(answers, nonce, {"every": every})

    def _rendered(self, answers: dict[str, Said], nonce: str, given: Values) -> str:
        values: Values = {"every": None, "case": None, "why": None, "tables": [], "said": None, "up": "./"} | given
        counts, last = self.counts(answers), next(reversed(answers.values()), None)
        buttons = [(answer, self._words_of(answer), key, i) for i, (answer, key) in enumerate(KEYS.items(), 1)]
        return self._page.render(
            **values,
            run=self.name,
            rare=self.rare,
            threshold=f"{self.threshold:.3g}",
            p="" if values["case"] is None else written(values["case"].p_rare),
            alert=values["case"] is not None and values["case"].p_rare >= self.threshold,
            n=len(self.cases),
            done=counts.total() - counts[SKIP],
            progress=self.progress(answers),
            buttons=buttons,
            last=last,
            last_said=self._words(last),
            labels=counts[RARE] + counts[REST],
            exported=amount(counts[RARE] + counts[REST], "label"),
            why_not=self.why_not,
            nonce=nonce,
        )

    def _words(self, said: Said | None) -> str | None:
        return None if said is None else {SKIP: "skipped"}.get(said.answer, self._words_of(said.answer))

    def _words_of(self, answer: str) -> str:
        return {RARE: self.rare, REST: self.rest}.get(answer, answer)


def _narrow(head: Any, rows: Any) -> tuple[list[str], list[list[str]]]:
    """Returns a table without its columns that have no name."""
    kept = [i for i, name in enumerate(head) if name]
    return [head[i] for i in kept], [[row[i] for i in kept] for row in rows]
