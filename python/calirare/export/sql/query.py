"""A run as one query: features, hops, weights, map and threshold."""

from __future__ import annotations

from calirare._util.errors import InputError
from calirare.export.detectors import DIRECTED
from calirare.export.maps import log_odds
from calirare.export.sql.columns import mapped, raw_columns
from calirare.export.sql.detectors import Detectors
from calirare.export.sql.dialects import Dialect, number
from calirare.export.sql.names import Names
from calirare.export.sql.neighbours import EdgeReading, Neighbours
from calirare.export.sql.nodes import Nodes
from calirare.export.sql.script import Columns, Script
from calirare.export.sql.sparse import Sparse, sparse_features
from calirare.export.sql.terms import Term
from calirare.export.unlabelled import without_labels
from calirare.graph import as_of_words
from calirare.run import DRAWN, Scorer, Settings


def query_of(scorer: Scorer, dialect: Dialect, names: Names) -> str:
    """Returns the query that scores tables as a run does.

    Args:
        scorer: of the run.
        dialect: of the engine.
        names: of the tables and their columns.

    Returns:
        One SELECT with a row per node that is scored: node, p_rare, alert (0 or 1) and threshold. Without a semicolon,
        so that it can be the body of a view or of CREATE TABLE .. AS.

    Raises:
        InputError: a part of the run cannot be written.
    """
    if len(scorer.class_names) != 2:
        raise InputError(f"export: the run must have two classes, got {len(scorer.class_names)}: train with --minority")
    if names.salt > 1 and not dialect.salted:
        raise InputError(f"export: --salt is for spark, {dialect.name} spreads hubs by itself: leave it out")
    scorer, _ = without_labels(scorer)
    script = Script(dialect, names.prefix())
    nodes = Nodes.of(script, names, scorer)
    neighbours = Neighbours(script, names, nodes, edge_reading(scorer.settings, names, scorer.weighted))
    logits = Detectors(script, neighbours, _features(script, names, nodes, scorer)).of(scorer.fit)
    d = Term(dialect, "d")
    said = log_odds(scorer.calibrators.get("population"), d)
    odds = script.select("odds", [("node", "node"), (said.text, "d")], f"FROM {logits}")
    p = script.select("p", [("node", "node"), (d.probability().text, "p_rare")], f"FROM {odds}")
    threshold = number(scorer.threshold)
    alert = f"CASE WHEN p_rare >= {threshold} THEN 1 WHEN p_rare IS NOT NULL THEN 0 END"
    where = f" WHERE {nodes.said}" if nodes.said else ""
    return script.text(f"SELECT node, p_rare, {alert} AS alert, {threshold} AS threshold\nFROM {p}{where}")


def _features(script: Script, names: Names, nodes: Nodes, scorer: Scorer) -> Columns | Sparse:
    """Returns the features as the detector takes them."""
    features = scorer.features
    if names.features is not None:
        return sparse_features(script, names, features).mapped(features)
    return mapped(script, raw_columns(script, nodes, features, scorer.reference.binary), features)


def edge_reading(settings: Settings, names: Names, weighted: bool | None = False) -> EdgeReading:
    """Returns what becomes of the rows of the edge table, as `calirare predict` reads tables.

    Args:
        settings: of the run.
        names: of the tables.
        weighted: whether edges of the run's graph have weights other than 1.

    Raises:
        InputError: the run's edges have directions or types, the first of repeated weights is to count, or weights are
            in a column that nobody named.
    """
    data = settings.data
    if data.relation is not None or data.directed:
        raise InputError(DIRECTED)
    if names.weight is not None and data.duplicates == "drop":
        raise InputError(
            "export: of repeated edges the run takes the first weight, but tables have no order: train with "
            "--duplicates sum, or on a table without weights"
        )
    if names.weight is None and weighted and data.duplicates != "sum":
        raise InputError(
            "export: the edges of the run's graph have weights, and no column is known to hold them: name the one of "
            "your edge table (--weight)"
        )
    added = names.weight is not None or data.duplicates == "sum"
    return EdgeReading(added, data.self_loops == "keep")


def notes_on(scorer: Scorer) -> list[str]:
    """Returns what a user of a run's query or model should know, a sentence each."""
    notes = []
    if scorer.features.labelled is not None:
        notes.append(
            "categories count by the labels of all nodes: `calirare predict` leaves a labelled node's own label out, "
            "where it finds the node again"
        )
    if scorer.settings.positive_only:
        notes.append(DRAWN)
    if scorer.settings.decision.decide == "budget":
        notes.append(f"the budget's threshold stays the run's, {scorer.threshold:.6g}, on every graph")
    if scorer.settings.data.as_of is not None:
        last = as_of_words(scorer.settings.data.as_of)
        notes.append(f"the run left out edges after {last}, what is exported takes all it is given")
    return notes
