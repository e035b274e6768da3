"""A table as Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Table:
    """A table to be written.

    Attributes:
        title: above the table.
        header: names of the columns.
        rows: cells as text.
        notes: sentences below.
        data: the numbers behind it, for the JSON file.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    data: Any = None

    def markdown(self) -> str:
        """Returns the table in Markdown."""
        lines = [f"## {self.title}", "", _row(self.header), _row(["---"] * len(self.header))]
        lines += [_row(row) for row in self.rows]
        return "\n".join([*lines, "", *[f"- {note}" for note in self.notes], ""])

    def latex(self) -> str:
        """Returns a `tabular` environment."""
        lines = [f"% {self.title}", rf"\begin{{tabular}}{{{'l' * len(self.header)}}}", r"\hline"]
        lines += [" & ".join(_tex(cell) for cell in self.header) + r" \\", r"\hline"]
        lines += [" & ".join(_tex(cell) for cell in row) + r" \\" for row in self.rows]
        return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def write_tables(tables: list[Table], out: Path, stem: str) -> list[Path]:
    """Writes tables as one .md, .tex and .json file, and one .csv file each.

    Args:
        tables: the tables.
        out: folder, made if it is not there.
        stem: name of the files.

    Returns:
        The paths.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{stem}.md", out / f"{stem}.tex", out / f"{stem}.json"]
    paths[0].write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
    paths[1].write_text("\n".join(table.latex() for table in tables), encoding="utf-8")
    data = {table.title: table.data for table in tables}
    paths[2].write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for number, table in enumerate(tables, 1):
        path = out / (f"{stem}.csv" if len(tables) == 1 else f"{stem}_{number}.csv")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table.header)
            writer.writerows(table.rows)
        paths.append(path)
    return paths


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _tex(text: str) -> str:
    for character in "&%_#$":
        text = text.replace(character, "\\" + character)
    return text.replace("±", r"$\pm$").replace("`", "")
