"""A run scores nodes where their tables live: joins and group-bys by the engine, batches of rows by the run's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.drift import Drift, some_of
from calirare.engines.batches import (
    UNKNOWN,
    Evaluation,
    Pooling,
    RowReader,
    Scores,
    Step,
    Turn,
    from_bytes,
    numbers_of,
)
from calirare.engines.places import Engine
from calirare.engines.rounds import Labels, Means, Plan, Rounds
from calirare.engines.tables import NODES, Tables, both_ways, hop_columns, with_degrees, with_sums
from calirare.graph import TableColumns, default_names, names_in_words
from calirare.graph.columns import NEIGHBOURS, has_default_names
from calirare.graph.matching import note_weights
from calirare.graph.tables.scored import LISTED
from calirare.models import Mapped, NameMatches, NeighbourPool, Pooled, names_are_others, streams_of
from calirare.run import (
    Data,
    Deciding,
    Outcome,
    PrevalenceRequest,
    SavedRun,
    Scored,
    Scorer,
    Settings,
    Totals,
    p_rare,
    to_stderr,
    with_threshold,
)

Run = SavedRun | Outcome
Say = Callable[[str], None]
BLOCK = 1 << 18  # logits looked at together
INSTEAD = "use calirare predict --graph"
NOT_IN_TABLES = {  # settings of data that make what no engine makes
    "transactions": "columns of past transactions",
    "relation": "types of edges",
    "directed": "directions of edges",
    "edge_columns": "features made of edges",
}
NAMELESS = (
    "engines: the run knows its training nodes by their numbers, and a table has none: train on tables whose nodes "
    f"have names (a column node or id), or {INSTEAD}"
)


def score(run: Run, nodes: Any, edges: Any, say: Say = to_stderr) -> Any:
    """Returns P(rare) and alerts of the nodes of a table, where it lives.

    Args:
        run: `calirare.load(folder)`, or what `calirare.train` returned.
        nodes: table of ibis, of DuckDB or Spark: one row per node with its name and the run's columns.
        edges: likewise, one row per edge.
        say: takes notes.

    Returns:
        A table of ibis with a row per node: node, p_rare, p_balanced, p_raw and alert, or P of every class; as long as
        the connection lives. P is that of `calirare predict` to 1e-5, and alerts are the same.

    Raises:
        InputError: the engine cannot do what the run needs, or a table is not as the run's.

    Cost: for each hop one join of all edges with numbers of nodes, and one group-by. Only a decision that depends on
        the number of nodes brings 8 k bytes per node into this process.
    """
    return scored(run, nodes, edges, say=say, summary=False)[0]


@plain_torch()
def scored(
    run: Run,
    nodes: Any,
    edges: Any,
    *,
    data: Data | None = None,
    prevalence: PrevalenceRequest = None,
    deciding: Deciding | None = None,
    summary: bool = True,
    say: Say = to_stderr,
) -> tuple[Any, Scored | None]:
    """Returns the table of `score`, and what to expect of it, for which the logits of all nodes come into memory.

    Args:
        run: see `score`.
        nodes: likewise.
        edges: likewise.
        data: which columns mean what; None: those of the run.
        prevalence: see `Scorer.score`.
        deciding: likewise.
        summary: whether what to expect is wanted.
        say: takes notes.
    """
    scorer = run.scorer
    plan, pool = _plan_of(scorer)
    tables = Tables.of(nodes, edges, data or scorer.settings.data, scorer.tables)
    read, columns = _reader_of(scorer, tables, plan)
    scorer.note_on(say)
    note_weights(scorer.wants_weights, "weight" in tables.ends.columns, say)
    with Engine.of(nodes) as engine:
        rows, pairs = _graph(engine, tables, columns)
        table = _through(engine, rows, pairs, plan.rounds, read, partial(Evaluation, plan=plan))
        table = table if plan.labels is None else _matched(engine, table, plan, say)
        if pool is not None:
            means = Rounds((Means(plan.n_classes, len(pool.weights) - 1),))
            finish = partial(Pooling, weights=pool.weights, shares=pool.shares)
            table = _through(engine, table, pairs, means, None, finish)
        table = table if tables.scored is None else table.semi_join(tables.scored, "node")
        found, cut = None, scorer.threshold
        counts = scorer.settings.decision.decide == "budget" or scorer.settings.decision.max_alerts is not None
        if summary or counts or deciding is not None or prevalence is not None:
            every = engine.fetched(table.select("node", "logits"))
            logits = from_bytes(every, "logits", np.float64)
            drift = _drift(engine, scorer, read, rows, every, logits) if summary else None
            scorer, used, (cut, tied) = with_threshold(scorer, logits, prevalence, deciding)
            totals = Totals(plan.n_classes)
            for block in logits.split(BLOCK):
                totals.add(scorer.said(block, cut))
            name = str(nodes.get_name()) if summary else ""
            found = scorer.scored(name, logits, totals, drift, used, (cut, tied)) if summary else None
        said = partial(replace(scorer, fit=cast(Any, None)).said, threshold=cut)  # without trees, for other processes
        result = engine.mapped(table, Scores(said, scorer.classes, plan.n_classes))
        return engine.result(result), found


@plain_torch()
def columns(
    source: Run | Settings, nodes: Any, edges: Any, *, hops: int = 2, labelled: bool = True, say: Say = to_stderr
) -> Any:
    """Returns what detectors read of nodes, so that training beyond one machine is training on a table without edges.

    Args:
        source: a run, whose features are mapped as it maps them; or settings that say which columns mean what, whose
            features are numbers and stay as they are.
        nodes: see `score`; with settings of any engine of ibis.
        edges: likewise.
        hops: how far columns reach, 0 or more.
        labelled: nodes with a label only.
        say: takes notes.

    Returns:
        A table of ibis: node, the column of labels, each feature, its means over the neighbours ("neighbours' amount"),
        over theirs ("2 hops' amount") and "log degree".

    Raises:
        InputError: a column is missing, or a feature is no number.
    """
    run = None if isinstance(source, Settings) else source
    data = source.data if isinstance(source, Settings) else source.scorer.settings.data
    tables = Tables.of(nodes, edges, data, TableColumns() if run is None else run.scorer.tables)
    if labelled and tables.label is None:
        raise InputError(
            f"{NODES}: no column has labels: call it label, name it in the settings, or pass labelled=False"
        )
    with Engine.of(nodes) as engine:
        if run is None:
            names = tables.features
            odd = [name for name in names if not (nodes[name].type().is_numeric() or nodes[name].type().is_boolean())]
            if odd:
                raise InputError(
                    f"{NODES}: {names_in_words(odd)} must hold numbers: write them as numbers, drop them, or pass a "
                    "run that was trained on a part of the table"
                )
            rows, pairs = _graph(engine, tables, names)
            table = hop_columns(rows, pairs, {name: f"feature{i}" for i, name in enumerate(names)}, hops)
        else:
            scorer = run.scorer
            read, inputs = _reader_of(scorer, tables)
            rows, pairs = _graph(engine, tables, inputs)
            width = scorer.features.n_features
            once = Turn(Rounds((Means(width, 1, Mapped((scorer.features,))),)), 0, read)
            names = scorer.features.feature_names or default_names(width)
            rows = engine.mapped(rows, once)
            table = hop_columns(rows, pairs, {name: f"sent{i}" for i, name in enumerate(names)}, hops)
        if labelled:
            label = tables.nodes[tables.label].cast("string")
            known = label.notnull() & label.notin(["", "-1", *data.unknown])
            table = tables.nodes.filter(known).select("node", tables.label).inner_join(table, "node")
        return engine.result(table)


def _plan_of(scorer: Scorer) -> tuple[Plan, NeighbourPool | None]:
    """Returns a run's detector as rounds, and what pools its neighbours.

    Raises:
        InputError: no engine evaluates it.
    """
    _check_run(scorer)
    found = streams_of(scorer.fit, scorer.features)
    if isinstance(found, str):
        raise InputError(f"engines: the run cannot be scored in an engine, because {found}: {INSTEAD}")
    detector, pool = (found.alone, found.pool) if isinstance(found, Pooled) else (found, None)
    plan = Plan.of(detector)
    labels = [part.fit for part in plan.rounds.parts if isinstance(part, Labels)]
    if any(fit.known.edges for fit in labels) or (scorer.features.labelled and scorer.features.labelled.graph):
        raise InputError(NAMELESS)
    return plan, pool


def _check_run(scorer: Scorer) -> None:
    """Checks that tables hold all that a run reads.

    Raises:
        InputError: they do not.
    """
    data = scorer.settings.data
    read = [what for name, what in NOT_IN_TABLES.items() if getattr(data, name)]
    read += ["nodes without a row"] if LISTED in scorer.kinds else []
    read += ["types of edges"] if scorer.relations and not read else []
    if read:
        raise InputError(f"engines: the run reads {' and '.join(read)}, which no engine makes: {INSTEAD}")


def _reader_of(scorer: Scorer, tables: Tables, plan: Plan | None = None) -> tuple[RowReader, tuple[str, ...]]:
    """Returns what reads rows of the node table, and its columns with the run's features; a degree may have none.

    Raises:
        InputError: a feature is not among its columns.
    """
    names, here = tuple(column.name for column in scorer.features.inputs), tables.features
    lists = len(here) == 1 and tables.nodes[here[0]].type().is_array()
    if lists or has_default_names(names):
        if not lists and len(here) != len(names):
            raise InputError(f"{NODES}: it must have the {len(names)} features of the run, got {names_in_words(here)}")
        columns = here
    else:
        columns = names
        absent = [name for name in names if name not in here and name != NEIGHBOURS]
        if absent:
            raise InputError(
                f"{NODES}: it must have the features of the run, but {names_in_words(absent)} is not among its columns "
                f"{names_in_words(here)}: name them as the run's table does"
            )
    named = scorer.features.labelled is not None or (plan is not None and plan.knows_names)
    gaps = scorer.settings.data.impute != "error"
    return RowReader(() if lists else names, len(names), scorer.kinds, gaps, named, NODES), columns


def _graph(engine: Engine, tables: Tables, columns: tuple[str, ...]) -> tuple[Any, Any]:
    """Returns nodes with the features in some columns, feature0 and on, and degrees; and pairs of neighbours."""
    pairs = both_ways(engine.kept(tables.links(strange=tables.check(engine.fetched))))
    places = {f"feature{i}": name for i, name in enumerate(columns)}
    here = {place: tables.nodes[name] for place, name in places.items() if name in tables.nodes.columns}
    nodes = with_degrees(tables.nodes.select("node", **here), pairs)
    return nodes.mutate(**{place: nodes.degree for place in places if place not in here}), pairs


def _through(
    engine: Engine, table: Any, pairs: Any, rounds: Rounds, read: RowReader | None, finish: Callable[[Turn], Step]
) -> Any:
    """Returns what a last step makes of nodes after all rounds."""
    for turn in range(rounds.number):
        sums = {f"sent{j}": f"sum{j}" for j in range(rounds.sent_width(turn))}
        table = with_sums(engine.mapped(table, Turn(rounds, turn, read)), pairs, sums).drop(*sums)
    return engine.mapped(table, finish(Turn(rounds, rounds.number, read)))


def _matched(engine: Engine, table: Any, plan: Plan, say: Say) -> Any:
    """Returns logits that use labels where names are those of the run's nodes, see `match_nodes`."""
    assert plan.labels is not None
    found = engine.fetched(table.filter(table.label >= 0).select("label", "others"))
    met, others = NameMatches(plan.labels), from_bytes(found, "others", np.float64)
    met.add(0, found.num_rows, plan.labels.nodes.numpy()[found["label"].to_numpy()])
    counts = table.aggregate(known=(table.label > UNKNOWN).sum(), n=table.count())
    met.known, met.n = (int(number or 0) for number in engine.fetched(counts).to_pylist()[0].values())
    mixture = plan.mixture
    if names_are_others(mixture, met, lambda alone, nodes: others[nodes], say):
        return table.drop("logits").rename(logits="silent")
    return table


def _drift(
    engine: Engine, scorer: Scorer, read: RowReader, rows: Any, every: pyarrow.Table, logits: Tensor
) -> Drift | None:
    """Returns how the nodes differ from those of the run's graph, by random ones; None without nodes."""
    if not every.num_rows:
        return None
    some = some_of(every.num_rows)
    p = p_rare(logits[torch.from_numpy(some)], scorer.calibrators).numpy()
    chosen = every.select(["node"]).take(some).append_column("p", pyarrow.array(p))
    found = engine.fetched(rows.inner_join(engine.loaded(chosen), "node")).combine_chunks().to_batches()[0]
    degrees, p = (numbers_of(found, name).numpy() for name in ("degree", "p"))
    return scorer.reference.compare_sample(read(found), degrees, scorer.features, p, every.num_rows)
