"""What `calirare.train_classes` returns: calibrated probabilities of every class, and what a run's folder holds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from torch import Tensor

from calirare._util.brief import brief
from calirare._util.device import choose_device
from calirare._util.torch_state import plain_torch
from calirare.calibration import TARGETS, Calibrator, Target
from calirare.drift import Reference
from calirare.explain import ClassExplainer, Explanations, Group, Nodes
from calirare.explain.audit import AT_LEAST, Audit
from calirare.features import FeatureMap
from calirare.graph import Graph, answered, fingerprint
from calirare.leave_one_out import Agreement
from calirare.models import GcnFit
from calirare.run.choice import Choice
from calirare.run.class_explaining import class_explainer_of, classes_explained
from calirare.run.class_judging import RAW, Judged
from calirare.run.class_measures import class_summary, rare_among
from calirare.run.class_scoring import class_table
from calirare.run.deciding import left_of
from calirare.run.explaining import audit_run
from calirare.run.folder import CLASSES, CONFIG, write_json
from calirare.run.model_file import write_model
from calirare.run.probabilities import LIKELIER
from calirare.run.result import CalibratedRun
from calirare.run.score_only import Loaded
from calirare.run.scoring import NO_TABLES, Say, Scorer, to_stderr
from calirare.run.settings import Settings
from calirare.run.summary import WIDTH
from calirare.run.tables import REVIEWED, node_column, part_column, write_predictions, write_queue
from calirare.training import Fitted
from calirare_ext import __version__


@dataclass(eq=False)
class ClassesOutcome(CalibratedRun):
    """A trained and calibrated detector of many classes.

    Attributes:
        graph: the graph, with labels and split.
        settings: how it was made, as asked for.
        fit: the detector and the labels it was trained on.
        logits: of every node [n, k].
        own_logits: of each training label from the model without it, [m, k]; None where calibration took none.
        calibrators: the fitted map of each target; empty without calibration.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        notes: sentences a user should read.
        damping: of the leave-one-out step of a network; 0 where there is none.
        held_out: each label's logits by the network without its fold, [m, k]; None where the detector has its folds, or
            there was no cross-validation.
        seconds: wall time of each stage.
        choice: what was chosen among detectors, and why; None where one was asked for.
        features: what the features became; None stands for "stored".
        judge: what judges the run in the place of its own nodes; None: they do, see `judged`.
    """

    graph: Graph
    settings: Settings
    fit: Fitted
    logits: Tensor
    own_logits: Tensor | None
    calibrators: dict[Target, Calibrator]
    agreement: Agreement | None
    notes: list[str] = field(default_factory=list)
    damping: float = 0.0
    held_out: Tensor | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    choice: Choice | None = None
    features: FeatureMap | None = None
    judge: Judged | None = None

    __repr__ = brief

    def mapped_logits(self, logits: Tensor, target: Target | None) -> Tensor:
        """Returns the probabilities of logits [m, k], float64."""
        return super().mapped_logits(logits.double(), target)

    def judged(self) -> tuple[str, Tensor, Tensor]:
        """Returns what the run is judged on ("test" or "leave-one-out"), the nodes, and their logits.

        These are the labelled test nodes; where there is none the labelled nodes, each without its own label.

        Raises:
            ValueError: there is neither.
        """
        split, y = self.graph.split, self.graph.y
        assert split is not None
        assert y is not None
        test = split.test[y[split.test] >= 0]
        if test.numel():
            return "test", test, self.logits[test]
        if self.own_logits is None:
            raise ValueError("judged: there must be a labelled test node, or leave-one-out logits, got neither")
        known = torch.isfinite(self.own_logits).all(1)
        return "leave-one-out", self.fit.nodes[known], self.own_logits[known]

    def _judge(self) -> Judged:
        """Returns what the run is judged by."""
        if self.judge is not None:
            return self.judge
        judged_on, nodes, logits = self.judged()
        sides: dict[str, Target | None] = {RAW: None} | {str(t): t for t in TARGETS if t in self.calibrators}
        p = {side: self.mapped_logits(logits, t).cpu() for side, t in sides.items()}
        assert self.graph.y is not None
        return Judged(judged_on, self.graph.y[nodes].cpu(), p)

    @cached_property
    @plain_torch()
    def metrics(self) -> dict[str, Any]:
        """Everything `metrics.json` holds: plain numbers and strings."""
        names, target = self.graph.class_names, self.settings.calibration.target
        shares = self.probabilities("population")[self.graph.scored_nodes].mean(0).tolist()
        return {
            "task": "classes",
            "graph": self._graph_facts(),
            "method": self.settings.method,
            "model": self.settings.model,
            "target": target,
            **self._judge().measures(names),
            "estimated_shares": dict(zip(names, shares, strict=True)),
            "rare_classes": rare_among(names, shares),
            "agreement": None if self.agreement is None else vars(self.agreement),
            "calibrators": {str(t): c.state() for t, c in self.calibrators.items()},
            "version": __version__,
            "choice": None if self.choice is None else self.choice.to_mapping(),
            "notes": self.notes,
        }

    def _graph_facts(self) -> dict[str, Any]:
        graph, split = self.graph, self.graph.split
        assert split is not None
        parts = {name: int(getattr(split, name).numel()) for name in ("train", "val", "test")}
        return {
            "name": graph.name,
            "nodes": graph.n_nodes,
            "directed_edges": graph.n_edges,
            "features": graph.n_features,
            "classes": list(graph.class_names),
            "split": split.name,
            **parts,
            "labels_trained_on": int(self.fit.nodes.numel()),
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns measures before and after calibration, the classes one by one, the verdict and notes, as text."""
        return class_summary(self.metrics, width)

    @plain_torch()
    def to_frame(self) -> pd.DataFrame:
        """Returns one row per scored node: the predicted class, its probability, and that of every class.

        Returns:
            node, split, y (name of the class, empty where unknown), prediction, confidence, confidence_raw (the
            detector's own), then `p_<class>` of each class, for the run's target.
        """
        return self._rows(self.graph.scored_nodes.cpu())

    @plain_torch()
    def predict(self, graph: Graph, say: Say = to_stderr) -> pd.DataFrame:
        """Returns the same of another graph with the same features, without split and y, see `SavedClasses.predict`."""
        scorer = self.scorer()
        return class_table(Loaded(scorer, graph, say))

    def review(self) -> Tensor:
        """Returns the nodes without a label, those first whose predicted class is least sure, int64.

        Where every node has a label, nodes that neither trained nor calibrated.
        """
        confidence = self.probabilities(self.settings.calibration.target).max(1).values
        order, known = torch.argsort(confidence, stable=True), answered(self.graph)
        return (order if known is None else left_of(order, known, self.graph.n_nodes)).cpu()

    def audit(self, at_least: float = AT_LEAST) -> Audit:
        """Returns which labels are probably wrong, and why.

        Args:
            at_least: P(wrong) from which a label is flagged, in (0, 1].

        Raises:
            InputError: there are too few labels of too many classes, or the run has none without themselves.
        """
        mapped = self.features.own(self.graph) if self.features is not None else self.graph
        return audit_run(self.fit, self.graph, mapped, self.settings, self.damping, self.held_out, at_least)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be made anew out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name != "explainer"}

    @cached_property
    def explainer(self) -> ClassExplainer:
        """What explains the graph's nodes, made once."""
        mapped = self.features.own(self.graph) if self.features is not None else self.graph
        return class_explainer_of(self.scorer(), self.graph, mapped)

    def explain(
        self,
        nodes: Nodes | None = None,
        *,
        class_name: str | None = None,
        top: int | None = None,
        labels: int = 10,
        group: Group | None = None,
    ) -> Explanations:
        """Returns why nodes have their P(class): labels, edges and features that speak for and against it.

        Args:
            nodes: names of nodes, numbers where the graph has no names, or one alone; a tensor holds
                numbers. None: the likeliest of a class.
            class_name: the class; None: of each node its likeliest.
            top: how many nodes, the likeliest of the class, in place of nodes.
            labels: how many labels of each node are told of.
            group: a column of the node table, see `Outcome.explain`.

        Raises:
            InputError: a node, the class or the column is unknown, or the detector cannot be explained.
        """
        return classes_explained(self.explainer, nodes, class_name, top, labels, group)

    def _rows(self, nodes: Tensor) -> pd.DataFrame:
        """Returns rows of the table of predictions, of nodes int64 [r]."""
        graph, names = self.graph, self.graph.class_names
        assert graph.y is not None
        p = self.probabilities(self.settings.calibration.target).cpu()[nodes]
        confidence, predicted = p.max(1)
        rows = nodes.numpy()
        columns: dict[str, Any] = {
            "node": node_column(graph)[rows],
            "split": part_column(graph.n_nodes, graph.split)[rows],
            "y": [names[c] if c >= 0 else "" for c in graph.y.cpu()[nodes].tolist()],
            "prediction": [names[c] for c in predicted.tolist()],
            "confidence": confidence.numpy(),
            "confidence_raw": self.probabilities(None).max(1).values.cpu()[nodes].numpy(),
        }
        return pd.DataFrame(columns | {f"p_{name}": p[:, c].numpy() for c, name in enumerate(names)})

    def write(self, folder: Path) -> None:
        """Writes what a run's folder holds into an empty folder."""
        (folder / CONFIG).write_text(yaml.safe_dump(self._resolved().to_mapping(), sort_keys=False), encoding="utf-8")
        assert self.graph.split is not None
        write_model(self.scorer(), self.graph.split, fingerprint(self.graph), self.held_out, folder / CLASSES)
        self.write_tables(folder, self.metrics)

    def write_tables(self, folder: Path, metrics: dict[str, Any]) -> None:
        """Writes what the maps say of the graph: measures, predictions, the queue and pictures."""
        write_json(metrics, folder / "metrics.json")
        write_predictions(self.to_frame(), folder)
        write_queue(self._rows(self.review()[:REVIEWED]), folder)
        self._draw(folder)

    def scorer(self) -> Scorer:
        """Returns what scores other graphs with the run; of its graph's scores nothing is remembered."""
        graph, features = self.graph, self.features or FeatureMap.fit(self.graph, "stored")
        nobody = torch.empty(0, dtype=torch.int64)
        return Scorer(
            self.fit,
            self.settings,
            self.calibrators,
            self.damping,
            None,
            graph.class_names,
            features,
            LIKELIER,
            Reference.of(graph, features, torch.zeros(graph.n_nodes), nobody),
            graph.tables or NO_TABLES,
            bool((graph.adjacency.values != 1).any()),
            tuple(relation.name for relation in graph.relations),
        )

    def _resolved(self) -> Settings:
        """Returns every setting as the run took it, paths absolute: the same run again."""
        data = dataclasses.replace(self.settings.data.absolute(), task="classes")
        training = self.settings.training.resolved(self._chosen)
        return dataclasses.replace(
            self.settings, data=data, training=training, device=choose_device(self.settings.device).type
        )

    @property
    def _chosen(self) -> dict[str, Any]:
        """The settings of training that were chosen where they were left open, by name."""
        if not isinstance(self.fit, GcnFit) or self.settings.model not in ("gcn", "hops"):
            return {}
        epochs = max(len(self.fit.losses), 1)
        return {"epochs": epochs, "weight_decay": self.fit.weight_decay, "hops": self.fit.hops}

    def _draw(self, folder: Path) -> None:
        """Draws `reliability.png`, of the predicted class, and `classes.png`, of every class's probability."""
        graph = self.graph
        self._judge().draw(folder, graph.name, graph.class_names, self.settings.calibration.target)
