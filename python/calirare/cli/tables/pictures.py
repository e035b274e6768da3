"""Pictures of a table: reliability of all and of rare samples, of each class and of P(rare), and detection."""

from __future__ import annotations

from pathlib import Path

from calirare.cli.tables.table import Table, TableColumns

# Class diagrams beyond this many cannot be read; the picture then shows the first ones and says so.
MAX_CLASS_PANELS = 12


def draw_table(table: Table, columns: TableColumns, out: Path, n_bins: int, threshold: float) -> None:
    """Draws `classes.png` and, for one label column, `reliability.png`, `precision_recall.png` and `p_rare.png`."""
    from calirare.plots import class_panels, confidence_panel, reliability_diagram

    y = table.labels
    states = [("", columns.probabilities, table.probabilities)]
    if table.before is not None:
        states = [
            ("before: ", columns.before, table.before),
            ("after: ", columns.probabilities, table.probabilities),
        ]
    if y.ndim == 1:
        views = (("all samples", None), ("minority class", table.minority))
        panels = [
            confidence_panel(state + name, y, p, cls=cls, weights=table.weights)
            for name, cls in views
            for state, _, p in states
        ]
        reliability_diagram(panels, out / "reliability.png", n_bins=n_bins, n_columns=2)
        _draw_rare(table, columns, out, n_bins, threshold)
    by_state = [
        class_panels(y, p, class_names=[state + name for name in names], weights=table.weights)
        for state, names, p in states
    ]
    groups = list(zip(*by_state, strict=True))
    panels = [panel for group in groups[:MAX_CLASS_PANELS] for panel in group]
    left_out = len(groups) - MAX_CLASS_PANELS
    reliability_diagram(
        panels,
        out / "classes.png",
        n_bins=n_bins,
        n_columns=2 if len(states) == 2 else min(len(panels), 3),
        title=f"the first {MAX_CLASS_PANELS} of {len(groups)}; {left_out} left out" if left_out > 0 else None,
        x_label="predicted probability",
        y_label="frequency",
    )


def _draw_rare(table: Table, columns: TableColumns, out: Path, n_bins: int, threshold: float) -> None:
    """Draws `precision_recall.png` and `p_rare.png`."""
    from calirare.plots import Panel, precision_recall_diagram, rare_reliability_diagram

    y = (table.labels == table.minority).astype(int)
    states = [("before", table.before), ("after", table.probabilities)]
    if table.before is None:
        states = [("P(rare)", table.probabilities)]
    panels = [
        Panel(state, y, p if p.ndim == 1 else p[:, table.minority], table.weights)
        for state, p in states
        if p is not None
    ]
    precision_recall_diagram(panels, out / "precision_recall.png", threshold=threshold)
    event = "the rare class" if str(columns.minority) == "1" else str(columns.minority)
    rare_reliability_diagram(panels, out / "p_rare.png", n_bins=n_bins, event=event)
