"""The settings of a run as its folder keeps them: all that was chosen is said, so that they make the same run again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
import yaml

from calirare.graph import LABEL_RATE, PARTS, TEST_SHARE, Graph, random_split, share_split
from calirare.leave_one_out import Retrain
from calirare.run.result import RunResult
from calirare.run.settings import Settings


def write_config(outcome: RunResult, path: Path) -> None:
    """Writes every setting, resolved: a run with this file as --config is the same run."""
    graph, settings = outcome.graph, outcome.settings
    kind = _split_kind(graph, settings)
    rate = LABEL_RATE if kind == "random" else None  # None: a stored split as it is
    data = dataclasses.replace(
        settings.data.absolute(),
        label_rate=settings.data.label_rate or rate,
        split=settings.data.split or (None if settings.positive_only else kind),
        minority=graph.class_names[1],
    )
    training = dataclasses.replace(settings.training, **outcome.chosen)
    loo = settings.loo
    if isinstance(loo, Retrain) and loo.folder is not None:
        loo = dataclasses.replace(loo, folder=Path(loo.folder).resolve())
    resolved = dataclasses.replace(settings, data=data, training=training, loo=loo, device=graph.device.type)
    path.write_text(yaml.safe_dump(resolved.to_mapping(), sort_keys=False), encoding="utf-8")


def _split_kind(graph: Graph, settings: Settings) -> str:
    """Returns how `load_dataset` drew the split, "public" where it took or enlarged a stored one."""
    assert graph.split is not None
    kind = graph.split.name.split("(")[0]
    if graph.original_y is None or kind not in ("random", "share"):
        return "public"
    labels = graph.original_y.cpu()
    if kind == "share":
        kind = "all" if graph.split.name.startswith("share(test=0,") else kind
        drawn = share_split(labels, settings.seed, test_share=0.0 if kind == "all" else TEST_SHARE)
    else:
        drawn = random_split(labels, settings.data.label_rate or LABEL_RATE, seed=settings.seed)
    same = all(torch.equal(getattr(drawn, part), getattr(graph.split.to("cpu"), part)) for part in PARTS)
    return kind if same else "public"
