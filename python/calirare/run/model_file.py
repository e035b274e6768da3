"""What of a run scores graphs, in one file: detector, labels, split, maps and what is remembered of its graph."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError, safe_open
from torch import Tensor

from calirare._util.array_files import write_tensors
from calirare._util.errors import InputError
from calirare._util.files import parse_json
from calirare.calibration import KINDS, Target
from calirare.drift import Reference
from calirare.features import FeatureMap
from calirare.graph import PARTS, Split, TableColumns, fingerprint
from calirare.models import Fitted
from calirare.run.result import RunResult
from calirare.run.scoring import Scorer
from calirare.run.settings import Settings
from calirare.run.verdict import Verdict
from calirare_ext import __version__

METADATA, FORMAT = "calirare", "calirare run 9"
FIT = "fit."  # before the names of the detector's own tensors
FEATURES = "features."  # before those of the map of the features
REFERENCE = "reference."  # before those of what is remembered of the run's graph


def save_model(outcome: RunResult, path: Path) -> None:
    """Writes the detector with its labels, split and calibrators: all that scores another graph."""
    assert outcome.graph.split is not None
    write_model(Scorer.of(outcome), outcome.graph.split, fingerprint(outcome.graph), outcome.held_out, path)


def write_model(scorer: Scorer, split: Split, own_graph: str, held_out: Tensor | None, path: Path) -> None:
    """Writes what scores graphs.

    Args:
        scorer: of the run.
        split: of the run's own graph.
        own_graph: its checksum.
        held_out: see `RunResult.held_out`.
        path: of the file.

    Raises:
        OSError: it cannot be written.
    """
    states = {FIT: scorer.fit.state(), FEATURES: scorer.features.state(), REFERENCE: scorer.reference.state()}
    tensors = {prefix + name: value for prefix, (own, _) in states.items() for name, value in own.items()}
    tensors |= {f"split.{name}": getattr(split, name) for name in PARTS}
    more = {"calibration_nodes": scorer.calibration_nodes, "held_out": held_out}
    tensors |= {name: value for name, value in more.items() if value is not None}
    facts = {
        "calibrators": {t: {"kind": type(c).__name__, "state": c.state()} for t, c in scorer.calibrators.items()},
        "class_names": list(scorer.class_names),
        "damping": scorer.damping,
        "features": states[FEATURES][1],
        "fit": {"kind": type(scorer.fit).__name__, "state": states[FIT][1]},
        "graph": own_graph,
        "format": FORMAT,
        "reference": states[REFERENCE][1],
        "tables": dataclasses.asdict(scorer.tables),
        "threshold": scorer.threshold,
        "verdict": scorer.verdict.to_mapping(),
        "version": scorer.version,
        "weighted": scorer.weighted,
        "relations": None if scorer.relations is None else list(scorer.relations),
    }
    write_tensors(tensors, path, {METADATA: json.dumps(facts, sort_keys=True)})


def damaged(path: Path, error: Exception, version: object = None) -> InputError:
    """Returns what to say of a file that cannot be read; `version` is what it says that wrote it, if it does."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    which = f", {version}" if version and version != __version__ else ""
    return InputError(f"run {path.parent}: {path.name} is damaged or was written by another version{which}: {reason}")


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors of a file and its facts."""
    try:
        with safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            facts = parse_json((file.metadata() or {})[METADATA])
        found, version = facts["format"], facts.get("version")
    except (OSError, SafetensorError, LookupError, ValueError, TypeError) as error:
        raise damaged(path, error) from error
    if found != FORMAT:
        by = f"calirare {version}" if version else "another version of calirare"
        raise InputError(
            f"run {path.parent}: it was written by {by} ({found!r}, {FORMAT!r} is known): train it again, with the "
            "settings of its config.yaml under their new names (`calirare train --help`)"
        )
    return tensors, facts


def scorer_of(tensors: dict[str, Tensor], facts: dict[str, Any], settings: Settings) -> Scorer:
    """Returns what tensors and facts of a file tell."""
    own, mapping, remembered = (
        {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        for prefix in (FIT, FEATURES, REFERENCE)
    )
    return Scorer(
        Fitted.kinds[facts["fit"]["kind"]].from_state(own, facts["fit"]["state"]),
        settings,
        {cast(Target, t): KINDS[c["kind"]].from_state(c["state"]) for t, c in facts["calibrators"].items()},
        float(facts["damping"]),
        tensors.get("calibration_nodes"),
        tuple(facts["class_names"]),
        FeatureMap.from_state(mapping, facts["features"]),
        float(facts["threshold"]),
        Reference.from_state(remembered, facts["reference"]),
        TableColumns(**facts["tables"]),
        facts["weighted"],
        None if facts["relations"] is None else tuple(facts["relations"]),
        verdict=Verdict.from_mapping(facts["verdict"]),
        version=str(facts["version"]),
    )


MAY_BE_NAN = (".spread", ".fill")  # of constant features; what fills in where none may lack


def check_model(tensors: dict[str, Tensor], facts: dict[str, Any], highest: float) -> None:
    """Checks tensors, classes, damping, the maps' numbers and the threshold, which is at most `highest`.

    Raises:
        ValueError: one is no number, out of range or there twice.
        LookupError: one is missing.
    """
    for name, tensor in tensors.items():
        if not name.endswith(MAY_BE_NAN) and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} must hold finite numbers")
    names = facts["class_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < 2:
        raise ValueError(f"class_names must be the names of two classes at least, got {names}")
    if len(set(names)) < len(names):
        raise ValueError(f"class_names must be there once each, got {names}")
    for name, most in (("damping", math.inf), ("threshold", highest)):
        value = facts[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or value == math.inf:
            raise ValueError(f"{name} must be a finite number from 0 on, got {value!r}")
    if not _finite(facts["calibrators"]):
        raise ValueError("the calibrators must hold finite numbers")


def _finite(value: Any) -> bool:
    """Returns whether a value of JSON holds no NaN and no infinity."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
