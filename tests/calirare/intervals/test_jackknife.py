from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare.calibration import PriorPlattCalibrator
from calirare.graph import propagation
from calirare.leave_one_out import ALO, METHODS, LooResult, jackknife, leave_one_out
from calirare.leave_one_out.eice import EiceSettings, train_calirare
from calirare.leave_one_out.ends import affine_map, shared_interval
from calirare.models import GCN, GcnTraining, fit, fit_of
from calirare_ext import jackknife_interval
from tests.calirare.leave_one_out.cases import trained
from tests.helpers.tasks import rare_task


def softmax(differences: np.ndarray) -> np.ndarray:
    """Probabilities [.., k] of logits that lie [.., k - 1] above the first."""
    full = np.concatenate([np.zeros((*differences.shape[:-1], 1)), differences], -1)
    powers = np.exp(full - full.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def every_logit(fit, graph) -> np.ndarray:
    with torch.no_grad():
        return fit.model(
            propagation(graph).to(torch.float64).field(torch.arange(graph.n_nodes), fit.model.n_layers)
        ).numpy()


def algorithm_1(fit, graph, change: LooResult, *, low: float, high: float, rare: bool, scale=1.0, shift=None):
    """Algorithm 1 node by node in numpy: lower, upper, uncertainty, confidence, residuals."""
    z = every_logit(fit, graph)
    k = z.shape[1]
    shift = np.zeros(k) if shift is None else np.asarray(shift)

    def probabilities(differences: np.ndarray) -> np.ndarray:
        return softmax(scale * differences + shift[1:] - shift[0])

    places, models = (part.tolist() for part in change.samples())
    residuals = []
    for i in places:
        own = z[int(fit.nodes[i])]
        without = probabilities(own[1:] - own[0] + change.own[i].numpy())
        watched = 1 if rare else int((without if k > 2 else probabilities(own[1:] - own[0])).argmax())
        f = without[watched]
        residuals.append(abs(float(int(fit.targets[i]) == watched) - f))
    rows = []
    for v in range(len(z)):
        plain = probabilities(z[v, 1:] - z[v, 0])
        watched = 1 if rare else int(plain.argmax())
        f = probabilities(z[v, 1:] - z[v, 0] + change.change[v].numpy().T[models])[:, watched]
        ends = np.quantile(f - residuals, low), np.quantile(f + residuals, high)
        middle = sum(ends) / 2
        rows.append((*ends, 1 - middle if rare and plain.argmax() == 0 else middle, plain.max()))
    return np.array(rows), np.array(residuals)


def agrees(result, expected: np.ndarray, residuals: np.ndarray) -> None:
    ours = torch.stack([result.lower, result.upper, result.uncertainty, result.confidence], 1).numpy()
    assert np.abs(ours - expected).max() < 1e-12
    assert np.abs(result.residuals.numpy() - residuals).max() < 1e-12
    assert np.abs(result.ice.numpy() - np.abs(expected[:, 2] - expected[:, 3])).max() < 1e-12
    assert result.eice == pytest.approx(np.abs(expected[:, 2] - expected[:, 3]).mean(), rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_algorithm_1_by_numpy(n_classes: int, coverage: float) -> None:
    fit, graph = trained(n_classes, 1)
    change = leave_one_out(fit, graph)
    low = (1 - coverage) / (2 if n_classes == 2 else 1)
    expected, residuals = algorithm_1(fit, graph, change, low=low, high=1 - low, rare=n_classes == 2)
    agrees(jackknife(fit, graph, coverage=coverage, uncertainty="midpoint"), expected, residuals)


def test_probability_of_the_predicted_class_as_score() -> None:
    fit, graph = trained(2, 1)
    expected, residuals = algorithm_1(fit, graph, leave_one_out(fit, graph), low=0.05, high=0.95, rare=False)
    agrees(jackknife(fit, graph, score="predicted", uncertainty="midpoint"), expected, residuals)
    with pytest.raises(ValueError, match="score must be"):
        jackknife(*trained(3, 1), score="rare")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibrator_maps_every_logit(n_classes: int) -> None:
    fit, graph = trained(n_classes, 1)
    shares = list(range(1, n_classes + 1))
    map_ = PriorPlattCalibrator(trained_shares=shares).fit(fit.linearisation.logits, fit.targets)
    shift = map_.bias_.numpy()
    assert np.abs(shift).max() > 0.1
    left = leave_one_out(fit, graph)
    low = 0.05 if n_classes == 2 else 0.1
    expected, residuals = algorithm_1(
        fit, graph, left, low=low, high=1 - low, rare=n_classes == 2, scale=map_.scale_, shift=shift
    )
    agrees(jackknife(fit, graph, calibrator=map_, uncertainty="midpoint"), expected, residuals)
    assert (affine_map(map_) is None) is (n_classes == 3)


@pytest.mark.parametrize("method", ["grouped", "alo"])
def test_fewer_models_than_labels(method: str) -> None:
    fit, graph = trained(2, 1)
    settings = METHODS[method](**({"n_groups": 7} if method == "grouped" else {"n_models": 9}))
    change = leave_one_out(fit, graph, settings)
    assert change.change.shape[2] == (7 if method == "grouped" else 9)
    expected, residuals = algorithm_1(fit, graph, change, low=0.05, high=0.95, rare=True)
    agrees(jackknife(fit, graph, settings, uncertainty="midpoint"), expected, residuals)


def test_some_nodes_are_those_rows_of_all() -> None:
    fit, graph = trained(2, 2)
    nodes = torch.tensor([7, 149, 0, 33])
    some, every = jackknife(fit, graph, nodes=nodes), jackknife(fit, graph)
    for name in ("lower", "upper", "uncertainty", "confidence", "ice"):
        assert float((getattr(some, name) - getattr(every, name)[nodes]).abs().max()) < 1e-10, name


def test_a_bare_network_stands_for_one_trained_on_the_training_nodes():
    graph = rare_task()
    fitted = fit(graph, graph.split.train, GcnTraining(epochs=20))
    bare, whole = jackknife(fitted.model, graph), jackknife(fitted, graph)
    assert torch.equal(bare.lower, whole.lower)
    assert bare.eice == whole.eice
    elsewhere = fit_of(fitted.model, graph, graph.split.val, weight_decay=1e-3)
    assert elsewhere.nodes.tolist() == graph.split.val.tolist()
    with pytest.raises(ValueError, match="no split"):
        fit_of(fitted.model, graph.with_split(None))


def test_what_does_not_fit_is_refused() -> None:
    fit, graph = trained(2, 1)
    m, every = fit.nodes.numel(), torch.arange(graph.n_nodes)
    judges = torch.arange(m) < m // 2
    assert jackknife(fit, graph, calibration_nodes=judges).eice != jackknife(fit, graph).eice
    for wrong in (judges.long(), judges[:-1], judges.tolist()):
        with pytest.raises(ValueError, match=rf"calibration_nodes must be a bool tensor \[{m}\]"):
            jackknife(fit, graph, calibration_nodes=wrong)  # type: ignore[arg-type]
    some = leave_one_out(fit, graph, nodes=every[:5])
    assert jackknife(fit, graph, nodes=every[:5], result=some).lower.shape == (5,)
    for nodes in (None, every[5:10]):
        with pytest.raises(ValueError, match="result must be of the nodes to evaluate"):
            jackknife(fit, graph, nodes=nodes, result=some)
    with pytest.raises(ValueError, match="coverage must be in"):
        jackknife(fit, graph, coverage=1.0)
    with pytest.raises(ValueError, match="nodes must name at least one node, got none"):
        jackknife(fit, graph, nodes=every[:0])
    with pytest.raises(ValueError, match="at least one labelled node, got none"):
        fit_of(GCN(graph.n_features, 2), graph, every[:0])
    with pytest.raises(TypeError, match="fitted must be a fitted network or a torch module, got NoneType"):
        jackknife(None, graph)  # type: ignore[arg-type]
    start = GCN(rare_task().n_features, 2)
    with pytest.raises(ValueError, match="no leave-one-out logit is finite with damping 1e-300: raise it"):
        jackknife(start, rare_task(), ALO(damping=1e-300))


def test_a_network_that_ran_away_or_stands_at_0_is_named() -> None:
    graph = rare_task()
    zero = GCN(graph.n_features, 2)
    with torch.no_grad():
        for parameter in zero.parameters():
            parameter.zero_()
    assert bool(torch.isfinite(jackknife(zero, graph).lower).all())
    with torch.no_grad():
        zero.biases[-1].fill_(float("nan"))
    with pytest.raises(ValueError, match="logits at its labelled nodes must be finite"):
        jackknife(zero, graph)


def test_nothing_global_and_no_mode_is_changed():
    graph = rare_task()
    network = GCN(graph.n_features)
    network.train()
    before = torch.get_rng_state()
    jackknife(network, graph)
    assert network.training
    train_calirare(graph, GcnTraining(epochs=3), EiceSettings(start=1))
    GcnTraining().fit_to_convergence(graph, graph.split.train, max_steps=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.5, 0.5), (0.031, 0.977)])
@pytest.mark.parametrize(("n_samples", "n_models", "kinds"), [(1, 1, 9), (7, 3, 9), (60, 5, 3), (331, 5, 10**6)])
def test_equal_to_all_samples(
    n_samples: int, n_models: int, kinds: int, levels: tuple[float, float], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(n_samples)
    scores = torch.rand(50, n_models, generator=generator, dtype=torch.float64).to(dtype)
    scores[0], scores[1], scores[2] = 0.0, 1.0, torch.nan
    residuals = (torch.randint(0, kinds, (n_samples,), generator=generator) / kinds).to(dtype)  # with ties
    models = torch.randint(0, n_models, (n_samples,), generator=generator)  # a model may have no label
    expected = jackknife_interval(scores[:, models], residuals, *levels)
    lower, upper = shared_interval(scores, residuals, models, levels)
    assert lower.dtype == dtype
    tolerance = 3e-7 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(lower, expected.lower, atol=tolerance, rtol=0, equal_nan=True)
    torch.testing.assert_close(upper, expected.upper, atol=tolerance, rtol=0, equal_nan=True)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, residuals, models = torch.rand(30, 2), torch.rand(40), torch.arange(40) % 2
    whole = shared_interval(scores, residuals, models, (0.1, 0.9))
    monkeypatch.setattr("calirare.leave_one_out.ends.BLOCK_NODES", 7)
    assert all(map(torch.equal, shared_interval(scores, residuals, models, (0.1, 0.9)), whole))
