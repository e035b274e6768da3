"""A run scores nodes where their tables live: joins and group-bys by the engine, batches of rows by the run's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.drift import Drift, some_of
from calirare.engines.batches import (
    UNKNOWN,
    RowReader,
    Step,
    Turn,
    evaluation,
    from_bytes,
    hop_columns,
    numbers_of,
    pooling,
    scoring,
)
from calirare.engines.places import Engine, engine_of
from calirare.engines.rounds import Labels, Means, Plan, Rounds
from calirare.engines.tables import NODES, Tables, both_ways, with_degrees, with_sums
from calirare.features import FeatureMap
from calirare.graph import TableColumns, default_names, names_in_words
from calirare.graph.columns import NEIGHBOURS, has_default_names
from calirare.graph.matching import note_weights
from calirare.graph.tables.scored import LISTED
from calirare.models import Mapped, NameMatches, NeighbourPool, Pooled, hop_names, names_are_others, streams_of
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
    "transactions": "it reads columns of past transactions",
    "relation": "it reads types of edges",
    "directed": "it reads directions of edges",
    "edge_columns": "it has features made of edges",
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
    scorer, k = run.scorer, len(run.scorer.class_names)
    plan, pool = _plan_of(scorer)
    tables = Tables.of(nodes, edges, data or scorer.settings.data, scorer.tables)
    read, columns = _reader_of(scorer, tables)
    scorer.note_on(say)
    decision = deciding or scorer.settings.decision
    if decision.by_amount:
        raise InputError(f"engines: cost_fn amount needs transactions, which no engine scores: {INSTEAD}")
    note_weights(scorer.wants_weights, "weight" in tables.ends.columns, say)
    with engine_of(nodes) as engine:
        rows, pairs = _graph(engine, tables, columns)
        table = _through(engine, rows, pairs, plan.rounds, read, partial(evaluation, plan=plan))
        table = table if plan.labels is None else _matched(engine, table, plan, say)
        if pool is not None:
            means = Rounds((Means(k, len(pool.weights) - 1),))
            table = _through(engine, table, pairs, means, None, partial(pooling, pool=pool))
        table = table if tables.scored is None else table.semi_join(tables.scored, "node")
        found, cut = None, scorer.threshold
        counts = decision.decide == "budget" or decision.max_alerts is not None
        if summary or counts or deciding is not None or prevalence is not None:
            every = engine.fetched(table.select("node", "logits"))
            logits = from_bytes(every, "logits")
            drift = _drift(engine, scorer, read, rows, every, logits) if summary else None
            scorer, used, (cut, tied, rule) = with_threshold(scorer, logits, decision.rule, prevalence, deciding)
            totals = Totals(k)
            for block in logits.split(BLOCK):
                totals.add(scorer.said(block, cut))
            found = scorer.scored("tables", logits, totals, drift, used, (cut, tied, rule)) if summary else None
        said = partial(replace(scorer, fit=cast(Any, None)).said, threshold=cut)  # without trees, for other processes
        result = engine.mapped(table, scoring(said, k, scorer.classes))
        return engine.result(result), found


@plain_torch()
def columns(source: Run | Settings, nodes: Any, edges: Any, *, hops: int = 2, labelled: bool = True) -> Any:
    """Returns what detectors read of nodes, so that training beyond one machine is training on a table without edges.

    Args:
        source: a run, whose features are mapped as it maps them; or settings that say which columns mean what, whose
            features are numbers and stay as they are.
        nodes: see `score`.
        edges: likewise.
        hops: how far columns reach, 0 or more.
        labelled: nodes with a label only.

    Returns:
        A table of ibis: node, the column of labels, each feature, its means over the neighbours ("neighbours' amount"),
        over theirs ("2 hops' amount") and "log degree", float32.

    Raises:
        InputError: a column is missing, or a feature is no number.
    """
    scorer = None if isinstance(source, Settings) else source.scorer
    data = source.data if isinstance(source, Settings) else source.scorer.settings.data
    tables = Tables.of(nodes, edges, data, scorer.tables if scorer else TableColumns())
    if labelled and tables.label is None:
        raise InputError(f"{NODES}: no column has labels: call it label, name it (label), or pass labelled=False")
    if scorer is None:
        names, inputs, maps = tables.features, tables.features, tuple[FeatureMap, ...]()
        read = RowReader(names, len(names), dict.fromkeys(names, "numeric"), True, NODES)
    else:
        (read, inputs), maps = _reader_of(scorer, tables), (scorer.features,)
        names = scorer.features.feature_names or default_names(scorer.features.n_features)
    with engine_of(nodes) as engine:
        rounds = Rounds((Means(len(names), hops, Mapped(maps)),))
        finish = partial(hop_columns, names=hop_names(names, hops))
        table = _through(engine, *_graph(engine, tables, inputs), rounds, read, finish)
        if labelled:
            label = tables.nodes[tables.label].cast("string")
            known = tables.nodes.filter(label.notnull() & label.notin(["", "-1", *data.unknown]))
            table = known.select("node", tables.label).inner_join(table, "node")
        return engine.result(table)


def _plan_of(scorer: Scorer) -> tuple[Plan, NeighbourPool | None]:
    """Returns a run's detector as rounds, and what pools its neighbours.

    Raises:
        InputError: no engine evaluates it.
    """
    data, found = scorer.settings.data, streams_of(scorer.fit, scorer.features)
    why = [what for name, what in NOT_IN_TABLES.items() if getattr(data, name)]
    why += ["it has nodes without a row"] if LISTED in scorer.kinds else []
    why += ["its edges have types"] if scorer.relations else []
    if isinstance(found, str) or why:
        why = why or [str(found)]
        raise InputError(f"engines: the run cannot be scored in an engine, because {why[0]}: {INSTEAD}")
    detector, pool = (found.alone, found.pool) if isinstance(found, Pooled) else (found, None)
    plan = Plan.of(detector)
    by_number = any(part.fit.known.edges for part in plan.rounds.parts if isinstance(part, Labels))
    if by_number or (scorer.features.labelled and scorer.features.labelled.graph):
        raise InputError(NAMELESS)
    return plan, pool


def _reader_of(scorer: Scorer, tables: Tables) -> tuple[RowReader, tuple[str, ...]]:
    """Returns what reads rows of the node table, and its columns with the run's features; a degree may have none.

    Raises:
        InputError: a feature is not among its columns.
    """
    names, here = tuple(column.name for column in scorer.features.inputs), tables.features
    lists = len(here) == 1 and tables.nodes[here[0]].type().is_array()
    by_place = lists or has_default_names(names)
    absent = [] if by_place else [name for name in names if name not in here and name != NEIGHBOURS]
    if absent or (by_place and not lists and len(here) != len(names)):
        raise InputError(
            f"{NODES}: it must have the {len(names)} features of the run, but has {names_in_words(here)}"
            f"{f', and not {names_in_words(absent)}' if absent else ''}: name its columns as the run's table does"
        )
    gaps = scorer.settings.data.impute != "error"
    read = RowReader(() if lists else names, len(names), scorer.kinds, gaps, NODES)
    return read, here if by_place else names


def _graph(engine: Engine, tables: Tables, columns: tuple[str, ...]) -> tuple[Any, Any]:
    """Returns nodes with the features in some columns, feature0 and on, and degrees; and pairs of neighbours."""
    links = tables.links(strange=tables.check(engine.fetched))
    pairs = engine.grouped(links if "weight" in links.columns else both_ways(engine.kept(links)), "begin")
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
        table = with_sums(engine.mapped(table, Turn(rounds, turn, read).step()), pairs, sums).drop(*sums)
    return engine.mapped(table, finish(Turn(rounds, rounds.number, read)))


def _matched(engine: Engine, table: Any, plan: Plan, say: Say) -> Any:
    """Returns logits that use labels where names are those of the run's nodes, see `match_nodes`."""
    assert plan.labels is not None
    found = engine.fetched(table.filter(table.label >= 0).select("label", "others"))
    met, others = NameMatches(plan.labels), from_bytes(found, "others")
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
