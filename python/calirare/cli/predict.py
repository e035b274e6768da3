"""`calirare predict`: what a saved run says of another graph, and whether it may be relied on there."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from calirare._util.blocks import BlockFiles
from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import check_free, claimed_files, fresh_files
from calirare.datasets import read_graph
from calirare.graph import Graph, GraphOnDisk, as_of_words, id_column_of, is_table, note_weights, stem_of
from calirare.models import streams_of
from calirare.run import (
    IntervalNodes,
    Loaded,
    Prevailing,
    SavedRun,
    Scored,
    Source,
    Streamed,
    check_interval_nodes,
    load,
    load_classes,
    of_classes,
    score_classes,
    write_json,
    write_scored,
    write_scores,
)
from calirare_ext import __version__

EDGE_RULES = ("duplicates", "self_loops", "symmetrize")
DRIFTED = 3  # exit code of --fail-on-drift


def run(
    folder: Path,
    graph: str,
    settings: dict[str, Any],
    out: Path | None = None,
    overwrite: bool = False,
    prevalence: Prevailing = None,
    fail_on_drift: bool = False,
    interval_nodes: IntervalNodes | None = None,
    scores_only: bool = False,
) -> int:
    """Scores a graph with a saved run, writes its predictions and says what to expect of them.

    Args:
        folder: the run's folder.
        graph: name or path; the graph must have the run's features, in any order where they have names; labels are not
            needed.
        settings: keywords of `read_graph`. A table is read with the columns that the run named, where there is none
            among them; a column of labels need not be there.
        out: CSV to write (beside it a Parquet and a JSON file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.
        prevalence: see `Scorer.score`.
        fail_on_drift: end with code 3 where the graph differs so much from the run's that P(rare) is not to be relied
            on; everything is written all the same.
        interval_nodes: which nodes get an interval, see `Scorer.score`.
        scores_only: no intervals; a graph in a folder is read a block of rows at a time where the detector allows it;
            Parquet is written.

    Returns:
        The exit code.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    check_interval_nodes(interval_nodes or "auto")
    if of_classes(folder):
        if interval_nodes is not None or prevalence is not None or fail_on_drift:
            raise InputError(
                "predict: --interval-nodes, --prevalence and --fail-on-drift are for a rare class, and the run was "
                "trained with task classes: leave them out"
            )
        return _every_class(folder, graph, settings, out, overwrite, scores_only)
    if scores_only:
        if interval_nodes is not None:
            raise InputError("predict: --scores-only makes no intervals: leave out --interval-nodes")
        return _scores_only(folder, graph, settings, out, overwrite, prevalence, fail_on_drift)
    path = free_path(out or folder / f"predictions_{stem_of(graph)}.csv", overwrite)
    saved = load(folder)
    with _alone_at(path, overwrite):
        loaded = scored_graph(saved, graph, settings)
        with Reporter() as reporter:
            for note in (*loaded.notes, *_told(saved, graph, settings)):
                reporter.say(f"note: {note}")
            scored = saved.score(loaded, report=reporter, prevalence=prevalence, interval_nodes=interval_nodes)
        with fresh_files(path.parent, f"predict: {path}") as partial:
            assert scored.table is not None
            names = [file.name for file in write_scored(scored.table, partial, path.stem)]
            write_json(scored.to_mapping() | _versions(saved), partial / f"{path.stem}.json")
    return _said(scored, [path.parent / name for name in [*names, f"{path.stem}.json"]], fail_on_drift)


def _said(scored: Scored, written: list[Path], fail_on_drift: bool) -> int:
    """Prints what to expect and what was written; returns the exit code."""
    print(scored.summary(), end="")
    for path in written:
        print(path)
    if fail_on_drift and scored.drifted:
        print("calirare: --fail-on-drift: the predictions were written, but are not to be trusted", file=sys.stderr)
        return DRIFTED
    return 0


def _scores_only(
    folder: Path,
    graph: str,
    settings: dict[str, Any],
    out: Path | None,
    overwrite: bool,
    prevalence: Prevailing,
    fail_on_drift: bool,
) -> int:
    """Scores a graph without intervals, one in a folder without holding it where it can; arguments as of `run`."""
    path = _parquet(folder, graph, out)
    files = [path, path.with_suffix(".json")]
    check_free(files, "predict", overwrite=overwrite)
    saved, blocks = load(folder), BlockFiles(path.parent / f".{path.stem}.blocks")
    with claimed_files(files, "predict", overwrite=overwrite):
        with Reporter() as reporter, blocks.told_of():
            source = _source(saved, graph, settings, blocks, reporter)
            with fresh_files(path.parent, f"predict: {path}") as partial:
                scored = write_scores(source, partial / path.name, prevalence, reporter)
                write_json(scored.to_mapping() | _versions(saved), partial / files[1].name)
        blocks.remove()
    return _said(scored, files, fail_on_drift)


def _parquet(folder: Path, graph: str, out: Path | None) -> Path:
    """Returns the path of a table of scores alone."""
    path = out or folder / f"predictions_{stem_of(graph)}.parquet"
    if path.suffix != ".parquet":
        raise InputError(f"predict: --out must end in .parquet with --scores-only, got {path}")
    return path


def _every_class(
    folder: Path, graph: str, settings: dict[str, Any], out: Path | None, overwrite: bool, scores_only: bool
) -> int:
    """Scores a graph with a run of many classes, by blocks with `scores_only`; arguments as of `run`."""
    if scores_only:
        path = _parquet(folder, graph, out)
        check_free([path, path.with_suffix(".json")], "predict", overwrite=overwrite)
    else:
        path = free_path(out or folder / f"predictions_{stem_of(graph)}.csv", overwrite)
    saved, blocks = load_classes(folder).run, BlockFiles(path.parent / f".{path.stem}.blocks")
    with _alone_at(path, overwrite):
        with Reporter() as reporter, blocks.told_of(), fresh_files(path.parent, f"predict: {path}") as partial:
            if scores_only:
                source = _source(saved, graph, settings, blocks, reporter)
            else:
                loaded = scored_graph(saved, graph, settings)
                for note in (*loaded.notes, *_told(saved, graph, settings)):
                    reporter.say(f"note: {note}")
                source = Loaded(saved.scorer, loaded, lambda note: reporter.say(f"note: {note}"))
            scored = score_classes(saved.scorer, source, partial / path.name, reporter)
            write_json(scored.to_mapping() | _versions(saved), partial / f"{path.stem}.json")
            names = sorted(each.name for each in partial.iterdir())
        blocks.remove()
    print(scored.summary(), end="")
    for name in names:
        print(path.parent / name)
    return 0


def _alone_at(path: Path, overwrite: bool) -> AbstractContextManager[None]:
    """Holds a table of predictions, and what is written with it, for this process."""
    suffixes = (".parquet", ".json") if path.suffix == ".parquet" else (".csv", ".parquet", ".json")
    return claimed_files([path.with_suffix(each) for each in suffixes], "predict", overwrite=overwrite)


def _source(saved: SavedRun, graph: str, settings: dict[str, Any], blocks: BlockFiles, reporter: Reporter) -> Source:
    """Returns the graph as it is scored: read by blocks where detector and graph allow it, else loaded."""
    detector = streams_of(saved.scorer.fit, saved.scorer.features)
    given = [name for name, value in settings.items() if value not in (None, False)]
    stored = Path(graph).is_dir() and not is_table(graph)
    why = f"--{given[0].replace('_', '-')} does not go by blocks" if given and stored else "it is not in a folder"
    if isinstance(detector, str):
        why = detector
    elif stored and not given:
        saved.scorer.note_on(reporter.say)
        for note in _other_version(saved):
            reporter.say(f"note: {note}")
        opened = GraphOnDisk.open(graph)
        if saved.scorer.wants_weights:
            note_weights(True, opened.weighted, lambda note: reporter.say(f"note: {note}"))
        return Streamed(saved.scorer, opened, detector, blocks, lambda note: reporter.say(f"note: {note}"))
    loaded = scored_graph(saved, graph, settings)
    for note in (*loaded.notes, f"the graph is scored in memory, because {why}", *_told(saved, graph, settings)):
        reporter.say(f"note: {note}")
    saved.scorer.note_on(reporter.say)
    return Loaded(saved.scorer, loaded, lambda note: reporter.say(f"note: {note}"))


def _told(saved: SavedRun, graph: str, settings: dict[str, Any]) -> list[str]:
    """Returns what to know of a run of another version, and of a table scored with edges later than the run's."""
    until, notes = saved.settings.data.as_of, _other_version(saved)
    if until is not None and settings.get("as_of") is None and is_table(graph):
        last = as_of_words(until)
        notes.append(f"edges: all times count; the run left out edges after {last} (--as-of leaves out some here too)")
    return notes


def _other_version(saved: SavedRun) -> list[str]:
    """Returns the note on a run that another version trained, if it says so."""
    if saved.version in ("", __version__):
        return []
    return [f"the run was trained by calirare {saved.version}, and this is {__version__}"]


def _versions(saved: SavedRun) -> dict[str, Any]:
    """Returns which versions of CaliRare trained and scored, as JSON holds it; null of a run that does not say."""
    return {"version": {"run": saved.version or None, "predict": __version__}}


def free_path(path: Path, overwrite: bool) -> Path:
    """Returns the path of a table of predictions, which nothing stands in the way of.

    Raises:
        InputError: it is no CSV, its folder is a file, or one of the files is there and must not be replaced.
    """
    if path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    check_free([path.with_suffix(suffix) for suffix in (".csv", ".parquet", ".json")], "predict", overwrite=overwrite)
    return path


def _weights(saved: SavedRun) -> dict[str, bool]:
    """Returns that no weights are read, where the run's own tables were read so."""
    return {"unweighted": True} if saved.scorer.tables.unweighted else {}


def scored_graph(saved: SavedRun, graph: str, settings: dict[str, Any]) -> Graph:
    """Returns a graph to score, a table read with the columns and edge rules that the run named; see `run`."""
    if is_table(graph):
        data = saved.settings.data
        rules = {name: getattr(data, name) for name in EDGE_RULES if getattr(data, name) not in (None, False)}
        times = {} if settings.get("as_of") is None or data.time is None else {"time": data.time}
        own = data.columns() | rules | times | {"kinds": saved.kinds} | _weights(saved)
        if settings.get("weight") is not None or settings.get("unweighted"):  # here it is another way
            own = {name: value for name, value in own.items() if name not in ("weight", "unweighted")}
        settings = own | {"need_label": "label" in settings} | settings
        if settings.get("id") is None:  # where the run found its names, if that is there too
            settings = settings | {"id": id_column_of(graph, settings.get("features"), saved.scorer.tables.id)}
    given = {k: v for k, v in settings.items() if (v is not None and v is not False) or k == "need_label"}
    return read_graph(graph, **given)[0]
