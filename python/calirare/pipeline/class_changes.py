"""What new, other and forgotten labels changed in a run of many classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pandas as pd
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import without_middle
from calirare.metrics import nll
from calirare.pipeline.changes import ROOM, SHOWN, Updated


class UpdatedClasses(Updated):
    """A run of many classes trained again with other labels, and what that changed."""

    @property
    def _p(self) -> tuple[Tensor, Tensor]:
        """Probabilities of every node for the run's target before and after, each float64 [n, k]."""
        return self.before.said.chosen.cpu().double(), self.after.said.chosen.cpu().double()

    @cached_property
    def moved(self) -> Tensor:
        """How far the probabilities of each node moved: half the sum of |change| over classes, in [0, 1], [n]."""
        was, now = self._p
        return (now - was).abs().sum(1) / 2

    @cached_property
    def measures(self) -> dict[str, dict[str, float]] | None:
        """Accuracy and log loss of the test nodes that neither run was trained on; None where there is none."""
        nodes, labels = self._judging()
        if not nodes.numel():
            return None
        return {
            side: {
                "nodes": float(len(labels)),
                "accuracy": float((p[nodes].argmax(1) == labels).double().mean()),
                "log_loss": float(nll(labels, p[nodes])),
            }
            for side, p in zip(("before", "after"), self._p, strict=True)
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns the nodes that moved most and all whose predicted class changed, the largest change first.

        Columns: node; prediction_before and prediction_after; confidence_before and confidence_after, their
        probabilities; moved, half the sum of the changes of all probabilities; label, of this update.
        """
        graph, (was, now) = self.after.graph, self._p
        nodes, labels = self._shown(was.argmax(1) != now.argmax(1))
        columns: dict[str, Any] = {"node": [graph.node_name(node) for node in nodes.tolist()]}
        sides = [("before", *was[nodes].max(1)), ("after", *now[nodes].max(1))]
        for side, _, classes in sides:
            columns[f"prediction_{side}"] = [graph.class_names[c] for c in classes.tolist()]
        for side, confidence, _ in sides:
            columns[f"confidence_{side}"] = confidence.numpy()
        return pd.DataFrame(columns | {"moved": self.moved[nodes].numpy(), "label": labels})

    def _facts(self) -> dict[str, Any]:
        """See `Updated._facts`."""
        was, now = (p[self.after.graph.scored_nodes.cpu()] for p in self._p)
        names = self.after.graph.class_names
        before, after = (dict(zip(names, p.mean(0).tolist(), strict=True)) for p in (was, now))
        return {
            "task": "classes",
            "predictions_changed": int((was.argmax(1) != now.argmax(1)).sum()),
            "estimated_shares": {"before": before, "after": after},
        }

    def _sentences(self, facts: dict[str, Any]) -> Iterator[str]:
        """See `Updated._sentences`."""
        moved = facts["moved"]
        yield (
            f"the predicted class of {amount(facts['predictions_changed'], 'node')} changed; probabilities moved by "
            f"{moved['mean']:.4f} on average, at most by {moved['largest']:.3f}"
        )

    def _first(self, width: int) -> list[str]:
        """See `Updated._first`."""
        del width
        lines = [f"{'node':<{ROOM}} {'before':<{ROOM}} {'after':<{ROOM}}"]
        for row in self.to_frame().head(SHOWN).to_dict("records"):
            sides = ((row[f"prediction_{side}"], row[f"confidence_{side}"]) for side in ("before", "after"))
            was, now = (f"{without_middle(str(name), ROOM - 6)} {p:.3f}" for name, p in sides)
            lines.append(f"{without_middle(str(row['node']), ROOM):<{ROOM}} {was:<{ROOM}} {now:<{ROOM}}".rstrip())
        return lines
