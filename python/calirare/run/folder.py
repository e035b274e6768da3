"""A run's folder: what a training writes down, and how it is read again.

The folder stands alone: weights, maps, and the labelled nodes with their receptive field are in `model.safetensors`, so
that other graphs are scored with intervals wherever the folder lies; of a single network also `held_out`, each label's
logits by the network without its fold, which an audit of labels reads. The run's own graph is not in it: it is known by
its checksum, and found by the absolute path or name in `config.yaml`, or where the user says it is.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.output import left_aside
from calirare._util.run_files import check_as_written, checksum_of
from calirare._util.torch_state import plain_torch
from calirare.calibration.decisions import NONE
from calirare.explain import Explainer, Explanations, Nodes
from calirare.explain.audit import AT_LEAST, Audit
from calirare.graph import PARTS, Graph, Split, fingerprint, known_rare, with_sampled_negatives
from calirare.graph.tables import source_exists
from calirare.models import Fitted
from calirare.run.data_settings import Data, Labels
from calirare.run.explaining import audit_run, explained, explainer_of
from calirare.run.model_file import check_model, damaged, read_model, scorer_of
from calirare.run.next_labels import NextLabels, next_labels
from calirare.run.scoring import Scorer, ScoresGraphs
from calirare.run.settings import Settings
from calirare.run.summary import summary_of
from calirare.run.tables import NAMED, read_predictions, read_table, stored_p_rare
from calirare.run.yaml_files import read_yaml

CONFIG, MODEL = "config.yaml", "model.safetensors"
LABELS = "labels.csv"  # labels in the place of the data's own, of a run that was updated


HISTORY = "history.json"  # of a run on transactions: where they were, and their checksum


def history_of(path: str) -> dict[str, str]:
    """Returns where a table of transactions is and the checksum of its files.

    Raises:
        InputError: it is not there.
    """
    place = Path(path.partition("::")[0])
    if not place.exists():
        raise InputError(f"{path}: the run's transactions are not there any more: say where they are (--history)")
    files = sorted(each for each in (place.rglob("*") if place.is_dir() else [place]) if each.is_file())
    return {"path": path, "sha256": checksum_of(place.parent, [str(each.relative_to(place.parent)) for each in files])}


def write_json(values: dict[str, Any], path: Path) -> None:
    """Writes numbers and strings as JSON, keys in order, the same bytes for the same values; no NaN, but null."""
    text = json.dumps(_finite(values), indent=2, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """Returns a value of JSON without NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


LAST = "_last_explainer"  # of a run: the graph that was explained last, and what explains it
LAST_MAPPED = "_last_mapped"  # likewise, the graph that was mapped last


@dataclass(frozen=True, eq=False)
class SavedRun(ScoresGraphs):
    """A run read from its folder; `calirare.load` reads one.

    Attributes:
        folder: where it is.
        scorer: network, labels and maps, which score any graph.
        split: the nodes' parts.
        fingerprint: checksum of the run's own graph.
        held_out: see `RunResult.held_out`.
    """

    folder: Path
    scorer: Scorer
    split: Split
    fingerprint: str
    held_out: Tensor | None = None
    is_scoring = False  # whether its graph is another one than the run was trained on

    @property
    def settings(self) -> Settings:
        """As resolved by the training."""
        return self.scorer.settings

    @property
    def fit(self) -> Fitted:
        """The detector with its labels."""
        return self.scorer.fit

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; of two of them the second is the rare one."""
        return self.scorer.class_names

    @property
    def version(self) -> str:
        """Version of CaliRare that trained it."""
        return self.scorer.version

    @property
    def kinds(self) -> dict[str, str]:
        """What the raw columns hold, see `Scorer.kinds`."""
        return self.scorer.kinds

    @property
    def scoring(self) -> dict[str, Any] | None:
        """What is expected of another graph, where the folder is of one that a run scored; None of a run."""
        return None

    @property
    def checksum(self) -> str:
        """What no other run has: the checksum of its settings and its model."""
        return checksum_of(self.folder, (CONFIG, MODEL))

    def graph(self, data: str | Path | Graph | None = None) -> Graph:
        """Returns the run's own graph with the run's split.

        Args:
            data: where it is now: a graph, or what `load_dataset` takes; None: where it was.

        Raises:
            InputError: it is not there any more, or is another graph.
        """
        settings = self.settings
        data = data.to("cpu") if isinstance(data, Graph) else data
        try:
            graph = data if isinstance(data, Graph) else self._data(data).load(settings.seed, self.kinds)
        except InputError as error:
            if data is None or not settings.data.entities:
                raise
            mend = "score new transactions (`calirare predict --transactions TABLE --out FOLDER`), and name that folder"
            raise InputError(f"run {self.folder}: {data} is not the table the run was trained on: {mend}") from error
        if settings.positive_only:
            graph = known_rare(graph, settings.data.rare_class)
        if isinstance(data, Graph) and fingerprint(data) != self.fingerprint:  # or as it was before its labels changed
            graph = self._relabelling(settings.data).relabelled(data)
        if fingerprint(graph) != self.fingerprint:
            read = data or " with ".join(filter(None, (settings.data.source, settings.data.nodes)))
            mend = "give the old graph (--graph), or train again"
            raise InputError(f"run {self.folder}: {read} has changed since the run was trained on it: {mend}")
        return graph.with_split(self.split)

    def next_transactions(self, source: Any, history: Any = None, *, need_label: bool = False) -> Graph:
        """Returns new transactions as a graph to score, with the columns of the past that the run was trained on.

        Args:
            source: table of the transactions, see `calirare.Transactions`.
            history: earlier ones; None: those of the run, which must be as they were.
            need_label: a table without labels is a fault.

        Raises:
            InputError: the run is of no transactions, a table cannot be read, or the history changed.
        """
        data, history = self.settings.data, self.history(history)
        return data.transactions_of(source, history).graph(need_label=need_label)

    def history(self, history: Any = None) -> Any:
        """Returns earlier transactions; None: those of the run, which must be as they were, see `next_transactions`."""
        data = self.settings.data
        if not data.entities:
            raise InputError(f"run {self.folder}: it was not trained on transactions: name a graph (--graph)")
        if history is None:
            history, known = (
                data.transactions,
                parse_json(read_text(self.folder / HISTORY)) if data.transactions else {},
            )
            if history is None:
                raise InputError(f"run {self.folder}: its transactions were given in Python: name them (--history)")
            if known.get("sha256") != history_of(history)["sha256"]:
                raise InputError(
                    f"run {self.folder}: {history} is not the table the run was trained on any more: name the "
                    "transactions before the new ones (--history)"
                )
        return history

    def graph_if_there(self, data: str | None = None) -> tuple[Graph | None, str]:
        """Returns the run's own graph, or None and why it is not there; where it is named an InputError."""
        try:
            return self.graph(data), ""
        except InputError as error:
            if data is not None:
                raise
            return None, str(error)

    def to_update(
        self, data: str | None, read: Callable[[Graph], Labels], folder: Path
    ) -> tuple[SavedRun, Graph, Labels, str]:
        """Returns a run, the graph that `update` trains it on again, its fresh labels, and the file of that graph.

        Args:
            data: where the graph is now, see `graph`.
            read: reads labels of a graph.
            folder: where a graph that no file holds is written; its name is returned, else an empty text.

        Raises:
            InputError: the graph is gone, or cannot be trained on, or labels cannot be used.
        """
        own = self.graph(data)
        return self, own, read(own), ""

    def graph_to_label(self, data: str | Path | Graph | None = None) -> Graph:
        """Returns the graph whose nodes fresh labels name, with the labels and the split that a run had."""
        return self.graph(data)

    def with_fresh_labels(self, own: Graph, fresh: Labels) -> tuple[SavedRun, Graph]:
        """Returns a run, and `graph_to_label` with no labels but fresh ones and, of other nodes, those that trained."""
        assert own.y is not None
        trained, y = self.fit.nodes.cpu(), torch.full_like(own.y, -1)
        y[trained] = own.y[trained]
        y[fresh.nodes] = fresh.y
        return self, dataclasses.replace(own, y=y, split=None, trusted=True)

    @plain_torch()
    def mapped(self, graph: Graph) -> Graph:
        """Returns the run's own graph as its detector takes it: with features mapped where the run mapped them."""
        last, made = vars(self).get(LAST_MAPPED, (None, None))
        if made is None or any(getattr(last, name) is not getattr(graph, name) for name in ("x", "y", "adjacency")):
            known = with_sampled_negatives(graph, self.settings.seed) if self.settings.positive_only else graph
            made = self.scorer.features.own(known)
        self.remember(graph, made)
        return made

    def remember(self, graph: Graph, mapped: Graph) -> None:
        """Keeps what `mapped` returns of the run's own graph."""
        vars(self)[LAST_MAPPED] = graph, mapped

    def _data(self, now: str | Path | None) -> Data:
        """Returns the graph's settings for where it is now; a node table that has gone lies next to the edge table."""
        data = self._relabelling(dataclasses.replace(self.settings.data, download=False))
        if data.split == "public":  # the run's own split takes the place of a stored one
            data = dataclasses.replace(data, label_rate=None, split=None)
        if len(self.scorer.class_names) > 2:  # none was merged, though P(rare) is that of class 1
            data = dataclasses.replace(data, task="classes", rare_class=None)
        if now is None and data.source is None:
            raise InputError(
                f"run {self.folder}: its graph was given in Python: write it to a file (graph.to_npz) and say where "
                "that is (--graph, in Python graph)"
            )
        if now is None:
            return data
        features = data.nodes
        if features is not None and not source_exists(features):
            features = str(Path(now).with_name(Path(features).name))
        return data.moved(str(now), features)

    def _relabelling(self, data: Data) -> Data:
        """Returns settings of the data whose table of labels lies in the run's folder, where it was put."""
        own = self.folder / LABELS
        return dataclasses.replace(data, relabel=str(own)) if data.relabel is not None and own.is_file() else data

    @plain_torch()
    def probabilities(self, graph: Graph) -> Tensor:
        """Returns the probabilities of every node of the run's own graph for the run's target, float64 [n, k]."""
        logits, fitted = self.fit.logits_of(self.mapped(graph)).double(), self.scorer.calibrator
        return logits.softmax(1) if fitted is None else fitted.transform(logits)

    def audit(self, data: str | Path | Graph | None = None, at_least: float = AT_LEAST) -> Audit:
        """Returns which labels of the run are probably wrong, and why, see `Outcome.audit`.

        Args:
            data: where the run's own graph is now, see `graph`.
            at_least: P(wrong) from which a label is flagged, in (0, 1].

        Raises:
            InputError: the graph is not there any more, there are not two classes, or too few labels of one.
        """
        own = self.graph(data)
        return audit_run(self.scorer, own, self.mapped(own), self.held_out, at_least)

    def next_labels(self, k: int, data: str | Path | Graph | None = None) -> NextLabels:
        """Returns the nodes that are worth a label next, see `Outcome.next_labels`; `data` as of `graph`."""
        return next_labels(self.explainer(data), k)

    def explainer(self, graph: str | Path | Graph | None = None) -> Explainer:
        """Returns what explains nodes of the run's own graph, for many questions; `graph` as of `graph`."""
        own = self.graph(graph)
        return explainer_of(self.scorer, own, self.mapped(own), lambda: stored_p_rare(self.folder, own))

    def explainer_for(self, graph: str | Path | Graph | None = None) -> Explainer:
        """Returns `explainer`, the last one where the graph is the same."""
        last, made = vars(self).get(LAST, (self, None))
        explainer = made if last is graph and made is not None else self.explainer(graph)
        vars(self)[LAST] = graph, explainer
        return explainer

    def explain(
        self,
        nodes: Nodes | None = None,
        *,
        graph: str | Path | Graph | None = None,
        explainer: Explainer | None = None,
        class_name: str | None = None,
        top: int | None = None,
        labels: int | None = None,
    ) -> Explanations:
        """Returns why nodes of the run's own graph have their P(rare), or P(class); nothing is trained.

        Args:
            nodes: names of nodes, numbers where the graph has no names, or one alone; None: alerts, or the likeliest
                of a class.
            graph: where the run's graph is now, as of `graph`.
            explainer: of `explainer`, where it was made before.
            class_name: with many classes the class; None: of each node its likeliest.
            top: how many of the likeliest alerts, or of the nodes likeliest of the class, in place of nodes.
            labels: how many labels of each node are shown; None: 10, but none where their effects take long.

        Raises:
            InputError: the graph is gone or another one, a node or the class is unknown, or there is no
                alert.
        """
        return explained(explainer or self.explainer_for(graph), nodes, class_name, top, labels)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be made again out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name not in (LAST, LAST_MAPPED)}

    def to_frame(self) -> pd.DataFrame:
        """Returns the run's predictions of its own graph, one row per node.

        Raises:
            InputError: the file is missing or damaged.
        """
        return read_predictions(self.folder, NAMED if self.settings.many else self.settings.data.entities)

    def review(self) -> pd.DataFrame:
        """Returns review.csv: the nodes to look at, the first one first; names as text, whatever they look like.

        Raises:
            InputError: the file is missing or damaged.
        """
        many = self.settings.many
        own = ("prediction", "confidence") if many else ("p_rare", "threshold")
        return read_table(self.folder, "review", ("node", "y", *own), NAMED if many else ())

    def summary(self, *, verbose: bool = False) -> str:
        """Returns calibration, detection, alerts and notes, as `Outcome.summary`.

        Args:
            verbose: whether the tables behind them follow.

        Raises:
            InputError: metrics.json is missing or damaged.
        """
        check_as_written(self.folder, ("metrics.json",))
        try:
            metrics = parse_json(read_text(self.folder / "metrics.json"))
            return summary_of(metrics, verbose=verbose)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"run {self.folder}: metrics.json is missing or damaged: {error}") from error


@plain_torch()
def load_run(folder: Path) -> SavedRun:
    """Returns a run by its folder, see `load`."""
    if not folder.is_dir():
        aside = left_aside(folder)
        if aside is not None:
            raise InputError(f"run {folder}: a job that replaced it was killed and left it as {aside}: rename it back")
        raise InputError(f"run {folder}: there is no such folder; `calirare train --out {folder}` writes one")
    for name in (CONFIG, MODEL):
        if not (folder / name).is_file():
            raise InputError(f"run {folder}: {name} is missing, so this is not a folder written by `calirare train`")
    tensors, facts = read_model(folder / MODEL)
    check_as_written(folder, (CONFIG, MODEL))
    settings = Settings.from_mapping(read_yaml(folder / CONFIG), f"config {folder / CONFIG}")
    try:
        check_model(tensors, facts, math.inf if settings.decision.by_amount else NONE)
        train, val, test = (tensors[f"split.{part}"] for part in PARTS)
        split = Split(train, val, test, str(settings.data.split or ""))
        scorer = scorer_of(tensors, facts, settings)
        return SavedRun(folder, scorer, split, str(facts["graph"]), tensors.get("held_out"))
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError) as error:
        raise damaged(folder / MODEL, error, facts.get("version")) from error
