"""Table 3: rare category characterisation, with the F1 that each row of the paper really holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calirare_lab.paper.cells import Cell
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.published import N_RARE, TABLE3, f1_from_accuracy_and_recall
from calirare_lab.paper.render import Table, write_tables
from calirare_lab.paper.statistics import Key, by_key, summarise

TABLE3_METHODS = (
    "gin",
    "gin_batch_norm",
    "gin_code",
    "gat",
    "gat_dropout",
    "gat_narrow",
    "uncalibrated",
    "calirare",
    "gin_all",
    "gat_all",
    "uncalibrated_all",
    "ours",
)
COLUMNS = ("accuracy", "recall", "macro_f1")
NOTE = (
    "The paper's accuracy and recall leave one possible macro-F1. It is what the paper prints for GCN-CS and Ours; for "
    "GIN-CS and GAT-CS the paper prints the rare class's F1 under the same heading. 'paper, as macro-F1' undoes that."
)


def table3(cells: Iterable[Cell], not_run: dict[str, str], out: Path) -> list[Path]:
    """Writes Table 3.

    Args:
        cells: what was run.
        not_run: reason for each data set that could not be run.
        out: folder.

    Returns:
        The files.
    """
    return write_tables([table3_table(by_key(cells), not_run)], out, "table3")


def table3_table(groups: dict[Key, dict[int, Cell]], not_run: dict[str, str]) -> Table:
    """Returns accuracy, recall and macro-F1 of every network beside the paper's."""
    rows, data = [], []
    for (dataset, rate, name), seeds in groups.items():
        method = METHODS[name]
        summaries = [summarise(seeds.values(), column) for column in COLUMNS]
        published = TABLE3.get((dataset, rate, "ours" if name == "ours" else method.published), {})
        row = [dataset, str(rate), method.title, method.trains_on, str(len(seeds))]
        row += [s.text(100, 2) for s in summaries]
        row += [f"{100 * published[column]:.2f}" if published else "" for column in COLUMNS]
        macro = float("nan")
        if published:
            macro = f1_from_accuracy_and_recall(published["accuracy"], published["recall"], N_RARE[dataset])[1]
        rows.append([*row, f"{100 * macro:.2f}" if published else ""])
        entry = {column: [s.mean, s.std] for column, s in zip(COLUMNS, summaries, strict=True)}
        data.append({"dataset": dataset, "label_rate": rate, "method": name, "seeds": sorted(seeds), **entry})
    rows += [[dataset, "", "not run", *[""] * 9] for dataset in not_run]
    header = ["data set", "rate", "method", "trains on", "seeds", *COLUMNS]
    header += [f"paper, {column}" for column in ("accuracy", "recall", "F1 as printed", "as macro-F1")]
    notes = [NOTE] + [f"{dataset}: not run. {reason}" for dataset, reason in not_run.items()]
    return Table("Table 3: ours beside the paper's", header, rows, notes, data)
