"""Every method of the tables by name: what it trains on, what it calibrates on, and how it is run at one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from calirare.calibration import Target, temperature_scaling
from calirare.leave_one_out.eice import train_calirare
from calirare.models import Loss
from calirare_lab.baselines import (
    GATS,
    OFFICIAL_TRAINING,
    CaGCN,
    GatTraining,
    GinTraining,
    OfficialSettings,
    class_weighted_smoothing_loss,
    dropout_probabilities,
    dropout_probabilities_of_module,
    focal_loss,
    label_smoothing_loss,
    official_probabilities,
    post_hoc,
    read_official,
    train_cagcn_base,
    train_mixup,
    train_with_loss,
)
from calirare_lab.baselines.losses import SMOOTHING
from calirare_lab.paper.context import PAPER_TRAINING, Context
from calirare_lab.paper.ours import BEFORE, Recipe, calibrated, networks
from calirare_lab.paper.protocol import paper_name
from calirare_lab.paper.published import N_RARE, N_TEST

Outcome = tuple[Tensor, dict[str, float]]  # probabilities of the test nodes [n, k], further numbers
Run = Callable[[Context], Outcome]


@dataclass(frozen=True)
class Method:
    """One row of a table.

    Attributes:
        name: for `--method` and files.
        title: for tables.
        trains_on: "train", "val", "train + val".
        calibrates_on: "-", "train", "val" or "train + val", or in words.
        run: gives the test nodes' probabilities at a place.
        published: the paper's name of the row it reproduces, or empty.
    """

    name: str
    title: str
    trains_on: str
    calibrates_on: str
    run: Run
    published: str = ""

    @property
    def all_labels(self) -> bool:
        """Whether it has used both training and validation labels, whatever for."""
        return "val" in self.trains_on or "val" in self.calibrates_on


def _plain(context: Context, *, nodes: str) -> Outcome:
    run = context.settings(PAPER_TRAINING)
    return torch.softmax(context.logits(nodes, run, context.split.test).double(), 1), {}


def _with_dropout(context: Context) -> Outcome:
    """The network of "uncalibrated", read with dropout on as the authors' code reads it."""
    run = context.settings(PAPER_TRAINING)
    p = dropout_probabilities(context.fit("train", run).model, context.graph, run.seed)
    return p[context.split.test].double(), {}


def _post_hoc(context: Context, *, name: str, target: Target) -> Outcome:
    """Trains on train, calibrates on held-out val."""
    run, split = context.settings(PAPER_TRAINING), context.split
    held = context.logits("train", run, split.val).double()
    calibrator = post_hoc(name, target).fit(held, context.y[split.val])
    return calibrator.transform(context.logits("train", run, split.test).double()), {}


def _node_temperature(context: Context, *, kind: str) -> Outcome:
    run, split = context.settings(PAPER_TRAINING), context.split
    logits = context.logits("train", run, torch.arange(context.graph.n_nodes))
    calibrator = CaGCN(seed=run.seed) if kind == "cagcn" else GATS(split.train, seed=run.seed)
    p = calibrator.fit(logits, context.y, context.graph, split.val).transform(logits)
    return p[split.test].double(), {}


def _cagcn_on_its_base(context: Context) -> Outcome:
    """CaGCN with everything as in its authors' code: the network below it is theirs as well."""
    run, split = context.settings(PAPER_TRAINING), context.split
    logits = train_cagcn_base(context.graph, split.train, split.val, run).logits(context.graph)
    p = CaGCN(seed=run.seed).fit(logits, context.y, context.graph, split.val).transform(logits)
    return p[split.test].double(), {}


def _labels(context: Context, nodes: str) -> Tensor:
    return context.both if nodes == "both" else context.split.train


def _with_loss(context: Context, *, nodes: str, loss: Loss) -> Outcome:
    model = train_with_loss(context.graph, _labels(context, nodes), context.settings(PAPER_TRAINING), loss)
    return _softmax(model.logits(context.graph), context)


def _mixup(context: Context, *, nodes: str) -> Outcome:
    model = train_mixup(context.graph, _labels(context, nodes), context.settings(PAPER_TRAINING))
    return _softmax(model.logits(context.graph), context)


def _algorithm_2(context: Context, *, nodes: str) -> Outcome:
    run = context.settings(PAPER_TRAINING)
    model = train_calirare(context.graph, run, nodes=_labels(context, nodes)).model
    return _softmax(model.logits(context.graph), context)


def _official(context: Context) -> Outcome:
    run, settings = context.settings(OFFICIAL_TRAINING), _official_settings(context)
    model = context.official(run, settings)
    p = official_probabilities(model, context.graph, context.split.val, run, settings)
    return p[context.split.test].double(), {}


def _as_their_code(context: Context, *, smoothing: float = 0.0, temperature: bool = False) -> Outcome:
    """The network that the authors' recipe starts from, read as their code reads it."""
    run, split = context.settings(OFFICIAL_TRAINING), context.split
    model = context.official(run, replace(_official_settings(context), smoothing=smoothing))
    p = read_official(model, context.graph, run.seed).double()
    if not temperature:
        return p[split.test], {}
    logits = p.clamp(min=torch.finfo(torch.float32).tiny).log()
    calibrator = temperature_scaling().fit(logits[split.val], context.y[split.val])
    return calibrator.transform(logits[split.test]), {}


def _official_settings(context: Context) -> OfficialSettings:
    """The recipe with the weight that the paper's class shares suggest: no label is read for it."""
    rare = N_RARE[paper_name(context.place.dataset)]
    return OfficialSettings(rare_weight=(N_TEST - rare) / rare)


def _network(context: Context, *, kind: str, nodes: str) -> Outcome:
    settings = GatTraining(seed=context.place.seed) if kind == "gat" else GinTraining(seed=context.place.seed)
    return _softmax(settings.fit(context.graph, _labels(context, nodes)).logits(), context)


def _narrow_gat(context: Context) -> Outcome:
    """GAT as wide as the GCN: one head of as many units, trained with its learning rate and dropout."""
    like = PAPER_TRAINING
    settings = GatTraining(
        hidden=like.hidden,
        heads=1,
        learning_rate=like.learning_rate,
        dropout=like.dropout,
        seed=context.place.seed,
    )
    return _softmax(settings.fit(context.graph, context.split.train).logits(), context)


def _gin_with_batch_norm(context: Context) -> Outcome:
    """GIN as wide as the GCN, with batch normalisation as in its authors' code."""
    settings = GinTraining(hidden=PAPER_TRAINING.hidden, batch_norm=True, seed=context.place.seed)
    return _softmax(settings.fit(context.graph, context.split.train).logits(), context)


def _gin_as_their_code(context: Context) -> Outcome:
    """The same network trained and read as the paper's code does the GCN; it normalises by the graph at hand."""
    settings = GinTraining(
        epochs=OFFICIAL_TRAINING.epochs,
        learning_rate=OFFICIAL_TRAINING.learning_rate,
        hidden=PAPER_TRAINING.hidden,
        batch_norm=True,
        seed=context.place.seed,
    )
    trained = settings.fit(context.graph, context.split.train, loss=_official_settings(context).loss)
    return dropout_probabilities_of_module(trained, settings.seed)[context.split.test].double(), {}


def _gat_with_dropout(context: Context) -> Outcome:
    """The network of "gat", read with dropout on."""
    settings = GatTraining(seed=context.place.seed)
    p = dropout_probabilities_of_module(settings.fit(context.graph, context.split.train), settings.seed)
    return p[context.split.test].double(), {}


def _recipe(context: Context, *, recipe: Recipe) -> Outcome:
    return calibrated(context, recipe)


def _uncalibrated_recipe(context: Context, *, n_networks: int) -> Outcome:
    """Our networks without any map: what the calibration adds, and the bound for recall and macro-F1."""
    runs = networks(context, Recipe(n_networks=n_networks))
    logits = torch.stack([context.logits("both", run, context.split.test).double() for run in runs])
    return torch.softmax(logits.mean(0), 1), {}


def _softmax(logits: Tensor, context: Context) -> Outcome:
    return torch.softmax(logits[context.split.test].double(), 1), {}


BOTH, VAL, TRAIN = "train + val", "val", "train"
CODE = "trained and read as by the authors' code (control)"


def _methods_of_others() -> list[Method]:
    """Returns the paper's rows and further maps and losses; the last two groups at both amounts of labels."""
    rows = [
        Method("uncalibrated", "Uncalibrated GCN-CS", TRAIN, "-", partial(_plain, nodes="train"), "uncalibrated"),
        Method("dropout", "Uncalibrated, read with dropout on (control)", TRAIN, "-", _with_dropout, "uncalibrated"),
        Method("uncalibrated_code", f"Uncalibrated, {CODE}", TRAIN, "-", _as_their_code, "uncalibrated"),
    ]
    for name, title, published in (
        ("temperature", "Temperature scaling", "temperature"),
        ("matrix", "Matrix scaling", "matrix"),
        ("vector", "Vector scaling", ""),
        ("platt", "Platt scaling", ""),
        ("isotonic", "Isotonic regression", ""),
        ("histogram", "Histogram binning", ""),
        ("beta", "Beta calibration", ""),
        ("ets", "Ensemble temperature scaling", ""),
    ):
        run = partial(_post_hoc, name=name, target="population")
        rows.append(Method(name, title, TRAIN, VAL, run, published))
        run = partial(_post_hoc, name=name, target="balanced")
        rows.append(Method(f"{name}_balanced", f"{title}, class-balanced", TRAIN, VAL, run))
    rows += [
        Method("cagcn", "CaGCN", TRAIN, VAL, partial(_node_temperature, kind="cagcn"), "cagcn"),
        Method("cagcn_base", "CaGCN on its authors' base network (control)", TRAIN, VAL, _cagcn_on_its_base, "cagcn"),
        Method("gats", "GATS", TRAIN, VAL, partial(_node_temperature, kind="gats")),
        Method("official", "The authors' recipe (`official`)", BOTH, "-", _official, "ours"),
    ]
    for nodes, labels, suffix, note in (("train", TRAIN, "", ""), ("both", BOTH, "_all", ", all labels")):
        known = nodes == "train"
        smooth = partial(_with_loss, nodes=nodes, loss=label_smoothing_loss)
        focal = partial(_with_loss, nodes=nodes, loss=focal_loss)
        gat, gin = (partial(_network, kind=kind, nodes=nodes) for kind in ("gat", "gin"))
        row = partial(Method, trains_on=labels, calibrates_on="-")
        rows += [
            row(f"label_smoothing{suffix}", f"Label smoothing{note}", run=smooth, published="label_smoothing" * known),
            row(f"mixup{suffix}", f"Mixup{note}", run=partial(_mixup, nodes=nodes), published="mixup" * known),
            row(f"focal{suffix}", f"Focal loss{note}", run=focal),
            row(f"calirare{suffix}", f"CaliRare, Algorithm 2{note}", run=partial(_algorithm_2, nodes=nodes)),
            row(f"gat{suffix}", f"GAT-CS{note}", run=gat, published="gat" * known),
            row(f"gin{suffix}", f"GIN-CS{note}", run=gin, published="gin" * known),
        ]
    return rows


def _controls() -> list[Method]:
    """Returns what may explain the paper's rows, and networks without a map."""
    weighted = partial(_with_loss, nodes="train", loss=class_weighted_smoothing_loss)
    title = "Label smoothing, class weights on the smoothed targets (control)"
    scaled, smoothed = partial(_as_their_code, temperature=True), partial(_as_their_code, smoothing=SMOOTHING)
    return [
        Method("temperature_code", f"Temperature scaling, {CODE}", TRAIN, VAL, scaled, "temperature"),
        Method("label_smoothing_code", f"Label smoothing, {CODE}", TRAIN, "-", smoothed, "label_smoothing"),
        Method("gin_batch_norm", "GIN-CS, batch norm, 16 units (control)", TRAIN, "-", _gin_with_batch_norm, "gin"),
        Method("gin_code", f"GIN-CS, batch norm, 16 units, {CODE}", TRAIN, "-", _gin_as_their_code, "gin"),
        Method("gat_narrow", "GAT-CS, one head of 16 units (control)", TRAIN, "-", _narrow_gat, "gat"),
        Method("gat_dropout", "GAT-CS, read with dropout on (control)", TRAIN, "-", _gat_with_dropout, "gat"),
        Method("label_smoothing_weighted", title, TRAIN, "-", weighted, "label_smoothing"),
        Method("uncalibrated_all", "Uncalibrated GCN-CS, all labels", BOTH, "-", partial(_plain, nodes="both")),
        Method("ours_uncalibrated_one", "Our network, no map", BOTH, "-", partial(_uncalibrated_recipe, n_networks=1)),
        Method(
            "ours_uncalibrated",
            "Our networks, no map",
            BOTH,
            "-",
            partial(_uncalibrated_recipe, n_networks=Recipe().n_networks),
        ),
    ]


def _ours() -> list[Method]:
    """Returns our default, its variants and the maps it competes with on the same labels."""
    one, plain = Recipe(n_networks=1), Recipe(n_networks=1, sharpen=False)
    crossed, left = f"{VAL}, cross-fitted", f"{VAL}, leave-one-out"
    recipes = (
        ("insample", "Same map on in-sample logits (control)", f"{VAL}, in-sample", replace(plain, source="in-sample")),
        ("crossfit_temperature", "Temperature, cross-fitted", crossed, _temperature(plain, "cross-fit")),
        ("crossfit_platt", "Platt, cross-fitted", crossed, replace(plain, source="cross-fit", target="population")),
        ("crossfit_balanced", "Balanced Platt, cross-fitted", crossed, replace(plain, source="cross-fit", target=1.0)),
        ("crossfit_ours", "Our map, cross-fitted, one network", crossed, replace(one, source="cross-fit")),
        ("jackknife_temperature", "Jackknife temperature", left, _temperature(plain, "jackknife")),
        ("jackknife_platt", "Jackknife Platt, population", left, replace(plain, target="population")),
        ("jackknife_balanced", "Jackknife Platt, fully balanced", left, replace(plain, target=1.0)),
        ("ours_one", "Our map, one network", left, one),
        ("ours_once", "Ours, features propagated once, t = .9 (the default before)", left, BEFORE),
        ("ours_population", "Ours, population target", left, Recipe(target="population", sharpen=False)),
        ("ours_unsharpened", "Ours without the step of sharpness", left, Recipe(sharpen=False)),
        ("ours", "Ours (default, balanced target)", left, Recipe()),
    )
    return [Method(n, title, BOTH, on, partial(_recipe, recipe=recipe)) for n, title, on, recipe in recipes]


def _temperature(recipe: Recipe, source: str) -> Recipe:
    return replace(recipe, with_bias=False, target="population", source=source)


METHODS: dict[str, Method] = {method.name: method for method in _methods_of_others() + _controls() + _ours()}
