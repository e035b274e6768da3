"""The table of published data sets: which there are, where each is looked for and how to get it."""

from __future__ import annotations

from rich.table import Table

from calirare._util.console import screen
from calirare_lab.published.catalogue import dataset_table


def print_table(root: str | None = None) -> None:
    """Prints every known data set."""
    rows = dataset_table(root)
    table = Table()
    for name in ("data set", "nodes", "directed edges", "features", "rare class", "share", "split", "found"):
        numeric = name in ("nodes", "directed edges", "features", "share")
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        found = "embedded" if not row.looked_for else "yes" if row.available else "no"
        table.add_row(
            row.name,
            f"{row.entry.n_nodes:,}",
            f"{row.entry.n_edges:,}",
            f"{row.entry.n_features:,}",
            row.entry.minority_name,
            f"{row.entry.minority_share:.2%}",
            "public" if row.entry.public else "random",
            found,
        )
    screen(120).print(table)
    for row in rows:
        if row.found is not None:
            print(f"{row.name}: {row.found}")
        elif row.looked_for:
            print(f"{row.name}: looked for {', '.join(str(path) for path in row.looked_for)}; {row.how}")
