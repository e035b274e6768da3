"""`calirare predict`: what a saved run says of another graph, and whether it may be relied on there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from calirare._util.blocks import BlockFiles
from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files, locked_files
from calirare.datasets import read_graph
from calirare.graph import Graph, GraphOnDisk
from calirare.graph.matching import note_weights
from calirare.graph.tables import as_of_words, id_column_of, is_table, stem_of
from calirare.models import streams_of
from calirare.run import (
    PARTIES,
    TRANSACTIONS,
    IntervalNodes,
    Loaded,
    PrevalenceRequest,
    SavedRun,
    Source,
    Streamed,
    load,
    parties_of,
    write_csv,
    write_json,
    write_predictions,
    write_scores,
)
from calirare_ext import __version__

EDGE_RULES = ("duplicates", "self_loops", "symmetrize")
DRIFTED = 3  # exit code of --fail-on-drift


def run(
    folder: Path,
    settings: dict[str, Any],
    graph: str | None = None,
    transactions: str | None = None,
    history: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    prevalence: PrevalenceRequest = None,
    fail_on_drift: bool = False,
    interval_nodes: IntervalNodes | None = None,
    scores_only: bool = False,
) -> int:
    """Scores a graph with a saved run, writes its predictions and says what to expect of them.

    Args:
        folder: the run's folder.
        settings: keywords of `read_graph`. A table is read with the columns that the run named, where there is none
            among them; a column of labels need not be there.
        graph: name or path; the graph must have the run's features, in any order where they have names; labels are not
            needed.
        transactions: instead of a graph, a table of transactions.
        history: earlier transactions; None: those that the run was trained on.
        out: CSV to write (beside it a Parquet and a JSON file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.
        prevalence: see `Scorer.score`.
        fail_on_drift: end with code 3 where the graph differs so much from the run's that P(rare) is not to be relied
            on; everything is written all the same.
        interval_nodes: which nodes get an interval, see `Scorer.score`.
        scores_only: no intervals; a graph in a folder is read a block of rows at a time where the detector allows it;
            Parquet is written.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    if scores_only and interval_nodes is not None:
        raise InputError("predict: --scores-only makes no intervals: leave out --interval-nodes")
    if (graph is None) == (transactions is None) or (history is not None and transactions is None):
        raise InputError("predict: name either --graph or --transactions, which --history is for")
    name = f"{'predictions' if graph else TRANSACTIONS}_{stem_of(graph or str(transactions))}"
    path = out or folder / f"{name}{'.parquet' if scores_only else '.csv'}"
    if scores_only and path.suffix != ".parquet":
        raise InputError(f"predict: --out must end in .parquet with --scores-only, got {path}")
    if not scores_only and path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    files = [path.with_suffix(each) for each in (".csv", ".parquet", ".json")[int(scores_only) :]]
    parties = path.with_name(f"{path.stem}_{PARTIES}.csv")
    files += [parties] if transactions and not scores_only else []
    check_free(files, "predict", overwrite=overwrite)
    saved = load(folder)
    if prevalence is not None:
        saved.settings.check_rare("predict: --prevalence")
    blocks = BlockFiles(path.parent / f".{path.stem}.blocks")
    with locked_files(files, "predict", overwrite=overwrite):
        with Reporter() as reporter, blocks.resumable(), fresh_files(path.parent, f"predict: {path}") as partial:
            if graph is not None:
                source = _source(saved, graph, settings, blocks if scores_only else None, reporter)
            else:
                source = Loaded(saved.scorer, saved.next_transactions(transactions, history), reporter.say)
            if scores_only:
                scored = write_scores(source, partial / path.name, prevalence, reporter)
            else:
                assert isinstance(source, Loaded)
                how: dict[str, Any] = {"prevalence": prevalence, "interval_nodes": interval_nodes}
                scored = saved.score(source.graph, report=reporter, **how)
                assert scored.table is not None
                write_predictions(scored.table, partial, path.stem)
                if transactions is not None:
                    write_csv(parties_of(scored.table, saved.settings.data), partial / parties.name)
            versions = {"run": saved.version, "predict": __version__}
            write_json(scored.to_mapping() | {"version": versions}, partial / f"{path.stem}.json")
            written = [file for file in files if (partial / file.name).exists()]
        blocks.remove()
    print(scored.summary(), end="")
    for file in written:
        print(file)
    if fail_on_drift and scored.drifted:
        print("calirare: --fail-on-drift: the predictions were written, but are not to be trusted", file=sys.stderr)
        return DRIFTED
    return 0


def _source(
    saved: SavedRun, graph: str, settings: dict[str, Any], blocks: BlockFiles | None, reporter: Reporter
) -> Source:
    """Returns the graph as it is scored: read by blocks where detector and graph allow it, else loaded."""

    def say(note: str) -> None:
        reporter.say(f"note: {note}")

    notes = list[str]()
    if blocks is not None:
        saved.scorer.note_on(reporter.say)
        detector = streams_of(saved.scorer.fit, saved.scorer.features)
        given = [name for name, value in settings.items() if value not in (None, False)]
        stored = Path(graph).is_dir() and not is_table(graph)
        if not isinstance(detector, str) and stored and not given:
            for note in _told(saved, graph, settings):
                say(note)
            opened = GraphOnDisk.open(graph)
            if saved.scorer.wants_weights:
                note_weights(True, opened.weighted, say)
            return Streamed(saved.scorer, opened, detector, blocks, say)
        why = f"--{given[0].replace('_', '-')} does not go by blocks" if given and stored else "it is not in a folder"
        notes.append(f"the graph is scored in memory, because {detector if isinstance(detector, str) else why}")
    loaded = scored_graph(saved, graph, settings)
    for note in (*loaded.notes, *notes, *_told(saved, graph, settings)):
        say(note)
    return Loaded(saved.scorer, loaded, say)


def _told(saved: SavedRun, graph: str, settings: dict[str, Any]) -> list[str]:
    """Returns what to know of a run of another version, and of a table scored with edges later than the run's."""
    until, notes = saved.settings.data.as_of, list[str]()
    if saved.version != __version__:
        notes.append(f"the run was trained by calirare {saved.version}, and this is {__version__}")
    if until is not None and settings.get("as_of") is None and is_table(graph):
        last = as_of_words(until)
        notes.append(f"edges: all times count; the run left out edges after {last} (--as-of leaves out some here too)")
    return notes


def scored_graph(saved: SavedRun, graph: str, settings: dict[str, Any]) -> Graph:
    """Returns a graph to score, a table read with the columns and edge rules that the run named; see `run`."""
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
