"""`calirare predict`: what a saved run says of another graph, and whether it may be relied on there."""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from calirare._util.amounts import in_unit
from calirare._util.blocks import BlockFiles
from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files, fresh_folder, locked_files
from calirare._util.run_files import seal
from calirare.cli.parser import DECISION
from calirare.cli.train import next_commands
from calirare.datasets import is_named
from calirare.explain import text_of
from calirare.graph import GraphOnDisk
from calirare.graph.matching import note_weights
from calirare.graph.tables import absolute_source, as_of_words, is_table, stem_of
from calirare.models import streams_of
from calirare.run import (
    PARTIES,
    QUEUE,
    REVIEWED,
    TRANSACTIONS,
    Deciding,
    IntervalNodes,
    Loaded,
    PrevalenceRequest,
    SavedRun,
    Scored,
    Source,
    Streamed,
    load,
    load_scoring,
    parties_of,
    read_scored,
    with_rule,
    write_csv,
    write_json,
    write_predictions,
    write_scores,
    write_scoring,
)
from calirare_ext import __version__

NEEDS_FOLDER = "predict: --explain, --report and --queue write into a folder: name one without an ending (--out {})"
LOGGED = ("graph", "nodes", "verdict", "mean_p_rare", "expected_rare", "alerts", "threshold")
ENGINE = (
    "predict: --engine needs --nodes, --edges and --into, and makes scores only: leave out --graph, --transactions, "
    "--out and what reads or writes a folder"
)
OF_TABLES = ("id", "source_column", "target_column", "weight", "unweighted", "unknown_ends", "target_nodes", "label")
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
    where: str | None = None,
    queue: int | None = None,
    explain: int | None = None,
    report: bool = False,
    log: Path | None = None,
    engine: str | None = None,
    edges: str | None = None,
    into: str | None = None,
) -> int:
    """Scores a graph with a saved run, writes its predictions and says what to expect of them.

    Args:
        folder: the run's folder.
        settings: keywords of `read_graph`. A table is read with the columns that the run named, where there is none
            among them; a column of labels need not be there. And settings of the decision, where it is not the run's.
        graph: name or path; the graph must have the run's features, in any order where they have names; labels are not
            needed.
        transactions: instead of a graph, a table of transactions.
        history: earlier transactions; None: those that the run was trained on.
        out: CSV to write (beside it a Parquet and a JSON file of that name), or without an ending the folder of a
            scoring; None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.
        prevalence: see `Scorer.score`.
        fail_on_drift: end with code 3 where the graph differs so much from the run's that P(rare) is not to be relied
            on; everything is written all the same.
        interval_nodes: which nodes get an interval, see `Scorer.score`.
        scores_only: no intervals; a graph in a folder is read a block of rows at a time where the detector allows it;
            Parquet is written.
        where: COLUMN=VALUE of the node table: only these nodes are scored.
        queue: rows of review.csv; None: as many as there are alerts, from 100 to `QUEUE`.
        explain: for how many of the likeliest alerts reasons are written.
        report: whether a page of the scoring is written.
        log: file to which a line of JSON is added.
        engine: "duckdb" or "spark", which scores the tables `nodes` (of the settings) and `edges` where they are.
        edges: its table of edges, see `cli.engine_tables.opened`.
        into: its table of scores, likewise.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    begun, given = time.monotonic(), {name: value for name, value in settings.items() if name in DECISION}
    settings = {name: value for name, value in settings.items() if name not in DECISION}
    if engine or edges or into:
        others = (graph, transactions, history, out, interval_nodes, where, queue, explain)
        if not (engine and edges and into and settings.get("nodes")) or set(others) != {None} or scores_only or report:
            raise InputError(ENGINE)
        saved, decision = _with_decision(folder, given, prevalence)
        there = {"prevalence": prevalence, "deciding": decision if given else None}
        scored = _in_engine(saved, settings, engine, edges, into, overwrite, there)
        return _done(scored, saved.settings.data.unit, Path(into), [Path(into)], fail_on_drift, log, begun)
    if scores_only and (given or where is not None):
        raise InputError(
            "predict: --scores-only scores every node, with the run's decision: leave out --where, --decide"
        )
    if (graph is None) == (transactions is None) or (history is not None and transactions is None):
        raise InputError("predict: name either --graph or --transactions, which --history is for")
    paths = {"graph": graph, "transactions": transactions, "history": history}
    reading: dict[str, Any] = paths | {"settings": settings, "where": where}
    in_folder = out is not None and not out.suffix
    if not in_folder and (queue is not None or explain is not None or report):
        raise InputError(NEEDS_FOLDER.format((out or Path("scores")).with_suffix("")))
    how: dict[str, Any] = {"prevalence": prevalence, "interval_nodes": interval_nodes}
    if in_folder and not scores_only:
        assert out is not None
        if out.exists() and not overwrite:
            raise InputError(f"predict: {out} exists already: take another --out, or pass --overwrite")
        saved, decision = _with_decision(folder, given, prevalence)
        how["deciding"] = decision if given else None
        scored = _folder(saved, reading, decision, how, out, overwrite, queue, explain, report)
        return _done(scored, saved.settings.data.unit, out, [out], fail_on_drift, log, begun)
    if scores_only and interval_nodes is not None:
        raise InputError("predict: --scores-only makes no intervals: leave out --interval-nodes")
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
    saved, decision = _with_decision(folder, given, prevalence)
    how["deciding"] = decision if given else None
    blocks = BlockFiles(path.parent / f".{path.stem}.blocks")
    with locked_files(files, "predict", overwrite=overwrite):
        with Reporter() as reporter, blocks.resumable(), fresh_files(path.parent, f"predict: {path}") as partial:
            source = _source(saved, reading, blocks if scores_only else None, reporter)
            if scores_only:
                scored = write_scores(source, partial / path.name, prevalence, reporter)
            else:
                assert isinstance(source, Loaded)
                scored = saved.score(source.graph, report=reporter, **how)
                assert scored.table is not None
                write_predictions(scored.table, partial, path.stem)
                if transactions is not None:
                    write_csv(parties_of(scored.table, saved.settings.data), partial / parties.name)
            versions = {"run": saved.version, "predict": __version__}
            write_json(scored.to_mapping() | {"version": versions}, partial / f"{path.stem}.json")
            written = [file for file in files if (partial / file.name).exists()]
        blocks.remove()
    return _done(scored, saved.settings.data.unit, path, written, fail_on_drift, log, begun)


def _with_decision(folder: Path, given: dict[str, Any], prevalence: PrevalenceRequest) -> tuple[SavedRun, Deciding]:
    """Returns a run, and its decision with some settings in the place of its own."""
    saved = load(folder)
    if prevalence is not None or given:
        saved.settings.check_rare("predict: --prevalence" if prevalence is not None else "predict: a decision")
    decision = dataclasses.replace(saved.settings.decision, **with_rule(given))
    if idle := [name for name in decision.idle if name in given]:
        option = f"--{idle[0].replace('_', '-')}"
        raise InputError(f"predict: {option} changes nothing with --decide {decision.decide}: leave one of them out")
    return saved, decision


def _in_engine(
    saved: SavedRun, settings: dict[str, Any], engine: str, edges: str, into: str, overwrite: bool, how: dict[str, Any]
) -> Scored:
    """Scores tables in an engine; arguments as of `run`, `how` as of `calirare.engines.scored`."""
    import calirare.engines  # which needs ibis, and says where it is missing
    from calirare.cli.engine_tables import opened

    more = {name: value for name, value in settings.items() if name != "nodes" and value not in (None, False)}
    odd = [name for name in more if name not in OF_TABLES]
    if odd:
        raise InputError(f"predict: --{odd[0].replace('_', '-')} does not go with --engine: leave it out")
    data = dataclasses.replace(saved.settings.data, **more)
    with Reporter() as reporter, opened(engine, settings["nodes"], edges, into, overwrite=overwrite) as there:
        say = partial(_note, reporter)
        table, found = calirare.engines.scored(saved, there[0], there[1], data=data, say=say, **how)
        there[2](table)
    assert found is not None
    return found


def _folder(
    saved: SavedRun,
    reading: dict[str, Any],
    decision: Deciding,
    how: dict[str, Any],
    out: Path,
    overwrite: bool,
    queue: int | None,
    top: int | None,
    page: bool,
) -> Scored:
    """Writes a scoring's folder; arguments as of `run`, `how` as of `SavedRun.score`."""
    if top is not None and top < 1:
        raise InputError(f"predict: --explain must be at least 1, got {top}")
    with fresh_folder(out, overwrite=overwrite) as partial, Reporter() as reporter:
        source = _source(saved, reading, None, reporter)
        assert isinstance(source, Loaded)
        scored = saved.score(source.graph, report=reporter, queue=QUEUE if queue is None else queue, **how)
        if queue is None and scored.queue is not None:
            scored = dataclasses.replace(scored, queue=scored.queue.head(max(scored.alerts, REVIEWED)))
        scored = dataclasses.replace(scored, run=saved.folder.resolve().name)
        write_scoring(partial, saved, _absolute(reading), source.graph, scored, decision)
        if reading["transactions"] is not None:
            assert scored.table is not None
            write_csv(parties_of(scored.table, saved.settings.data), partial / f"{PARTIES}.csv")
        if top is not None or page:
            from calirare.page import html_of  # which takes long to import

            seal(partial)  # what is read is checked
            scoring = load_scoring(partial)
            if top is not None and scored.alerts:
                found = scoring.explain(top=top, graph=source.graph)
                write_json(found.to_mapping(), partial / "reasons.json")
                (partial / "reasons.txt").write_text(text_of(found), encoding="utf-8")
                if reading["transactions"] is not None:
                    assert scored.table is not None
                    reasons = pd.Series({each.node: each.raised_by for each in found}, dtype=str)
                    table = scored.table.assign(reasons=reasons.reindex(range(len(scored.table)), fill_value=""))
                    write_predictions(table, partial, TRANSACTIONS)
                    seal(partial)
            if page:
                (partial / "report.html").write_text(html_of(scoring, source.graph), encoding="utf-8")
    return scored


def _absolute(reading: dict[str, Any]) -> dict[str, Any]:
    """Returns how a graph is read, with paths that do not depend on the working folder."""
    kept = reading["settings"] | {k: absolute_source(v) for k, v in reading["settings"].items() if k == "nodes" and v}
    there = {name: reading[name] for name in ("graph", "transactions", "history")}
    paths = {k: v if v is None or is_named(v) else absolute_source(v) for k, v in there.items()}
    return reading | paths | {"settings": kept}


def _done(
    scored: Scored, unit: str, out: Path, written: list[Path], fail_on_drift: bool, log: Path | None, begun: float
) -> int:
    """Says what was found, adds the line of the log and returns the exit code."""
    for line in in_unit(scored.summary(), unit).splitlines():
        print(textwrap.fill(line, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
    if out.is_dir() and (out / "review.csv").exists():
        print("\n".join(["", f"Saved to {out}. Next:", *next_commands(out, report=(out / "report.html").exists())]))
    else:
        for file in written:
            print(file)
    code = DRIFTED if fail_on_drift and scored.drifted else 0
    if log is not None:
        said = scored.to_mapping()
        drift = None if said["drift"] is None else said["drift"]["verdict"]
        facts = {name: said[name] for name in LOGGED if name in said} | {"drift": drift, "exit_code": code}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts = {"time": now, "command": "predict", "out": str(out)} | facts
        line = json.dumps(facts | {"seconds": round(time.monotonic() - begun, 1)}, allow_nan=False)
        try:
            with log.open("a", encoding="utf-8") as lines:
                lines.write(line + "\n")
        except OSError as error:
            raise InputError(f"predict: --log {log} cannot be written: {error.strerror or error}") from error
    if code:
        print(
            "calirare: --fail-on-drift: the predictions were written, but do not trust them (see drift)",
            file=sys.stderr,
        )
    return code


def _source(saved: SavedRun, reading: dict[str, Any], blocks: BlockFiles | None, reporter: Reporter) -> Source:
    """Returns the graph as it is scored: read by blocks where detector and graph allow it, else loaded."""
    graph, settings = reading["graph"], reading["settings"]

    say = partial(_note, reporter)
    if graph is None:
        return Loaded(saved.scorer, read_scored(saved, reading), say)
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
        why = (
            f"--{given[0].replace('_', '-')} needs the whole graph" if given and stored else "it is not a graph folder"
        )
        notes.append(f"the graph is scored in memory, because {detector if isinstance(detector, str) else why}")
    loaded = read_scored(saved, reading)
    for note in (*loaded.notes, *notes, *_told(saved, graph, settings)):
        say(note)
    return Loaded(saved.scorer, loaded, say)


def _note(reporter: Reporter, note: str) -> None:
    reporter.say(f"note: {note}")


def _told(saved: SavedRun, graph: str, settings: dict[str, Any]) -> list[str]:
    """Returns what to know of a run of another version, and of a table scored with edges later than the run's."""
    until, notes = saved.settings.data.as_of, list[str]()
    if saved.version != __version__:
        notes.append(f"the run was trained by calirare {saved.version}; this is {__version__}")
    if until is not None and settings.get("as_of") is None and is_table(graph):
        last = as_of_words(until)
        notes.append(
            f"edges of all times count, but the run left out edges after {last}: give --as-of to do the same here"
        )
    return notes
