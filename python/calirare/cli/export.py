"""`calirare export`: a saved run as a query that scores tables where they are, or as a model for arrays."""

from __future__ import annotations

from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.export import DIALECTS, Names, notes_on, onnx_of, query_of, without_labels
from calirare.run import Scorer, load

HEAD = "-- Written by `calirare export --sql {name}`: a row per node with p_rare, alert and threshold.\n"
TOLD = "say {} before it: compiling so long a query takes the engine longer than running it"


def run(
    folder: Path,
    sql: str | None = None,
    out: Path | None = None,
    *,
    onnx: Path | None = None,
    nodes_table: str = "nodes",
    edges_table: str = "edges",
    features_table: str | None = None,
    id_column: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    weight: str | None = None,
    salt: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes the query of a run, or its model.

    Args:
        folder: the run's folder.
        sql: the engine, one of `DIALECTS`; None: a model.
        out: file of the query; None: `<run>/score_<engine>.sql`.
        onnx: file of the model, in place of a query.
        nodes_table: see `Names.nodes`, and so on.
        edges_table: see `Names.edges`.
        features_table: see `Names.features`.
        id_column: see `Names.id`; None: that of the run's tables, else "node".
        source_column: see `Names.source`; None: that of the run's tables, else "source".
        target_column: see `Names.target`; None: that of the run's tables, else "target".
        weight: see `Names.weight`; None: that of the run's tables.
        salt: see `Names.salt`.
        overwrite: replace a file that is there.

    Raises:
        InputError: the engine is unknown, the run cannot be written so, an option of queries is given with a model, or
            the file is there.
    """
    if onnx is not None:
        named = (out, features_table, id_column, source_column, target_column, weight)
        if sql or any(named) or (nodes_table, edges_table, salt) != ("nodes", "edges", 1):
            raise InputError(
                "export: --onnx takes arrays, so there is no engine, table or column to name: leave them out"
            )
        return _model(folder, onnx, overwrite)
    if sql not in DIALECTS:
        raise InputError(f"export: --sql must be one of {', '.join(DIALECTS)}, got {sql!r}")
    path = out or folder / f"score_{sql}.sql"
    if path.suffix != ".sql":
        raise InputError(f"export: --out must end in .sql, got {path}")
    check_free([path], "export", overwrite=overwrite)
    saved = load(folder)
    usual = saved.scorer.tables
    names = Names(
        nodes=nodes_table,
        edges=edges_table,
        features=features_table,
        id=id_column or usual.id or "node",
        source=source_column or usual.source or "source",
        target=target_column or usual.target or "target",
        weight=weight or usual.weight,
        salt=salt,
    )
    scorer, left_out = without_labels(saved.scorer)
    dialect = DIALECTS[sql]
    query, told = query_of(scorer, dialect, names), TOLD.format(dialect.told) if dialect.told else ""
    head = HEAD.format(name=sql) + (f"-- {told}\n" if told else "")
    with fresh_files(path.parent, f"export: {path}") as partial:
        (partial / path.name).write_text(head + query + ";\n", encoding="utf-8")
    _say(scorer, left_out, told)
    if carried := saved.settings.data.edge_columns:
        columns = ",".join(carried)
        print(f"note: features of --edge-columns {columns} are read from columns of the node table of their names")
    counted = f"weights {names.weight!r}" if names.weight else "every edge counts once (--weight names a column)"
    print(f"nodes        {names.nodes}, names in {names.id!r}")
    print(f"edges        {names.edges}, {names.source!r} to {names.target!r}, {counted}")
    print(f"wrote        {path} ({len(query) / 1e3:,.0f} kB)")
    return None


def _model(folder: Path, path: Path, overwrite: bool) -> None:
    """Writes the model of a run."""
    if path.suffix != ".onnx":
        raise InputError(f"export: --onnx must end in .onnx, got {path}")
    check_free([path], "export", overwrite=overwrite)
    scorer, left_out = without_labels(load(folder).scorer)
    model = onnx_of(scorer, folder.resolve().name)
    with fresh_files(path.parent, f"export: {path}") as partial:
        (partial / path.name).write_bytes(model)
    _say(scorer, left_out)
    weights = ", edge_weight [edges]" if scorer.weighted else ""
    print(f"inputs       x [nodes, {scorer.features.n_inputs}], edge_index [2, edges], every edge both ways{weights}")
    print("outputs      p_rare, p_raw and alert [nodes]")
    print(f"wrote        {path} ({len(model) / 1e3:,.0f} kB)")


def _say(scorer: Scorer, *more: str) -> None:
    for note in filter(None, [*more, *notes_on(scorer)]):
        print(f"note: {note}")
