"""Why P(rare) of unlabelled nodes can be wrong: target leakage, or labels that are no random sample."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.calibration import Calibrator, LabelClustering, UnseenValues, exchangeable, find_leakage, unseen_values
from calirare.graph import Graph, nodes_not_to_review
from calirare.models import Fitted
from calirare.run.data import TrainingData
from calirare.run.settings import Settings

COMPARED = 2_000  # nodes without a label that labels are compared with
DEGREE = "number of neighbours"
MOST_COLUMNS = 1_000  # that are looked at


def why_no_sample(
    data: TrainingData, settings: Settings, fitted: Fitted, population: Calibrator, own: Tensor, nodes: Tensor
) -> str:
    """Returns why the labels are no random sample of the nodes, a sentence; empty where nothing shows it.

    Args:
        data: the run's.
        settings: the run's.
        fitted: the detector.
        population: its calibrator.
        own: out-of-fold logits of the labels that represent the population, [m, 2].
        nodes: that have them, int64 [m].
    """
    on, others = settings.calibration.calibrate_on, _without_label(data, settings.seed, own.device)
    if others.numel() and on == "all":
        rest, rare = torch.bincount(data.targets[torch.isin(data.nodes, nodes)], minlength=2).tolist()
        same = f"both classes have the same number of labels, {rare}: labels sampled per class are no random sample"
        return same if rest == rare >= 2 else ""
    if others.numel() and on == "auto" and nodes.numel():
        return _why_no_sample(data, settings.seed, fitted, population, own, nodes, others)
    return ""


def _without_label(data: TrainingData, seed: int, device: torch.device) -> Tensor:
    """Returns scored nodes without a label, `COMPARED` at random where there are more, int64."""
    known, others = nodes_not_to_review(data.user_graph), data.user_graph.scored_nodes.to(device)
    if known is not None:
        others = others[~torch.isin(others, known)]
    generator = torch.Generator().manual_seed(seed % 2**63)
    order = torch.randperm(others.numel(), generator=generator)[:COMPARED].to(others.device)
    return others[order].sort().values


def leakage(data: TrainingData, settings: Settings) -> str:
    """Returns which column or number of neighbours gives labels of a class away, a sentence; empty where nothing does.

    With task "classes" of the first class of at most half of the labels.
    """
    names, counts = data.graph.class_names, torch.bincount(data.targets).tolist()
    classes = {1: "rare"}
    if settings.many:
        classes = {k: names[k] if names else str(k) for k, count in enumerate(counts) if 2 * count <= sum(counts)}
    others = _without_label(data, settings.seed, data.nodes.device)
    return next(filter(None, (_given_away(data, others, k, kind) for k, kind in classes.items())), "")


def _given_away(data: TrainingData, others: Tensor, k: int, kind: str) -> str:
    """Returns what gives labels of a class away, in a sentence with its name; empty where nothing does."""
    graph, nodes = data.raw_graph, data.nodes
    rare = (data.targets == k).cpu().numpy()
    dates = {column.name for column in graph.columns if column.kind == "date"}
    for name, own, rest, categories in _columns(graph, nodes, others):
        found = find_leakage(own, rare, rest, categories or (), dated=name in dates)
        if found is not None:
            return found.sentence(f"the column {name!r}", "leave the column out (--drop-columns)", kind)
    numbers, those = _neighbours(graph, nodes), _neighbours(graph, others)
    for what in numbers:
        found = find_leakage(numbers[what], rare, those[what], ())
        if found is not None:
            return found.sentence(f"the {what}", "leave out edges that appear or vanish once a case is known", kind)
    return ""


def _neighbours(graph: Graph, nodes: Tensor) -> dict[str, NumpyArray]:
    """Returns features of nodes from their edges: number of neighbours, and of those that are not scored."""
    near = graph.adjacency.select_rows(nodes)
    found = {DEGREE: near.indptr.diff().double().cpu().numpy()}
    if graph.scored is not None:
        aside = (~graph.scored.to(near.indices.device))[near.indices.long()].double()
        count = aside.new_zeros(len(nodes)).index_add_(0, near.rows(), aside)
        found["number of auxiliary neighbours"] = count.cpu().numpy()
    return found


def _columns(
    graph: Graph, nodes: Tensor, others: Tensor
) -> Iterator[tuple[str, NumpyArray, NumpyArray, tuple[str, ...] | None]]:
    """Yields the name of each column, its values at nodes and at others, and its categories; None: numbers."""
    if not isinstance(graph.x, Tensor) or graph.n_features > MOST_COLUMNS:
        return
    for i in range(graph.n_features):
        values = graph.x[:, i]
        own, rest = (values[some.to(values.device)].double().cpu().numpy() for some in (nodes, others))
        categorical = bool(graph.columns) and graph.columns[i].kind == "categorical"
        name = graph.feature_names[i] if graph.feature_names else str(i)
        yield name, own, rest, graph.columns[i].categories if categorical else None


def _why_no_sample(
    data: TrainingData, seed: int, fitted: Fitted, population: Calibrator, own: Tensor, nodes: Tensor, others: Tensor
) -> str:
    """Returns why labels that are taken for a random sample may not be one; empty if there is no doubt.

    Nodes without a label are scored as labels are: of detectors with folds each by the models without one fold. Where
    the scores agree, the labels' places in the graph and in the columns as they were given are compared.
    """
    columns = _unseen(data.raw_graph, nodes, others)
    if columns is not None and columns[0].gap:  # a column that is filled for labels alone says more than scores do
        return columns[0].sentence(columns[1], data.kind)
    generator = torch.Generator().manual_seed(seed % 2**63)
    if fitted.folded is not None:
        folds = fitted.folded.all_logits_of(data.graph, others)[1]
        drawn = torch.randint(len(folds), (others.numel(),), generator=generator).to(others.device)
        logits = folds[drawn, torch.arange(others.numel(), device=others.device)]
    else:
        logits = fitted.logits_of(data.graph, others)
    p, rest = (population.transform(z.double())[:, 1].cpu().numpy() for z in (own, logits))
    found = exchangeable(p, rest, alike=fitted.folded is not None, seed=seed)
    scored = "" if found is None else found.sentence(data.kind)
    of_columns = "" if columns is None else columns[0].sentence(columns[1], data.kind)
    return scored or _together(data.user_graph, nodes, others).sentence(data.kind) or of_columns


def _together(graph: Graph, nodes: Tensor, others: Tensor) -> LabelClustering:
    """Returns the ends of edges at labelled nodes and at some without a label, edges to other labels left out."""
    known = nodes_not_to_review(graph)
    is_labelled, counts = (torch.zeros(graph.n_nodes, dtype=torch.bool, device=graph.device) for _ in range(2))
    is_labelled[nodes], counts[graph.scored_nodes] = True, True
    if known is not None:
        counts[known] = False
    counts[nodes] = True
    found = list[int]()
    for some in (nodes[:: max(1, nodes.numel() // COMPARED)], others):
        near = graph.adjacency.select_rows(some)
        ends = near.indices.long()
        ends = ends[ends != some.to(ends.device)[near.rows()]]
        found += [int(is_labelled[ends].sum()), int(counts[ends].sum())]
    return LabelClustering(*found)


def _unseen(graph: Graph, nodes: Tensor, others: Tensor) -> tuple[UnseenValues, str] | None:
    """Returns what nodes without a label have in a column, or as degree, that no labelled node has, and its name."""
    degrees = graph.adjacency.indptr.diff()
    own, rest = (degrees[some.to(degrees.device)].double().cpu().numpy() for some in (nodes, others))
    found = [(unseen_values(own, rest, named=False), DEGREE)]
    for name, here, there, categories in _columns(graph, nodes, others):
        found.append((unseen_values(here, there, named=categories is not None), name))
    doubtful = [pair for pair in found if pair[0].doubtful(len(found))]
    return max(doubtful, key=lambda pair: pair[0].beyond_chance, default=None)
