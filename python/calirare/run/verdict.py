"""The verdict of a run: one answer on its probabilities, from the strongest evidence there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.memory import draws_for
from calirare.drift import Verdict as Level
from calirare.metrics import (
    auprc,
    calibration_in_the_large,
    ece,
    equal_mass_ece,
    equal_mass_noise_floor,
    noise_floor,
    population_check,
)

Answer = Literal["calibrated", "not calibrated", "no better than random", "not known"]
Source = Literal["test nodes", "out-of-fold predictions", "fresh labels"]
Cause = Literal["labels", "time", "leakage", "model"]

CLOSE = (0.9, 1.1)  # predicted over observed rates between these are close enough, however certain
READABLE = (0.67, 1.5)  # a ratio whose interval lies within may be called right
ERRORS, SMALL_ERROR = 3.0, 0.1  # a calibration error counts from so many deviations, and this part of the base rate
SHUFFLES, AS_GOOD, MOST = 200, 0.025, 20_000  # random rankings, how many may do as well, and of how many nodes
ENDLESS = ("ratio", "high")  # without an observed node
OTHER_RATE = 0.01  # chance of rates as different as those of calibrating labels and judged nodes


@dataclass(frozen=True)
class Evidence:
    """What labelled nodes show of a probability in which none of their own labels was used.

    Attributes:
        source: what the nodes are.
        nodes: how many.
        rare: how many of them are of the class.
        predicted: the sum of the probabilities, the number to expect.
        ratio: predicted over observed; infinite where none is observed.
        low: lower end of its 95 % interval.
        high: upper end.
        error: calibration error on bins of equal size; None where the nodes are all of one class.
        expected_error: its expected value under perfect calibration, likewise.
        error_spread: the standard deviation of that, likewise.
        auprc: area under the precision-recall curve, likewise.
        as_good: proportion of random rankings that do as well, by this area or of a class by rank sums, likewise.
        of_class: the class, where there are more than two; empty: the rare one.
    """

    source: Source
    nodes: int
    rare: int
    predicted: float
    ratio: float
    low: float
    high: float
    error: float | None = None
    expected_error: float | None = None
    error_spread: float | None = None
    auprc: float | None = None
    as_good: float | None = None
    of_class: str = ""

    @classmethod
    def of(
        cls,
        source: Source,
        y: np.ndarray,
        p: np.ndarray,
        *,
        coverage: float = 0.95,
        of_class: str = "",
        groups: np.ndarray | None = None,
    ) -> Self:
        """Returns the evidence of nodes.

        Args:
            source: what the nodes are.
            y: 1 where a node is of the class, else 0, [n].
            p: its probability, float64 [n].
            coverage: of the interval of the ratio.
            of_class: see the attribute.
            groups: int64 [n, g], nodes that may be of the class together, see `calibration_in_the_large`; or None.
        """
        rare, predicted, wider = int(y.sum()), float(p.sum()), 1.0
        if rare:
            _, _, ratio, low, high, effect = calibration_in_the_large(y, p, level=coverage, groups=groups)
            wider = math.sqrt(effect)
        else:
            ratio, low, high = math.inf, population_check(y, p, coverage=coverage).low, math.inf
        found = cls(source, len(y), rare, predicted, ratio, low, high, of_class=of_class)
        if not 0 < found.rare < found.nodes:
            return found
        expected, area = equal_mass_noise_floor(p, n_draws=draws_for(len(p))), float(auprc(y, p))
        return replace(
            found,
            error=float(equal_mass_ece(y, p)),
            expected_error=expected.mean * wider,
            error_spread=expected.std * wider,
            auprc=area,
            as_good=_ranks_as_well(y, p) if of_class else _as_good(y, p, area),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it: null where no node of the class is observed."""
        return asdict(self) | {name: None for name in ENDLESS if math.isinf(getattr(self, name))}

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Returns what `to_mapping` was taken from."""
        return cls(**values | {name: math.inf for name in ENDLESS if values[name] is None})

    @property
    def random(self) -> bool:
        """Whether random rankings do as well."""
        shows = self.nodes * AS_GOOD >= 1 or math.comb(self.nodes, self.rare) * AS_GOOD >= 1  # a perfect ranking would
        return shows and self.as_good is not None and self.as_good > AS_GOOD

    @property
    def off(self) -> bool:
        """Whether the ratio is not 1."""
        return not self.low <= 1 <= self.high and not (CLOSE[0] <= self.low and self.high <= CLOSE[1])

    @property
    def uneven(self) -> bool:
        """Whether the calibration error is above its expected value."""
        if self.error is None or self.expected_error is None or self.error_spread is None:
            return False
        above, rate = self.error - self.expected_error, self.rare / self.nodes
        return above > ERRORS * self.error_spread and above > SMALL_ERROR * min(rate, 1 - rate)

    @property
    def enough(self) -> bool:
        """Whether the interval is narrow enough to call the probabilities right."""
        return READABLE[0] <= self.low and self.high <= READABLE[1]

    @property
    def where(self) -> str:
        """The nodes, in words."""
        return f"on {self.nodes:,} {self.source}"

    @property
    def rate(self) -> str:
        """Predicted over observed rate, in words."""
        of_class = f"class {self.of_class}: " if self.of_class else ""
        if not self.rare:
            return f"{of_class}predicted {self.predicted:.3g}, observed none"
        return f"{of_class}predicted / observed = {times(self.ratio)}"


@dataclass(frozen=True)
class Verdict:
    """Whether probabilities can be read as such, why not, and what helps.

    Attributes:
        answer: "calibrated", "not calibrated", "no better than random" or "not known".
        sentence: the answer with the numbers that it rests on.
        cause: "labels" (they are no random sample), "time" (they are older than the nodes), "leakage" (a column or the
            edges give labels away) or "model"; None where nothing is wrong.
        why: what shows the cause, and what helps; empty where nothing is wrong.
        evidence: what it rests on; None where no label can show it.
    """

    answer: Answer
    sentence: str
    cause: Cause | None = None
    why: str = ""
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        """Refuses an answer that is none, as a damaged file has."""
        if self.answer not in get_args(Answer):
            raise ValueError(f"verdict: answer must be one of {get_args(Answer)}, got {self.answer!r}")

    def __str__(self) -> str:
        """Returns the sentence, and why."""
        return f"{self.sentence}. {self.why}" if self.why else self.sentence

    @property
    def counts(self) -> bool:
        """Whether numbers of rare nodes can be expected by the probabilities."""
        return self.answer == "calibrated" or (self.answer == "not known" and self.cause not in ("leakage", "time"))

    @property
    def no_counts(self) -> str:
        """What is said in the place of counts, where the verdict does not allow them."""
        cause = f", cause: {self.cause}" if self.cause else ""
        return f"no counts are promised (verdict: {self.answer}{cause})"

    @property
    def level(self) -> Level:
        """The same in the words for another graph: "ok", "caution" or "do not trust"."""
        if self.answer in ("not calibrated", "no better than random") or self.cause == "leakage":
            return "do not trust"
        return "ok" if self.answer == "calibrated" or (self.cause is None and self.evidence is None) else "caution"

    def with_prevalence(self) -> Verdict:
        """Returns the verdict where the base rate of the nodes is given, which settles what another rate had spoilt."""
        return GIVEN if self.cause in ("labels", "time") else self

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it, where a ratio without an observed node is null."""
        return asdict(self) | {"evidence": self.evidence and self.evidence.to_mapping()}

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Returns what `to_mapping` was taken from."""
        evidence = values["evidence"]
        return cls(**values | {"evidence": evidence and Evidence.from_mapping(evidence)})


UNJUDGED = Verdict("not known", "not known: nothing was compared with labels")
GIVEN = Verdict("calibrated", "calibrated: to the given base rate")


@dataclass(frozen=True)
class Circumstances:
    """What separates causes, next to the evidence.

    Attributes:
        leak: a sentence on a column or edges that give labels away; empty where nothing does.
        no_sample: a sentence on labels that are no random sample of the nodes; empty where nothing shows it.
        assumed: a sentence on what the base rate rests on where labels cannot show it, such as a given prevalence.
        unrepresented: a sentence where not even that is known, so that classes count as equally common.
        rare: labels of the class among those that calibrate.
        labels: all of these.
        later: whether the nodes that probabilities are for are later than the labels that calibrate.
        drawn: whether test nodes were drawn from the same labels, so that they share their faults.
    """

    leak: str = ""
    no_sample: str = ""
    assumed: str = ""
    unrepresented: str = ""
    rare: int = 0
    labels: int = 0
    later: bool = False
    drawn: bool = False


HELP: dict[Cause, str] = {
    "labels": "Put nodes drawn at random into the validation part (--calibrate-on val), or give --prevalence.",
    "time": "When new labels arrive, run `calirare recalibrate` on them, or train again.",
    "leakage": "Train again without it.",
    "model": "More labels may help; or compare other models (--model) by their log loss.",
}


def verdict_of(evidence: Evidence | None, known: Circumstances) -> Verdict:
    """Returns the verdict on the probabilities of a run.

    Args:
        evidence: of labelled test nodes, else of out-of-fold predictions; None: there are no labels that can show it.
        known: what separates causes.
    """
    if evidence is None or not evidence.nodes:
        return _unseen(known)
    wrong, same = evidence.random or evidence.off or evidence.uneven, evidence.source != "test nodes" or known.drawn
    if known.leak and not wrong:
        return _wrong("not known", known.leak, "leakage", "", evidence)
    if known.no_sample and same and not wrong:
        return _wrong("not known", known.no_sample, "time" if known.later else "labels", "", evidence)
    if evidence.random:
        shown = f"AUPRC {evidence.auprc:.3f} (random: {evidence.rare / evidence.nodes:.3f}) {evidence.where}"
        return _wrong("no better than random", shown, "leakage" if known.leak else "model", known.leak, evidence)
    shown = f"{evidence.rate} {evidence.where}"
    if wrong and known.assumed:
        why = f"Either the labels {evidence.where} are no random sample, or the base rate is another."
        return Verdict("not known", f"not known: {known.assumed}, and {shown}", "labels", why, evidence)
    if wrong and not evidence.off:
        shown = f"calibration error {evidence.error:.3f} (expected if calibrated: {evidence.expected_error:.3f}) "
        shown += evidence.where
    if wrong:
        return _wrong("not calibrated", shown, *_cause(evidence, known), evidence)
    if not evidence.enough:
        shown += f"; {amount(evidence.rare, 'rare node is', 'rare nodes are')} too few to judge"
        if known.later and _other_rate(evidence, known):
            return _wrong("not known", shown, *_cause(evidence, known), evidence)
        return Verdict("not known", f"not known: {shown}", evidence=evidence)
    return Verdict("calibrated", f"calibrated: {shown}", evidence=evidence)


def _unseen(known: Circumstances) -> Verdict:
    """Returns the verdict where no label can show whether probabilities are right."""
    if known.leak:
        return _wrong("not known", known.leak, "leakage", "", None)
    if known.unrepresented:
        return _wrong("not calibrated", known.unrepresented, "labels", "", None)
    if known.no_sample or not known.assumed:
        return _wrong("not known", known.no_sample or "no label shows the base rate", "labels", "", None)
    return Verdict("not known", f"not known: {known.assumed}")


def verdict_of_classes(source: Source, y: Tensor, p: Tensor, names: Sequence[str], known: Circumstances) -> Verdict:
    """Returns the verdict on the probabilities of every class.

    Args:
        source: what the judged nodes are.
        y: their classes, int64 [n].
        p: their probabilities, float64 [n, k].
        names: of the classes.
        known: what separates causes.
    """
    n, k = p.shape
    if not n:
        return _unseen(known)
    level, labels = 1 - 0.05 / k, y.numpy()
    some = [
        Evidence.of(source, labels == c, p[:, c].numpy(), coverage=level, of_class=name)
        for c, name in enumerate(names)
        if bool((y == c).any())
    ]
    worst = max(some, key=lambda each: (each.off, abs(math.log(each.ratio))))
    error, expected = float(ece(y, p)), noise_floor(ece, p, n_draws=draws_for(p.numel()))
    above, small = error - expected.mean, SMALL_ERROR * (1 - max(each.rare for each in some) / n)
    shown = f"{worst.rate} {worst.where}"
    if all(each.as_good is not None and each.as_good > AS_GOOD / k for each in some):
        return _wrong("no better than random", f"no class is ranked above chance {worst.where}", "model", "", worst)
    if worst.off:
        return _wrong("not calibrated", shown, "model", known.leak or known.no_sample, worst)
    if above > max(ERRORS * expected.std, small):
        shown = f"calibration error {error:.3f} (expected if calibrated: {expected.mean:.3f}) {worst.where}"
        return _wrong("not calibrated", shown, "model", known.leak or known.no_sample, worst)
    if known.leak:
        return _wrong("not known", known.leak, "leakage", "", worst)
    if known.no_sample and (known.drawn or source != "test nodes"):
        return _wrong("not known", known.no_sample, "labels", "", worst)
    return Verdict("calibrated", f"calibrated: {shown}, and other classes are nearer", evidence=worst)


def times(ratio: float) -> str:
    """Returns a ratio for a sentence: 0.96, 1.20, 13."""
    return f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


def _wrong(answer: Answer, shown: str, cause: Cause, why: str, evidence: Evidence | None) -> Verdict:
    return Verdict(answer, f"{answer}: {shown}", cause, f"{why}. {HELP[cause]}" if why else HELP[cause], evidence)


def _cause(evidence: Evidence, known: Circumstances) -> tuple[Cause, str]:
    """Returns why probabilities are wrong on the judged nodes, and what shows it."""
    if known.leak:
        return "leakage", known.leak
    rates = ""
    own, judged = known.rare / max(known.labels, 1), evidence.rare / evidence.nodes
    if known.labels and (judged > own) == (evidence.ratio < 1):  # else it is not the base rate
        rates = f"base rate is {own:.2%} among the labels that calibrate and {judged:.2%} among the {evidence.source}"
    if known.later:
        later = f"The {evidence.source} are later than the labels that calibrate"
        return "time", f"{later}; the {rates}" if rates else later
    if known.no_sample:
        return "labels", known.no_sample
    return ("labels", f"The {rates}") if rates and _other_rate(evidence, known) else ("model", "")


def _other_rate(evidence: Evidence, known: Circumstances) -> bool:
    """Returns whether labels that calibrate and judged nodes have different base rates (Fisher's exact test)."""
    from scipy.stats import fisher_exact

    table = [[known.rare, known.labels - known.rare], [evidence.rare, evidence.nodes - evidence.rare]]
    return bool(fisher_exact(table).pvalue < OTHER_RATE)


def _ranks_as_well(y: np.ndarray, p: np.ndarray) -> float:
    """Returns the chance that random rankings have at least the rank sum of the class (Mann and Whitney)."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(p[y == 1], p[y == 0], alternative="greater").pvalue)


def _as_good(y: np.ndarray, p: np.ndarray, area: float) -> float:
    """Returns the proportion of random rankings whose AUPRC is at least `area`."""
    generator = np.random.default_rng(0)
    if len(y) > MOST:
        some = generator.choice(len(y), MOST, replace=False)
        y, p = y[some], p[some]
        if not 0 < y.sum() < len(y):
            return 0.0
        area = float(auprc(y, p))
    groups = np.unique(-p, return_inverse=True)[1]  # from the highest score down, sorted once for all rankings
    looked_at, better = np.cumsum(np.bincount(groups)), 0
    for _ in range(SHUFFLES):
        hits = np.bincount(groups[generator.permutation(y) == 1], minlength=len(looked_at)).astype(float)
        there, found = np.flatnonzero(hits), np.cumsum(hits)
        better += float(hits[there] @ (found[there] / looked_at[there]) / found[-1]) >= area  # as `auprc` has it
    return (better + 1) / (SHUFFLES + 1)
