"""A run's folder: what a training writes down, and how it is read again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import AffineCalibrator, Calibrator, JackknifeCalibrator, Target
from calirare.datasets import load_dataset
from calirare.graph.checksum import fingerprint
from calirare.graph.convolution import propagation
from calirare.graph.features import column_statistics
from calirare.graph.graph import Graph, Normalisation
from calirare.graph.splits import LABEL_RATE, PARTS, Split, random_split
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import Fit, class_weights
from calirare.run.outcome import Outcome
from calirare.run.settings import Settings, check_data, read_yaml

METADATA, FORMAT = "calirare", "calirare run 2"
SCALING = ("features.mean", "features.spread")
_CALIBRATORS: dict[str, type[Calibrator]] = {
    "AffineCalibrator": AffineCalibrator,
    "JackknifeCalibrator": JackknifeCalibrator,
}


def write_json(values: dict[str, Any], path: Path) -> None:
    """Writes numbers and strings as JSON, keys in order, the same bytes for the same values; no NaN, but null."""
    text = json.dumps(_finite(values), indent=2, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """Returns a value of JSON without NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_config(outcome: Outcome, data: dict[str, Any], path: Path) -> None:
    """Writes every setting, resolved: a run with this file as --config is the same run."""
    graph = outcome.graph
    kind = _split_kind(graph, data)
    rate = LABEL_RATE if kind == "random" else None  # None: a stored split as it is
    values = {"label_rate": rate, "split": kind} | data | outcome.settings.to_mapping()
    values |= {"minority": graph.class_names[1], "epochs": outcome.epochs, "device": graph.device.type}
    values |= {"weight_decay": outcome.fit.weight_decay, "hops": outcome.model.hops}
    path.write_text(yaml.safe_dump(values, sort_keys=True), encoding="utf-8")


def _split_kind(graph: Graph, data: dict[str, Any]) -> str:
    """Returns "random" where `load_dataset` drew the split, "public" where it took or enlarged a stored one."""
    assert graph.split is not None
    if graph.original_y is None or not graph.split.name.startswith("random("):
        return "public"
    drawn = random_split(graph.original_y, data.get("label_rate") or LABEL_RATE, seed=data["seed"])
    same = all(torch.equal(getattr(drawn, part), getattr(graph.split.to("cpu"), part)) for part in PARTS)
    return "random" if same else "public"


def save_model(outcome: Outcome, path: Path) -> None:
    """Writes weights, biases, split and calibrators, all that another program needs to score a graph."""
    split = outcome.graph.split
    assert split is not None
    tensors = {name: value.detach().cpu().contiguous() for name, value in outcome.model.state_dict().items()}
    tensors |= {f"split.{name}": getattr(split, name).cpu() for name in ("train", "val", "test")}
    tensors["labelled"] = outcome.fit.nodes.cpu().clone()  # may be the split's own tensor, which safetensors refuses
    if outcome.graph.feature_normalisation == "standardize":  # of these nodes: another graph is scaled in the same way
        for name, value in zip(SCALING, column_statistics(outcome.graph), strict=True):
            tensors[name] = value.cpu()
    facts = {
        "calibrators": {t: {"kind": type(c).__name__, "state": c.state()} for t, c in outcome.calibrators.items()},
        "class_names": list(outcome.graph.class_names),
        "damping": outcome.jackknife.diagnostics["damping"],
        "feature_names": list(outcome.graph.feature_names),
        "feature_normalisation": outcome.graph.feature_normalisation,
        "graph": fingerprint(outcome.graph),
        "format": FORMAT,
    }
    try:
        # One entry: safetensors writes several in random order.
        save_file(tensors, str(path), {METADATA: json.dumps(facts, sort_keys=True)})
        path.chmod(0o644)  # safetensors leaves it to its owner alone
    except SafetensorError as error:
        raise OSError(str(error)) from error


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run read from its folder.

    Attributes:
        folder: where it is.
        settings: as resolved by the training.
        data: dataset, minority, label rate, split: how its graph was loaded.
        model: the network.
        calibrators: the fitted map of each target.
        split: the nodes' parts.
        labelled: the labels the network was trained on, in their order, int64 [m].
        class_names: names of the task's classes.
        damping: of the leave-one-out step.
        feature_normalisation: how the graph's features are scaled before use.
        scaling: mean and standard deviation of each feature of the run's graph, [d], where they are standardized.
        feature_names: names of the run's features, or none.
        fingerprint: of the run's own graph.
    """

    folder: Path
    settings: Settings
    data: dict[str, Any]
    model: GCN
    calibrators: dict[Target, Calibrator]
    split: Split
    labelled: Tensor
    class_names: tuple[str, ...]
    damping: float
    feature_normalisation: Normalisation
    scaling: tuple[Tensor, Tensor] | None
    feature_names: tuple[str, ...]
    fingerprint: str

    @property
    def calibrator(self) -> Calibrator | None:
        """The map of the run's target, or None."""
        return self.calibrators.get(self.settings.target)

    def graph(self) -> Graph:
        """Returns the run's own graph with the run's split, loaded again.

        Raises:
            InputError: it is not there any more, or is another graph.
        """
        left_out = ["dataset", "root", "download"]
        if self.data.get("split") == "public":  # the run's own split takes its place
            left_out.append("label_rate")
        options = {key: value for key, value in self.data.items() if key not in left_out}
        graph = load_dataset(self.data["dataset"], self.data.get("root"), **options)
        if fingerprint(graph) != self.fingerprint:
            raise InputError(
                f"run {self.folder}: {self.data['dataset']} is not the graph the run was trained on any more"
            )
        return graph.with_split(self.split)

    def fit(self, graph: Graph) -> Fit:
        """Returns the trained network with its labels on the run's own graph."""
        assert graph.y is not None
        targets = graph.y[self.labelled]
        weights = class_weights(targets, self.model.n_classes)[targets].to(self.model.weights[0])
        field = propagation(graph, self.model.hops).field(self.labelled, self.model.n_layers)
        return Fit(self.model, field, targets, weights, self.settings.training(1).weight_decay, ())


def load_run(folder: str | Path) -> LoadedRun:
    """Reads a run's folder.

    Args:
        folder: written by `calirare train`.

    Returns:
        The run.

    Raises:
        InputError: the folder is missing or not a run, or a file in it is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"run {folder}: there is no such folder; `calirare train --out {folder}` writes one")
    for name in ("config.yaml", "model.safetensors"):
        if not (folder / name).is_file():
            raise InputError(f"run {folder}: {name} is missing, so this is not a folder written by `calirare train`")
    values = read_yaml(folder / "config.yaml")
    names = set(Settings().to_mapping())
    where = f"config {folder / 'config.yaml'}"
    settings = Settings.from_mapping({k: v for k, v in values.items() if k in names}, where)
    check_data({k: v for k, v in values.items() if k not in names}, where)
    if values.get("dataset") is None:
        raise InputError(f"{where}: dataset is missing")
    try:
        with safe_open(str(folder / "model.safetensors"), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            facts = json.loads((file.metadata() or {})[METADATA])
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is {facts['format']!r}, {FORMAT!r} is known")
        model = _model(tensors, settings)
        split = Split(tensors["split.train"], tensors["split.val"], tensors["split.test"], str(values.get("split", "")))
        calibrators = {t: _CALIBRATORS[c["kind"]].from_state(c["state"]) for t, c in facts["calibrators"].items()}
        class_names = tuple(facts["class_names"])
        damping = float(facts["damping"])
        how = cast(Normalisation, facts["feature_normalisation"])
        scaling = (tensors[SCALING[0]], tensors[SCALING[1]]) if how == "standardize" else None
        feature_names = tuple(facts["feature_names"])
        labelled, graph = tensors["labelled"], str(facts["graph"])
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"run {folder}: model.safetensors is damaged or was written by another version: {reason}"
        ) from error
    data = {key: value for key, value in values.items() if key not in names or key == "seed"}
    return LoadedRun(
        folder,
        settings,
        data,
        model,
        calibrators,
        split,
        labelled,
        class_names,
        damping,
        how,
        scaling,
        feature_names,
        graph,
    )


def _model(tensors: dict[str, Tensor], settings: Settings) -> GCN:
    weights = {name: value for name, value in tensors.items() if name.startswith(("weights.", "biases."))}
    last = f"weights.{settings.n_layers - 1}"
    model = GCN(
        weights["weights.0"].shape[0],
        weights[last].shape[1],
        hidden=settings.hidden,
        n_layers=settings.n_layers,
        dropout=settings.dropout,
        hops=settings.training(1).hops,
        generator=torch.Generator(),  # not the caller's: what is drawn is overwritten
    )
    model.load_state_dict(weights)
    return model.eval()


def run_probabilities(run: LoadedRun, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns raw P(class 1) [n] and probabilities under the run's map [n, k]."""
    raw = torch.softmax(logits, 1)
    return raw[:, 1], raw if run.calibrator is None else run.calibrator.transform(logits)
