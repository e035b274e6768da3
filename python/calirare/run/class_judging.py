"""What a run of many classes is judged by: labelled nodes with their probabilities, measures and pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calirare._util.arrays import brief
from calirare.plots import class_panels, confidence_panel, reliability_diagram
from calirare.run.class_measures import measures_by_class, measures_together

RAW = "raw"  # the side before calibration
DRAWN_CLASSES = 12  # panels of classes.png: of more classes the rarest


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled nodes that judge a run of many classes.

    Attributes:
        on: what they are: "test", "leave-one-out" (the labels, each without itself) or "fresh" (labels that the maps
            were fitted on anew, each by maps without it).
        labels: their classes, int64 [n], on the CPU.
        p: their probabilities before calibration ("raw") and for each target, float64 [n, k], on the CPU.
    """

    on: str
    labels: Tensor
    p: Mapping[str, Tensor]

    __repr__ = brief

    def measures(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns what metrics.json holds of them; `names` are those of the classes."""
        return {
            "judged_on": self.on,
            "n_judged": int(self.labels.numel()),
            "report": {side: measures_together(self.labels, p) for side, p in self.p.items()},
            "classes": {side: measures_by_class(self.labels, p, names) for side, p in self.p.items()},
        }

    def draw(self, folder: Path, name: str, names: Sequence[str], target: str) -> None:
        """Draws `reliability.png`, of the predicted class, and `classes.png`, of every class's probability.

        Args:
            folder: where they are written.
            name: of the graph.
            names: of the classes.
            target: of the run; without its map the pictures are of before calibration alone.
        """
        panels = [confidence_panel("before calibration", self.labels, self.p[RAW])]
        p, after = self.p.get(target, self.p[RAW]), "before calibration"
        if target in self.p:
            after = f"after, target {target}"
            panels.append(confidence_panel(after, self.labels, p))
        title = f"{name}: is the predicted class right as often as it says? ({self.on} nodes)"
        reliability_diagram(panels, folder / "reliability.png", title=title)
        shares = torch.bincount(self.labels, minlength=p.shape[1])
        rarest = shares.argsort(stable=True)[:DRAWN_CLASSES].sort().values.tolist()
        every = class_panels(self.labels, p, class_names=names) if p.shape[1] > 2 else panels[-1:]
        chosen = [every[c] for c in rarest] if p.shape[1] > 2 else every
        which = "" if len(chosen) == len(every) else f", the {len(chosen)} rarest"
        title = f"{name}: does each class happen as often as its probability says{which}? ({after}, {self.on} nodes)"
        where, columns = folder / "classes.png", min(4, len(chosen))
        reliability_diagram(chosen, where, n_columns=columns, title=title, x_label="P(class)", y_label="share of class")
