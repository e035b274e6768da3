"""What `calirare.train` returns: a run's values, what can be done with them, and what its folder holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from torch import Tensor

from calirare._util.amounts import class_words
from calirare._util.arrays import brief
from calirare._util.device import choose_device
from calirare._util.measure_tables import KNOWN_OR_DRAWN, SIDES
from calirare._util.output import fresh_folder
from calirare._util.torch_state import plain_torch
from calirare.calibration import PriorPlattCalibrator, budget_curve
from calirare.explain import Explainer, Explanations, Nodes
from calirare.explain.audit import AT_LEAST, Audit
from calirare.graph import PARTS, Graph, Split
from calirare.graph.splits import LABEL_RATE, TEST_SHARE
from calirare.plots import (
    Panel,
    budget_diagram,
    precision_recall_diagram,
    rare_reliability_diagram,
)
from calirare.run.columns import predictions
from calirare.run.deciding import nodes_to_decide
from calirare.run.explaining import audit_run, explained, explainer_of
from calirare.run.folder import CONFIG, HISTORY, MODEL, history_of, write_json
from calirare.run.model_file import save_model
from calirare.run.next_labels import NextLabels, next_labels
from calirare.run.parties import parties_of
from calirare.run.probabilities import p_rare
from calirare.run.report import judge_of, report
from calirare.run.result import RunResult
from calirare.run.scoring import Scorer, ScoresGraphs
from calirare.run.settings import Settings
from calirare.run.summary import summary_of
from calirare.run.tables import PARTIES, QUEUE, REVIEWED, TRANSACTIONS, write_csv, write_predictions
from calirare_ext import __version__


@dataclass(eq=False)
class Outcome(RunResult, ScoresGraphs):
    """A trained and calibrated detector with everything computed on the way (attributes: see `RunResult`).

    With task "classes" every class has its probability, and what is of a rare class alone refuses, see `RareView`.

    Example:
        >>> import calirare
        >>> outcome = calirare.train(calirare.load_dataset("digits"), epochs=60, folds=0)
        >>> outcome.to_frame().columns.tolist()[:5]
        ['node', 'split', 'y', 'p_rare', 'p_balanced']
    """

    __repr__ = brief

    @cached_property
    @plain_torch()
    def metrics(self) -> dict[str, Any]:
        """Everything `metrics.json` holds: plain numbers and strings."""
        return report(self)

    def summary(self, *, verbose: bool = False, printed: Sequence[str] = ()) -> str:
        """Returns calibration, detection, alerts and notes in at most 25 lines, see `summary_of`."""
        return summary_of(self.metrics, verbose=verbose, seconds=sum(self.seconds.values()), printed=printed)

    @plain_torch()
    def to_frame(self) -> pd.DataFrame:
        """Returns one row per scored node, as `predictions.csv`.

        Returns:
            node, split and y; of a rare class P(rare) with its interval, label set, alert, P(correct); of many classes
            the predicted one, its probability (confidence), the detector's own (confidence_raw) and `p_<class>`.
        """
        return self._rows(None)

    def _rows(self, nodes: Tensor | None) -> pd.DataFrame:
        """Returns rows of `to_frame`; None: every scored node."""
        graph, classes = self.graph, self.graph.class_names if self.rare is None else ()
        result = None if self.rare is None else self.rare.jackknife
        ranges = None if self.rare is None else self.rare.ranges
        return predictions(graph, self.for_tables(), result, graph.split, nodes, classes, ranges)

    @cached_property
    def scorer(self) -> Scorer:  # type: ignore[override]
        """What scores other graphs, made once."""
        return Scorer.of(self)

    def audit(self, at_least: float = AT_LEAST) -> Audit:
        """Returns which labels are probably wrong, and why.

        Args:
            at_least: P(wrong) from which a label is flagged, in (0, 1].

        Raises:
            InputError: there are too few labels, or the run has none without themselves.
        """
        return audit_run(self.scorer, self.graph, self.mapped, self.held_out, at_least)

    def next_labels(self, k: int, among: Nodes | None = None) -> NextLabels:
        """Returns the nodes worth a label next, by the expected fall of the total expected error, in closed form.

        Args:
            k: how many.
            among: nodes that can be labelled, as `explain` takes them; None: every node without a label.

        Raises:
            InputError: there are not so many, one is unknown, or the detector cannot be asked.
        """
        return next_labels(self.explainer, k, among)

    def review(self) -> Tensor:
        """Returns the nodes without a label in the order in which a human should look at them, int64.

        First the likeliest rare one, unless the settings say otherwise (`by`, see `Deciding`); of many classes that
        whose predicted class is least sure. Where every node has a label, nodes that neither trained nor calibrated.
        """
        order = super().review()
        if self.settings.decision.sort_by != "value-of-label" or self.fit.n_classes != 2 or not order.numel():
            return order
        worth = self.next_labels(min(REVIEWED, order.numel()), among=order).nodes
        first = torch.from_numpy(worth).to(order.device)
        return torch.cat([first, order[~torch.isin(order, first)]])

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be made again out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name not in ("explainer", "scorer")}

    @cached_property
    def explainer(self) -> Explainer:
        """What explains the graph's nodes, made once."""
        stored = lambda: p_rare(self.logits, self.calibrators).cpu()  # noqa: E731
        return explainer_of(self.scorer, self.graph, self.mapped, stored)

    def explain(
        self,
        nodes: Nodes | None = None,
        *,
        class_name: str | None = None,
        top: int | None = None,
        labels: int | None = None,
    ) -> Explanations:
        """Returns why nodes have their P(rare), or P(class): labels, edges and features for and against it.

        Args:
            nodes: names of nodes, numbers where the graph has no names, or one alone; a tensor holds
                numbers. None: alerts, or the likeliest of a class.
            class_name: with many classes the class; None: of each node its likeliest.
            top: how many of the likeliest alerts, or of the nodes likeliest of the class, in place of nodes.
            labels: how many labels of each node are shown; None: 10, but none where their effects take long.

        Raises:
            InputError: a node or the class is unknown, there is no alert, or the detector cannot be
                explained.
        """
        return explained(self.explainer, nodes, class_name, top, labels)

    @plain_torch()
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the run's folder, as `calirare train` does.

        Args:
            path: the folder; it appears when all of it is written.
            overwrite: replace a run that is there.

        Raises:
            InputError: the folder exists and must not be replaced, or cannot be written.
        """
        with fresh_folder(Path(path), overwrite=overwrite) as folder:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Writes what a run's folder holds into an empty folder."""
        write_config(self, folder / CONFIG)
        save_model(self, folder / MODEL)
        path = self.settings.data.absolute().transactions
        if path is not None:
            own = folder / Path(path).name  # of an update, which will be there when the folder is
            write_json(history_of(str(own) if own.exists() else path) | {"path": path}, folder / HISTORY)
        self.write_tables(folder, self.metrics)

    def write_tables(self, folder: Path, metrics: dict[str, Any]) -> None:
        """Writes measures, predictions, the queue and pictures."""
        write_json(metrics, folder / "metrics.json")
        table, of = self.to_frame(), self.graph.keys
        write_predictions(table, folder, TRANSACTIONS if of else "predictions")
        if of:
            write_csv(parties_of(table, self.settings.data), folder / f"{PARTIES}.csv")
        alerts = 0 if self.rare is None else self.rare.decision.alerts
        write_csv(self._rows(self.review()[: max(REVIEWED, min(alerts, QUEUE))]), folder / "review.csv")
        if self.rare is None:
            judge_of(self).draw(
                folder, self.graph.name, self.graph.class_names, self.settings.calibration.calibrate_for
            )
        else:
            draw(self, folder)


def write_config(outcome: RunResult, path: Path) -> None:
    """Writes every setting, resolved: a run with this file as --config is the same run."""
    graph, settings = outcome.graph, outcome.settings
    kind = _split_kind(graph, settings)
    rate = LABEL_RATE if kind == "random" else None  # None: a stored split as it is
    data = dataclasses.replace(
        settings.data.absolute(),
        label_rate=settings.data.label_rate or rate,
        split=settings.data.split or (None if settings.positive_only else kind),
        rare_class=graph.class_names[1] if graph.n_classes == 2 and not settings.many else None,
        unknown_ends=settings.data.unknown_ends or (graph.tables.unknown_ends if graph.tables else None),
    )
    training = settings.training.resolved(outcome.fit.chosen)
    device = choose_device(settings.device).type
    resolved = dataclasses.replace(settings, data=data, training=training, device=device)
    text = yaml.safe_dump(resolved.to_mapping(), sort_keys=False)
    path.write_text(f"# calirare {__version__}\n{text}", encoding="utf-8")


def _split_kind(graph: Graph, settings: Settings) -> str:
    """Returns how `load_dataset` drew the split, "public" where it took or enlarged a stored one."""
    assert graph.split is not None
    kind = graph.split.name.split("(")[0]
    if kind == "time":
        return kind
    labels = graph.y if graph.original_y is None else graph.original_y
    if labels is None or kind not in ("random", "share"):
        return "public"
    labels = labels.cpu()
    if kind == "share":
        kind = "all" if graph.split.name.startswith("share(test=0,") else kind
        drawn = Split.share(labels, settings.seed, test_share=0.0 if kind == "all" else TEST_SHARE)
    else:
        drawn = Split.random(labels, settings.data.label_rate or LABEL_RATE, seed=settings.seed)
    same = all(torch.equal(getattr(drawn, part), getattr(graph.split.to("cpu"), part)) for part in PARTS)
    return kind if same else "public"


def draw(outcome: RunResult, folder: Path) -> None:
    """Draws `precision_recall.png` and `p_rare.png` of the judged nodes.

    And `budget.png` of the nodes decided on, where the uncertainty of P(rare) is known.
    """
    _draw_rare(outcome, folder)
    if outcome.decision.expected is not None:
        _draw_budget(outcome, folder)


def _draw_budget(outcome: RunResult, folder: Path) -> None:
    fitted, decision, y = outcome.calibrators["population"], outcome.decision, outcome.graph.y
    assert isinstance(fitted, PriorPlattCalibrator)
    assert y is not None
    nodes, on = nodes_to_decide(outcome.graph)
    curve = budget_curve(fitted, outcome.logits[nodes])
    known = (y[nodes] == 1).cpu().numpy() if on == "held-out" else None
    rare, where = class_words(outcome.graph.class_names[1]), f"({len(nodes):,} {on} {outcome.graph.unit}s)"
    title = f"{outcome.graph.name}: {rare} found by a budget of alerts {where}"
    assert decision.expected is not None
    hits = decision.expected.hits.expected
    budget_diagram(curve, folder / "budget.png", rare=known, chosen=decision.alerts, hits=hits, title=title)


def _draw_rare(outcome: RunResult, folder: Path) -> None:
    data, rare = judge_of(outcome), class_words(outcome.graph.class_names[1])
    rare = f"known {rare}" if data.on == KNOWN_OR_DRAWN else rare
    y, where = (data.labels == 1).long(), f"({data.labels.numel():,} {data.on} {outcome.graph.unit}s)"
    panels = {side: Panel(SIDES[side], y, p[:, 1]) for side, p in data.p.items()}
    _, draws = data.draws
    title = f"{outcome.graph.name}: is P({rare}) right? {where}"
    path = folder / "p_rare.png"
    rare_reliability_diagram(list(panels.values()), path, event=rare, n_draws=draws, title=title)
    chosen = panels["population" if "population" in panels else "raw"]
    if data.on == "test":  # in double precision as the decision is made: a node may lie at its threshold
        chosen = chosen._replace(p=p_rare(outcome.logits[data.nodes], outcome.calibrators).detach().cpu())
    title = f"{outcome.graph.name}: finding {rare} {where}"
    one = outcome.decision.threshold <= 1 and not outcome.settings.decision.by_amount
    decided = one and data.on != KNOWN_OR_DRAWN  # by P(rare): of P(known) it is no place
    operating = outcome.decision.threshold if decided else None
    precision_recall_diagram([chosen], folder / "precision_recall.png", threshold=operating, title=title)
