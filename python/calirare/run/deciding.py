"""Which nodes are alerts: settings of the decision, and the threshold they make, with what to expect of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.calibration import COVERAGE, Calibrator, PriorPlattCalibrator, Target, with_prevalence
from calirare.calibration.decisions import NONE, Capped, Decision, Labelled, Rule, decide, make_rule
from calirare.graph import Graph, GraphOnDisk, nodes_not_to_review
from calirare.leave_one_out import JackknifeResult
from calirare.run.parties import amounts_of
from calirare.run.periods import are_later
from calirare.run.probabilities import LIKELIER, Probabilities, p_rare
from calirare.run.schema import check_words

Decide = Literal["balanced", "cost", "budget", "precision", "recall"]
By = Literal["p", "expected-loss", "amount", "uncertainty", "value-of-label"]
WIDE = 0.97  # by one network's posterior, for 90 % of runs: benchmarks/results/population.jsonl, decision_graphs.json
NARROW = 20  # rare labels from which intervals held less often than promised (benchmarks/results/decisions.json)
CAVEAT = (
    "the intervals assume that labelled nodes score like unlabelled ones. On eight graphs {held} of the 90 % intervals "
    "contained the true count. For a guarantee use --decide precision or recall with --guarantee."
)
OF_KNOWN = (
    "the intervals assume that the known rare nodes are a random sample of all rare nodes, and that the "
    "highest-scoring unlabelled nodes are rare. If they are not, expect fewer rare nodes."
)
HELD = {False: "92 to 96 %", True: "94 %"}  # by whether each class has its own slope: decision_graphs.json


RULES = {  # which setting is for which rule
    "budget": "budget",
    "cost_fn": "cost",
    "cost_fp": "cost",
    "min_precision": "precision",
    "min_recall": "recall",
}


def with_rule(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with the rule of the decision that they are for, where they name none."""
    rules = {RULES[name] for name in given if name in RULES}
    if "decide" in given or len(rules) != 1:
        return dict(given)
    return {**given, "decide": rules.pop()}


@dataclass(frozen=True)
class Deciding:
    """Which nodes are alerts: those whose P(rare) for the population is at least a threshold.

    Attributes:
        decide: what chooses the threshold: "cost" (of a miss and of a false alarm; if equal, nodes more likely rare
            than not are alerts), "balanced" (both classes count equally), "budget" (a number of alerts), "precision"
            or "recall" (a minimum of it).
        cost_fn: with decide cost: what a missed rare node costs; "amount": of transactions the amount of each.
        cost_fp: with decide cost: what a false alarm costs.
        budget: with decide budget: how many alerts can be looked at, or a proportion of the nodes in (0, 1).
        max_alerts: with a rule other than budget: at most this many alerts, the likeliest, or with cost_fn amount those
            with the highest expected gain; none: no limit.
        min_precision: with decide precision: proportion of the alerts that are rare.
        min_recall: with decide recall: proportion of the rare nodes that are alerts.
        guarantee: with decide precision or recall: confidence level of a guarantee from the labels, such as 0.9; none:
            the threshold follows from P(rare), without a guarantee.
        sort_by: which nodes review.csv begins with: by "p" the likeliest rare ones (with cost_fn amount those with the
            highest expected gain), by "expected-loss" those where a
            wrong decision is expected to cost most, by "amount" transactions with the largest P(rare) times their
            amount, by "uncertainty" those whose prediction is most likely wrong (of
            more than two classes always these), by "value-of-label" those whose labels would teach most, then by "p".
    """

    decide: Decide = "cost"
    cost_fn: float | Literal["amount"] = 1.0
    cost_fp: float = 1.0
    budget: int | float = 100
    max_alerts: int | None = None
    min_precision: float = 0.8
    min_recall: float = 0.8
    guarantee: float | None = None
    sort_by: By = "p"

    def __post_init__(self) -> None:
        """Checks words and ranges.

        Raises:
            InputError: a setting is unknown or out of range.
        """
        check_words(self)
        for name, options in self._options().items():
            make_rule(name, **options)
        if self.max_alerts is not None and (self.max_alerts < 1 or self.guarantee is not None):
            raise InputError(f"setting max_alerts must be at least 1, without guarantee, got {self.max_alerts}")

    @property
    def rule(self) -> Rule:
        """The rule that is asked for, of amounts for no nodes."""
        return self.rule_of()

    def rule_of(self, amounts: Any = ()) -> Rule:
        """Returns the rule for nodes with some amounts, float64 [n], which count with cost_fn amount alone."""
        rule = make_rule(self.decide, **self._options(amounts)[self.decide])
        return rule if self.max_alerts is None else Capped(of=rule, most=self.max_alerts)

    def rule_on(self, graph: Graph | GraphOnDisk, nodes: Tensor | None = None) -> Rule:
        """Returns the rule for nodes of a graph, int64; None: all of them.

        Raises:
            InputError: amounts are asked for, and the graph has none, or negative ones.
        """
        if not self.by_amount:
            return self.rule
        amounts = amounts_at_risk(graph, "cost_fn amount", "give a number (--cost-fn 100)").numpy()
        return self.rule_of(amounts if nodes is None else amounts[nodes.cpu().numpy()])

    def thresholds(self, threshold: float, graph: Graph) -> float | Tensor:
        """Returns the P(rare) from which each node of a graph is an alert, float64 [n]; a number where all have one."""
        return torch.from_numpy(threshold / self.rule_on(graph).weights) if self.by_amount else threshold

    @property
    def by_amount(self) -> bool:
        """Whether a missed node costs its amount, and nodes differ in the P(rare) from which they are alerts."""
        return self.decide == "cost" and self.cost_fn == "amount"

    @property
    def idle(self) -> list[str]:
        """Settings that were given to a rule other than the one that is asked for."""
        used = {"cost": ("cost_fn", "cost_fp"), "balanced": (), "budget": ("budget",)}
        plain, own = Deciding(), used.get(self.decide, (f"min_{self.decide}", "guarantee"))
        names = ("cost_fn", "cost_fp", "budget", "min_precision", "min_recall", "guarantee")
        return [name for name in names if name not in own and getattr(self, name) != getattr(plain, name)]

    def _options(self, amounts: Any = ()) -> dict[str, dict[str, Any]]:
        return {
            "balanced": {},
            "cost": {"miss": np.asarray(amounts) if self.cost_fn == "amount" else self.cost_fn, "alarm": self.cost_fp},
            "budget": {"alerts": self.budget},
            "precision": {"at_least": self.min_precision, "confidence": self.guarantee},
            "recall": {"at_least": self.min_recall, "confidence": self.guarantee},
        }


@dataclass(frozen=True)
class Decided:
    """The threshold of a run and what to expect of it.

    Attributes:
        rule: its name.
        threshold: nodes with P(rare) at least this are alerts, see `Deciding.thresholds`; above 1: none.
        alerts: number of alerts among the nodes.
        nodes: number of nodes decided on.
        on: which these are: "unlabelled"; "held-out", where every node has a label; "all", where each trained.
        expected: hits, misses and cost; None where the uncertainty of P(rare) is not known.
        caveat: what the intervals leave out, or empty.
    """

    rule: str
    threshold: float
    alerts: int
    nodes: int
    on: str
    expected: Decision | None = None
    caveat: str = ""

    @property
    def sentence(self) -> str:
        """What was asked for, and what to expect."""
        if self.expected is not None:
            return self.expected.sentence
        return f"P(rare) of at least {self.threshold:.3g} makes {amount(self.alerts, 'alert')}"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        out = {name: getattr(self, name) for name in ("rule", "threshold", "alerts", "nodes", "on", "caveat")}
        if self.expected is not None and self.expected.tied is not None:
            out["tied"] = asdict(self.expected.tied)
        told = {} if self.expected is None else asdict(self.expected)
        names = ("hits", "misses", "cost", "precision", "recall", "hits_by_p", "coverage")
        return out | {name: told.get(name) for name in names} | {"sentence": self.sentence}


def check_decision(deciding: Deciding, method: str, map_: str) -> None:
    """Checks that the decision that is asked for can be made.

    Args:
        deciding: what is asked for.
        method: of the run.
        map_: kind of the run's maps.

    Raises:
        InputError: it is not the default, and P(rare) has no known uncertainty.
    """
    if replace(deciding, sort_by="p") == Deciding() or (method == "jackknife" and map_ == "prior"):
        return
    got = f"method {method}" if method != "jackknife" else f"map {map_}"
    plain = asdict(Deciding())
    given = " and ".join(name for name, value in asdict(deciding).items() if name != "sort_by" and value != plain[name])
    raise InputError(
        f"settings of the decision ({given}) need method jackknife and map prior, got {got}: leave them "
        "out, and compare p_rare of predictions.csv with a threshold of your own"
    )


def decided(
    deciding: Deciding,
    graph: Graph,
    logits: Tensor,
    maps: dict[Target, Calibrator],
    labelled: Labelled | None = None,
    n_rare: int = 0,
    left: float | None = None,
    earlier: Labelled | None = None,
) -> Decided:
    """Returns the decision on the nodes without a label; where each has one, on those that did not train or calibrate.

    Args:
        deciding: what is asked for.
        graph: the graph.
        logits: of its nodes, [n, k].
        maps: the fitted map of each target.
        labelled: labels that represent the population, with P(rare) made without them.
        n_rare: rare labels that the maps were fitted on.
        left: share of rare nodes among those without a label, where labels used up many that a prevalence stands for;
            hits and misses are counted by it. None: P(rare) is theirs too.
        earlier: labels in order of time where the decided nodes may be later, see `decide`; None: there is no time.

    Raises:
        InputError: labels cannot prove what is asked for.
    """
    nodes, on = nodes_to_decide(graph)
    z, fitted, rule = logits[nodes], maps.get("population"), deciding.rule_on(graph, nodes)
    if not isinstance(fitted, PriorPlattCalibrator) or logits.shape[1] != 2:
        alerts = int((p_rare(z, maps) >= LIKELIER).sum())
        return Decided(rule.name, LIKELIER, alerts, len(z), on)
    counting = None if left is None or on != "unlabelled" else with_prevalence(fitted, z.double(), left)
    earlier = earlier if are_later(graph, nodes) else None
    coverage = counting_coverage(fitted)
    expected = decide(rule, fitted, z, labelled=labelled, counting=counting, earlier=earlier, coverage=coverage)
    expected = replace(expected, coverage=COVERAGE)
    few = n_rare < NARROW or deciding.guarantee is not None
    caveat = "" if few else CAVEAT.format(held=HELD[fitted.form_sd is not None])
    caveat = OF_KNOWN if fitted.scales_p else caveat
    return Decided(rule.name, expected.threshold, expected.alerts, len(z), on, expected, caveat)


def counting_coverage(fitted: PriorPlattCalibrator) -> float:
    """Returns the coverage by the posterior with which intervals of counts hold in 90 % of runs."""
    return COVERAGE if fitted.form_sd is not None else WIDE


def threshold_on(deciding: Deciding, kept: float | None, p: Tensor, rule: Rule) -> tuple[float, str]:
    """Returns the threshold for another graph, and what to note of nodes at the cut that share a P(rare), or nothing.

    It is the run's, but one that depends on the number of alerts is chosen again, for as many there. Nodes with a label
    count as others do: which these are is not known where scores are all that is made.

    Args:
        deciding: of the run, or another one.
        kept: the run's threshold; None: there is none for this decision.
        p: P(rare) of the scored nodes, [m].
        rule: for these.
    """
    counts = deciding.decide == "budget" or deciding.max_alerts is not None
    if not len(p) or (kept is not None and not counts):
        return NONE if kept is None else kept, ""
    there = p.cpu().numpy()
    threshold = rule.threshold(there, None)
    tied = rule.tie(there, threshold)
    return threshold, "" if tied is None else tied.sentence


def nodes_to_decide(graph: Graph) -> tuple[Tensor, str]:
    """Returns the nodes whose class is to be decided on, int64, and which these are (`Decided.on`)."""
    every, known = graph.scored_nodes, nodes_not_to_review(graph)
    rest = every if known is None else nodes_except(every, known, graph.n_nodes)
    if graph.y is None or known is None or not rest.numel():
        return every, "all"
    return rest, "unlabelled" if graph.unlabelled.numel() else "held-out"


def nodes_except(nodes: Tensor, known: Tensor, n: int) -> Tensor:
    """Returns the nodes, of n in all, that are not among the known ones, in their order, without sorting a million."""
    left = torch.ones(n, dtype=torch.bool, device=nodes.device)
    left[known] = False
    return nodes[left[nodes]]


def review_order(deciding: Deciding, graph: Graph, said: Probabilities, result: JackknifeResult | None) -> Tensor:
    """Returns the nodes that `nodes_not_to_review` leaves, in the order in which a human should look at them, int64.

    The expected loss is that of the decision: P(rare) times the cost of a miss, of an alert 1 - P(rare) times that of a
    false alarm. What labels are worth the detector alone can tell, see `Outcome.review`: here these are in order of P.
    Of equal ones the node comes first whose prediction is more likely wrong.

    Args:
        deciding: by what.
        graph: the graph.
        said: of its nodes.
        result: of its nodes; None: there is none (yet), and the least sure prediction has the lowest confidence.
    """
    known = nodes_not_to_review(graph)
    if deciding.sort_by == "uncertainty" or said.chosen.shape[1] != 2:
        if result is not None:
            return result.review(said.chosen, known)
        nodes = torch.argsort(said.chosen.max(1).values, stable=True)
    else:
        worth = review_worth(deciding, graph, said)
        nodes = torch.arange(len(worth), device=worth.device)
        if result is not None and len(result.nodes) == len(worth):
            nodes = torch.argsort(result.about(said.chosen)[0].to(worth.device), stable=True)
        nodes = nodes[torch.argsort(worth[nodes], descending=True, stable=True)]
    return nodes if known is None else nodes_except(nodes, known, graph.n_nodes)


def review_worth(deciding: Deciding, graph: Graph, said: Probabilities) -> Tensor:
    """Returns what a look at each node is worth by "expected-loss" or "amount", else by "p", [n]; see `Deciding`.

    Raises:
        InputError: the graph has no amounts.
    """
    if deciding.sort_by == "amount":
        return said.rare * amounts_at_risk(graph).to(said.rare.device)
    if deciding.sort_by != "expected-loss":
        return said.rare * torch.as_tensor(deciding.rule_on(graph).weights, device=said.rare.device)
    return expected_costs(deciding.rule_on(graph), said.rare, said.alert)


def expected_costs(rule: Rule, p: Tensor, alert: Tensor) -> Tensor:
    """Returns what each of some nodes is expected to cost, [n], by P(rare) and which are alerts, both [n]."""
    miss, alarm = rule.costs()
    return torch.where(alert, (1 - p) * alarm, p * torch.as_tensor(miss, dtype=p.dtype, device=p.device))


def amounts_at_risk(graph: Graph | GraphOnDisk, setting: str = "sort_by amount", instead: str = "sort by p") -> Tensor:
    """Returns the amounts of transactions, float64 [n].

    Raises:
        InputError: there are none.
    """
    amounts = amounts_of(getattr(graph, "keys", None) or {})
    if amounts is None:
        raise InputError(
            f"setting {setting} needs transactions with amounts, and graph {graph.name!r} has none: name their "
            f"column (--amount), or {instead}"
        )
    return torch.from_numpy(amounts)


def realised(p: Tensor, labels: Tensor, threshold: float, rule: Rule) -> dict[str, Any]:
    """Returns what a threshold does among labelled nodes; precision is None without alerts, recall without rare nodes.

    Args:
        p: P(rare) made without their labels, [m].
        labels: classes, int64 [m].
        threshold: of the decision.
        rule: for these nodes; cost is in the unit of its costs.
    """
    alert = torch.from_numpy(p.detach().cpu().numpy() >= threshold / rule.weights)
    rare = (labels == 1).cpu()
    alerts, hits, n_rare = int(alert.sum()), int((alert & rare).sum()), int(rare.sum())
    return {
        "nodes": len(labels),
        "alerts": alerts,
        "hits": hits,
        "misses": n_rare - hits,
        "precision": hits / alerts if alerts else None,
        "recall": hits / n_rare if n_rare else None,
        "cost": float(expected_costs(rule, rare.double(), alert).sum()),
    }
