"""A run of many classes read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.run_files import check_as_written
from calirare._util.torch_state import plain_torch
from calirare.explain import ClassExplainer, Explanations, Group, Nodes
from calirare.explain.audit import AT_LEAST, Audit
from calirare.graph import Graph
from calirare.run.class_explaining import class_explainer_of, classes_explained
from calirare.run.class_measures import class_summary
from calirare.run.class_scoring import class_table
from calirare.run.folder import CLASSES, SavedRun, read_run
from calirare.run.score_only import Loaded
from calirare.run.scoring import Say, Scorer, to_stderr
from calirare.run.settings import Settings
from calirare.run.summary import WIDTH
from calirare.run.tables import read_predictions, read_review
from calirare.training import Fitted

NAMED = ("y", "prediction")  # columns of class names


@dataclass(frozen=True, eq=False)
class SavedClasses:
    """A run of many classes read from its folder; `calirare.load_classes` reads one.

    Attributes:
        run: what every run's folder holds; its threshold and all that is of a rare class are nobody's.
    """

    run: SavedRun

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.run.folder

    @property
    def scorer(self) -> Scorer:
        """Detector, labels and maps, which score any graph."""
        return self.run.scorer

    @property
    def settings(self) -> Settings:
        """As resolved by the training."""
        return self.run.settings

    @property
    def fit(self) -> Fitted:
        """The detector with its labels."""
        return self.run.fit

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.scorer.class_names

    @property
    def version(self) -> str:
        """Version of CaliRare that trained it; empty where that was before runs stored it."""
        return self.run.version

    @property
    def kinds(self) -> dict[str, str]:
        """What the raw columns hold, see `Scorer.kinds`."""
        return self.scorer.kinds

    def graph(self, data: str | Path | Graph | None = None) -> Graph:
        """Returns the run's own graph with the run's split, see `SavedRun.graph`."""
        return self.run.graph(data)

    @plain_torch()
    def probabilities(self, graph: Graph) -> Tensor:
        """Returns the probabilities of every node of the run's own graph for the run's target, float64 [n, k].

        Args:
            graph: as of `graph`.
        """
        logits, fitted = self.fit.logits_of(self.run.mapped(graph)).double(), self.scorer.calibrator
        return logits.softmax(1) if fitted is None else fitted.transform(logits)

    @plain_torch()
    def predict(self, graph: Graph, say: Say = to_stderr) -> pd.DataFrame:
        """Returns one row per scored node of a graph.

        Args:
            graph: with the run's features, in any order where they have names; labels play no part.
            say: takes notes, such as features that are left out.

        Returns:
            node, prediction, confidence, confidence_raw (the detector's own) and `p_<class>` of each class, for the
            run's target.

        Raises:
            InputError: the features are others.
        """
        return class_table(Loaded(self.scorer, graph, say))

    def audit(self, data: str | Path | Graph | None = None, at_least: float = AT_LEAST) -> Audit:
        """Returns which labels of the run are probably wrong, and why, see `ClassesOutcome.audit`.

        Args:
            data: where the run's own graph is now, see `graph`.
            at_least: P(wrong) from which a label is flagged, in (0, 1].

        Raises:
            InputError: the graph is not there any more, or there are too few labels.
        """
        return self.run.audit(data, at_least)

    def explainer(self, graph: str | Path | Graph | None = None) -> ClassExplainer:
        """Returns what explains nodes of the run's own graph, for many questions; `graph` as of `graph`."""
        own = self.graph(graph)
        return class_explainer_of(self.scorer, own, self.run.mapped(own))

    def explain(
        self,
        nodes: Nodes | None = None,
        *,
        graph: str | Path | Graph | None = None,
        explainer: ClassExplainer | None = None,
        class_name: str | None = None,
        top: int | None = None,
        labels: int = 10,
        group: Group | None = None,
    ) -> Explanations:
        """Returns why nodes of the run's own graph have their P(class), see `ClassesOutcome.explain`.

        Args:
            nodes: names of nodes, numbers where the graph has no names, or one alone; None: the likeliest of a
                class.
            graph: where the run's graph is now, as of `graph`.
            explainer: of `explainer`, where it was made before; None: that of the last call, if its graph was this one.
            class_name: the class; None: of each node its likeliest.
            top: how many nodes, the likeliest of the class, in place of nodes.
            labels: how many labels of each node are told of.
            group: a column by whose values labels are left out together.

        Raises:
            InputError: the graph is gone or another one, or a node, the class or the column is unknown.
        """
        return classes_explained(explainer or self._explainer_of(graph), nodes, class_name, top, labels, group)

    def _explainer_of(self, graph: str | Path | Graph | None) -> ClassExplainer:
        """Returns `explainer`, made once while the graph is the same one."""
        last = self._last_explainer
        known, explainer = last[0] if last else (None, None)  # another thread may put in another one meanwhile
        if explainer is None or not (known is graph or (isinstance(graph, str | Path) and known == graph)):
            explainer = self.explainer(graph)
            last[:] = [(graph, explainer)]
        return explainer

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be made anew out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name != "_last_explainer"}

    @cached_property
    def _last_explainer(self) -> list[tuple[str | Path | Graph | None, ClassExplainer]]:
        return []

    def to_frame(self) -> pd.DataFrame:
        """Returns the run's predictions of its own graph, one row per scored node.

        Raises:
            InputError: the file is missing or damaged.
        """
        check_as_written(self.folder, ("predictions.csv",))
        return read_predictions(self.folder, named=NAMED)

    def review(self) -> pd.DataFrame:
        """Returns review.csv: the nodes whose class is least sure, the first to look at; their names as text.

        Raises:
            InputError: the file is missing or damaged.
        """
        return read_review(self.folder, ("node", "y", "prediction", "confidence"), NAMED)

    def summary(self, width: int = WIDTH) -> str:
        """Returns what the run said of itself, as text of some width.

        Raises:
            InputError: metrics.json is missing or damaged.
        """
        check_as_written(self.folder, ("metrics.json",))
        try:
            return class_summary(parse_json(read_text(self.folder / "metrics.json")), width)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"run {self.folder}: metrics.json is missing or damaged: {error}") from error


@plain_torch()
def load_classes(folder: str | Path) -> SavedClasses:
    """Reads the folder of a run of many classes.

    Args:
        folder: written by `calirare train --task classes` or `ClassesOutcome.save`.

    Raises:
        InputError: the folder is missing or not such a run, or a file in it is damaged.
    """
    return SavedClasses(read_run(Path(folder), CLASSES))
