"""Another graph scored by a run, in a folder of its own: it answers what a run's folder answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.run_files import check_as_written, checksum_of
from calirare._util.torch_state import plain_torch
from calirare.calibration import KINDS, Target
from calirare.datasets import read_graph
from calirare.explain import Explainer
from calirare.explain.audit import AT_LEAST, Audit
from calirare.graph import Graph, Split, fingerprint, joined
from calirare.graph.labelled import NO_PART
from calirare.graph.tables import id_column_of, is_table
from calirare.models import match_nodes
from calirare.run.data_settings import Labels
from calirare.run.deciding import Deciding
from calirare.run.explaining import TrainedOn, explainer_of, read_node_column
from calirare.run.folder import SavedRun, load_run, write_json
from calirare.run.scored import Scored
from calirare.run.tables import TRANSACTIONS, stored_p_rare, write_csv, write_predictions

GRAPH = "graph.npz"  # of a run on two graphs
SCORING, FORMAT = "scoring.json", "calirare scoring 1"  # which graph was scored, and by which run
EDGE_RULES = ("duplicates", "self_loops", "symmetrize")
NO_OWN = "effects of labels need the graph that the run was trained on: {}"


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedScoring(SavedRun):
    """A graph scored by a run, read from its folder.

    `scorer` has the calibrators and the threshold of this scoring, `fingerprint` is that of the scored graph.

    Attributes:
        run: whose detector it is.
        reading: where the graph is, and how it is read; see `read_scored`.
    """

    run: SavedRun
    reading: dict[str, Any]
    is_scoring = True

    @property
    def _what(self) -> str:
        """Which entry of `reading` says where the graph is."""
        return "graph" if self.reading["transactions"] is None else "transactions"

    @property
    def checksum(self) -> str:
        """What no other scoring has: the checksum of the run and of what says how the graph is read."""
        return f"{self.run.checksum}-{checksum_of(self.folder, (SCORING,))}"

    @property
    def scoring(self) -> dict[str, Any]:
        """What `predictions.json` holds: expected numbers, alerts, drift."""
        check_as_written(self.folder, ("predictions.json",))
        return cast(dict[str, Any], parse_json(read_text(self.folder / "predictions.json")))

    def graph(self, data: str | Path | Graph | None = None) -> Graph:
        """Returns the scored graph.

        Args:
            data: where it is now, or the graph itself; None: where it was.

        Raises:
            InputError: it is not there any more, or is another graph.
        """
        if isinstance(data, Graph):
            graph = data.to("cpu")
        else:
            moved = {} if data is None else {self._what: str(data)}
            graph = read_scored(self.run, self.reading | moved)
        if fingerprint(graph) != self.fingerprint:
            read = self.reading[self._what] if data is None or isinstance(data, Graph) else data
            raise InputError(
                f"scoring {self.folder}: {read} has changed since it was scored. Score it again (`calirare predict`), "
                "or give the old graph (--graph)"
            )
        return graph

    def mapped(self, graph: Graph) -> Graph:
        """Returns the scored graph as the detector takes it."""
        return self.scorer.prepared(graph, _silent)

    @plain_torch()
    def explainer(self, graph: str | Path | Graph | None = None) -> Explainer:
        """Returns what explains nodes of the scored graph; labels and their names come from the run's own."""
        scored = self.graph(graph)
        prepared = self.mapped(scored)
        fit = match_nodes(self.run.fit, prepared, _silent)
        own, why = self.run.graph_if_there()
        trained_on = TrainedOn(NO_OWN.format(why))
        if own is not None:
            trained_on = TrainedOn("", own, self.run.mapped(own), shared=fit is self.run.fit)
        scorer = dataclasses.replace(self.scorer, fit=fit)
        return explainer_of(scorer, scored, prepared, lambda: stored_p_rare(self.folder, scored), trained_on)

    def audit(self, data: str | Path | Graph | None = None, at_least: float = AT_LEAST) -> Audit:
        """Refuses: no label of the scored graph trained.

        Raises:
            InputError: always.
        """
        del data, at_least
        raise InputError(
            f"audit: {self.folder} is a scoring, and its labels did not train. Audit its run: {self.run.folder}"
        )

    def to_update(
        self, data: str | None, read: Callable[[Graph], Labels], folder: Path
    ) -> tuple[SavedRun, Graph, Labels, str]:
        """Returns the run, its own graph with the scored one joined, and the file that holds it, see `SavedRun`.

        Transactions are joined as tables, with the fresh labels, which later rows' columns of the past know.
        """
        run, scored = self.run, self.graph(data)
        saved = dataclasses.replace(self, scorer=run.scorer, split=run.split)
        if self.reading["transactions"] is None:
            both = joined(run.graph(), scored)
            both.to_npz(folder / GRAPH)
            return saved, both, read(both), GRAPH
        path, own, data_of = folder / "history.parquet", run.graph(), run.settings.data
        fresh, source = read(self._blank(scored)), data or self.reading["transactions"]
        if self.reading["history"] is not None:
            raise InputError(
                f"update: {self.folder} was scored with another --history than the table of its run: put both into "
                "one, with the new labels, and train again (`calirare train --transactions`)"
            )
        assert own.minority is not None
        names = (own.original_class_names[1 - own.minority], own.original_class_names[own.minority], "")
        answers = {node: names[y] for node, y in zip(fresh.nodes.tolist(), fresh.y.tolist(), strict=True)}
        data_of.transactions_of(source, run.history()).write_joined(path, answers)
        there = dataclasses.replace(run._relabelling(data_of), transactions=str(path))
        both, nodes = there.load(run.settings.seed).with_split(run.split), fresh.nodes + own.n_nodes
        unlabelled = Labels(nodes, torch.full_like(nodes, -1), torch.full_like(nodes, NO_PART)).of(both)
        return saved, unlabelled, dataclasses.replace(fresh, nodes=nodes), path.name

    def _blank(self, graph: Graph) -> Graph:
        """Returns the scored graph without labels, with the classes of the run."""
        y, names = torch.full((graph.n_nodes,), -1), self.run.class_names
        return dataclasses.replace(graph, y=y, original_y=None, class_names=names, split=None, trusted=True)

    def graph_to_label(self, data: str | Path | Graph | None = None) -> Graph:
        """Returns the scored graph without labels, as none of its own trained."""
        return self._blank(self.graph(data)).with_split(self.split)

    def with_fresh_labels(self, own: Graph, fresh: Labels) -> tuple[SavedRun, Graph]:
        """Returns the run that scored, and the scored graph with fresh labels only."""
        y = torch.full((own.n_nodes,), -1).index_copy(0, fresh.nodes, fresh.y)
        return self.run, dataclasses.replace(own, y=y, split=None, trusted=True)


def _silent(note: str) -> None:
    """Drops a note that scoring gave."""


def read_scored(saved: SavedRun, reading: dict[str, Any]) -> Graph:
    """Returns a graph that a run is to score.

    Args:
        saved: the run.
        reading: `graph`, name or path, or `transactions` and `history` (`SavedRun.next_transactions`); `settings`,
            keywords of `read_graph`; `where`, None or "COLUMN=VALUE": of the scored nodes those with a value in a
            column of the node table stay scored.

    Raises:
        InputError: a file cannot be used, or no scored node has the value.
    """
    where, transactions = reading["where"], reading["transactions"]
    if transactions is None:
        graph = scored_graph(saved, reading["graph"], reading["settings"])
    else:
        graph = saved.next_transactions(transactions, reading["history"])
    if where is None:
        return graph
    table = transactions or reading["settings"].get("nodes")
    column, _, value = where.partition("=")
    if table is None or not column or not value:
        raise InputError(f"predict: --where must be COLUMN=VALUE of a node table (--nodes), got {where!r}")
    cells = read_node_column(table, column, graph)
    chosen = torch.tensor([cells.get(graph.node_name(i)) == value for i in range(graph.n_nodes)])
    chosen &= torch.zeros(graph.n_nodes, dtype=torch.bool).index_fill_(0, graph.scored_nodes, True)
    if not bool(chosen.any()):
        raise InputError(f"predict: --where {where}: no target node has {column} {value!r}: look at {table}")
    y = None if graph.y is None else graph.y.masked_fill(~chosen, -1)
    return dataclasses.replace(graph, scored=chosen, y=y, original_y=None, trusted=True)


def scored_graph(saved: SavedRun, graph: str, settings: dict[str, Any]) -> Graph:
    """Returns a graph to score, a table read with the columns and edge rules that the run named."""
    if is_table(graph):
        data = saved.settings.data
        rules = {name: getattr(data, name) for name in EDGE_RULES if getattr(data, name) not in (None, False)}
        times = {} if settings.get("as_of") is None or data.time is None else {"time": data.time}
        own = data.columns() | rules | times | {"kinds": saved.kinds}
        own |= {"unweighted": True} if saved.scorer.tables.unweighted else {}
        if settings.get("weight") is not None or settings.get("unweighted"):  # here it is another way
            own = {name: value for name, value in own.items() if name not in ("weight", "unweighted")}
        settings = own | {"need_label": "label" in settings} | settings
        if settings.get("id") is None:  # where the run found its names, if that is there too
            settings = settings | {"id": id_column_of(graph, settings.get("nodes"), saved.scorer.tables.id)}
    given = {k: v for k, v in settings.items() if (v is not None and v is not False) or k == "need_label"}
    return read_graph(graph, **given)[0]


def write_scoring(
    folder: Path, run: SavedRun, reading: dict[str, Any], graph: Graph, found: Scored, decision: Deciding
) -> None:
    """Writes what `load` reads as a `SavedScoring` into an empty folder.

    Args:
        folder: the folder.
        run: whose detector scored.
        reading: see `read_scored`, with absolute paths.
        graph: the scored graph.
        found: its predictions.
        decision: that chose the alerts.
    """
    assert found.table is not None
    assert found.queue is not None
    write_predictions(found.table, folder, "predictions" if reading["transactions"] is None else TRANSACTIONS)
    queue = found.queue if "y" in found.queue else found.queue.assign(y="")
    write_csv(queue, folder / "review.csv")
    calibrators = {t: {"kind": type(c).__name__, "state": c.state()} for t, c in found.calibrators.items()}
    facts: dict[str, Any] = {
        "format": FORMAT,
        "run": str(run.folder.resolve()),
        "run_checksum": run.checksum,
        "reading": reading,
    }
    facts |= {"fingerprint": fingerprint(graph), "threshold": found.threshold, "calibrators": calibrators}
    write_json(facts | {"decision": dataclasses.asdict(decision)}, folder / SCORING)
    write_json(found.to_mapping(), folder / "predictions.json")


def load(folder: str | Path) -> SavedRun:
    """Reads the folder of a run, or of another graph that a run scored.

    Args:
        folder: written by `calirare train` or `Outcome.save`, or of another graph by `calirare predict`.

    Raises:
        InputError: the folder is missing or neither, or a file in it is damaged.
    """
    folder = Path(folder)
    return load_scoring(folder) if (folder / SCORING).is_file() else load_run(folder)


def load_scoring(folder: Path) -> SavedScoring:
    """Reads a scoring's folder.

    Raises:
        InputError: a file is damaged, or its run is gone or another one.
    """
    check_as_written(folder, (SCORING,))
    try:
        facts = parse_json(read_text(folder / SCORING))
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r} is not known")
        run, was = load_run(Path(facts["run"])), facts["run_checksum"]
        maps = {cast(Target, t): KINDS[c["kind"]].from_state(c["state"]) for t, c in facts["calibrators"].items()}
        decision = dataclasses.replace(run.settings.decision, **facts["decision"])
        settings = dataclasses.replace(run.settings, decision=decision)
        scorer = dataclasses.replace(run.scorer, settings=settings, calibrators=maps, threshold=facts["threshold"])
        now = run.checksum
        fields = {"run": run, "reading": facts["reading"]}
        none = torch.empty(0, dtype=torch.int64)
        found = SavedScoring(folder, scorer, Split(none, none, none, ""), facts["fingerprint"], None, **fields)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"scoring {folder}: {SCORING} is damaged: {error}: score the graph again") from error
    if now != was:
        raise InputError(
            f"scoring {folder}: run {facts['run']} was trained or recalibrated since: score the graph again "
            "(`calirare predict`)"
        )
    return found
