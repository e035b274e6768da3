from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm, rankdata
from torch.nn import functional as F

from calirare_lab.multilabel.reference import gaussian_copula_density
from calirare_multilabel import CMLCCLoss, canonical_calibration_error, focal_loss, margins, smooth_canonical_error
from calirare_multilabel.margins import _sorted, pseudo_observations, smooth_cdf


def batch(n: int = 24, k: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, dtype=torch.float64, generator=random) * 2
    return logits, torch.rand(n, k, dtype=torch.float64, generator=random) < logits.sigmoid()


@pytest.mark.slow
@pytest.mark.parametrize(("p", "label_model", "shrinkage"), [(1, "density", "auto"), (2.5, "threshold", 0.05)])
def test_gradcheck(p, label_model, shrinkage):
    logits, labels = batch(12, 2)
    options = {"p": p, "label_model": label_model, "shrinkage": shrinkage}
    assert torch.autograd.gradcheck(lambda x: smooth_canonical_error(x, labels, **options), (logits.requires_grad_(),))


def test_equal_to_the_literal_sums_on_the_smooth_margins():
    logits, labels = batch(14, 2, 1)
    x, y = logits.numpy(), labels.numpy()
    u = norm.cdf((x[:, None] - x[None]) / (0.8 * x.std(0) * 14**-0.2)).mean(1)
    z = norm.ppf(u)
    s = (z - z.mean(0)) / z.std(0)
    r = s.T @ s / 14
    total = 0.0
    for j in range(2):
        zero_rate = 1 - y[:, j].mean()
        extended = np.where(y[:, j], zero_rate + (1 - zero_rate) / 2, zero_rate / 2)
        score = norm.ppf(extended)
        c = s.T @ score / 14
        q = np.sqrt(c @ np.linalg.solve(r, c))
        roots = np.roots([-1, q, -np.mean(score**2), q])
        strength = roots[np.abs(roots.imag) < 1e-9].real[0]
        theta = np.block([[np.ones((1, 1)), (c * strength / q)[None]], [(c * strength / q)[:, None], r]])
        for at in range(14):
            density = [gaussian_copula_density(np.array([e, *u[at]]), theta) for e in extended]
            total += abs(np.average(y[:, j], weights=density) - expit(x[at, j]))
    ours = float(smooth_canonical_error(logits, labels, bandwidth=0.8, shrinkage=0.0))
    assert abs(ours - total / 28) <= 1e-10


def test_labels_that_do_not_vary_are_left_out():
    logits, labels = batch(30, 3)
    reference = smooth_canonical_error(logits, labels)
    more = torch.cat([logits, torch.zeros(30, 2, dtype=torch.float64)], 1)
    flat = torch.cat([labels, torch.zeros(30, 1, dtype=torch.bool), torch.ones(30, 1, dtype=torch.bool)], 1)
    assert float(smooth_canonical_error(more, flat)) == pytest.approx(float(reference), rel=1e-12, abs=0)
    nothing = logits[:, :1].clone().requires_grad_()
    loss = smooth_canonical_error(nothing, torch.zeros(30, 1))
    loss.backward()
    assert loss.item() == 0
    assert nothing.grad.tolist() == [[0.0]] * 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["constant column", "equal columns", "all constant", "huge logits", "n <= K"])
def test_gradients_stay_finite(dtype, case):
    logits, labels = batch(20, 4, 3)
    if case == "constant column":
        logits[:, 1] = 3
    elif case == "equal columns":
        logits[:, 1] = logits[:, 0]
    elif case == "all constant":
        logits[:] = -2
    elif case == "huge logits":
        logits = logits * 1e4
    else:
        logits, labels = logits[:3], labels[:3]
    logits = logits.to(dtype).requires_grad_()
    loss = CMLCCLoss(beta=2.0)(logits, labels)
    loss.backward()
    assert loss.dtype == dtype
    assert bool(torch.isfinite(logits.grad).all())
    assert bool(torch.isfinite(loss))


def test_cmlcc_is_risk_plus_beta_times_error():
    logits, labels = batch(40, 3)
    y = labels.double()
    risk = F.binary_cross_entropy_with_logits(logits, y)
    expected = risk + 0.7 * smooth_canonical_error(logits, labels, p=2, bandwidth=0.5)
    assert float(CMLCCLoss(0.7, p=2, bandwidth=0.5)(logits, y)) == pytest.approx(float(expected), rel=1e-14, abs=0)
    assert float(CMLCCLoss(0.0)(logits, y)) == float(risk)


@pytest.mark.slow
def test_descending_the_loss_lowers_the_evaluated_error():
    random = torch.Generator().manual_seed(0)
    truth = torch.randn(256, 3, dtype=torch.float64, generator=random)
    labels = torch.rand(256, 3, dtype=torch.float64, generator=random) < truth.sigmoid()
    logits = (4 * truth + 1).requires_grad_()
    before = canonical_calibration_error(labels, logits.sigmoid()).mean
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        smooth_canonical_error(logits, labels, label_model="threshold").backward()
        optimiser.step()
    assert canonical_calibration_error(labels, logits.sigmoid()).mean < 0.3 * before


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_focal_loss_by_the_definition(gamma):
    logits, labels = batch(10, 2)
    p = expit(logits.numpy())
    chance = np.where(labels.numpy(), p, 1 - p)
    expected = np.mean(-((1 - chance) ** gamma) * np.log(chance))
    assert float(focal_loss(logits, labels.double(), gamma)) == pytest.approx(expected, rel=1e-12, abs=0)
    assert torch.autograd.gradcheck(lambda x: focal_loss(x, labels.double(), gamma), (logits.requires_grad_(),))
    certain = torch.tensor([[200.0, -200.0]], requires_grad=True)
    focal_loss(certain, torch.tensor([[1.0, 0.0]]), gamma).backward()
    assert bool(torch.isfinite(certain.grad).all())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smooth_canonical_error(torch.zeros(4, 2), torch.zeros(4, 3)), "labels must have the shape of logits"),
        (lambda: smooth_canonical_error(torch.zeros(1, 2), torch.zeros(1, 2)), "^smooth_canonical_error: logits must"),
        (
            lambda: CMLCCLoss(1.0)(torch.zeros(1, 2), torch.zeros(1, 2)),
            "^CMLCCLoss: logits must .*got 1: leave the last",
        ),
        (lambda: CMLCCLoss(float("inf")), "beta must be at least 0 and finite, got inf"),
        (lambda: CMLCCLoss(0.0)(torch.zeros(4, 2), torch.full((4, 2), 5)), "CMLCCLoss: labels must be 0 or 1, got 5"),
        (lambda: focal_loss(torch.zeros(1, 1), torch.zeros(1, 1), -1), "gamma must be at least 0"),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture
def tied() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.random(60), np.round(rng.random(60), 1), np.full(60, 0.25)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_rule_counts_what_it_says(tied, dtype):
    f = tied.astype(dtype)
    with pytest.raises(ValueError, match="rule must be one of printed, empirical, midrank, got 'max'"):
        pseudo_observations(torch.from_numpy(f), "max")
    n = len(f)
    brute = {
        "printed": [[np.sum(f[i, j] <= f[:, j]) for j in range(3)] for i in range(n)],
        "empirical": [[np.sum(f[:, j] <= f[i, j]) for j in range(3)] for i in range(n)],
        "midrank": rankdata(f, method="average", axis=0),
    }
    for rule, ranks in brute.items():
        u, share = pseudo_observations(torch.from_numpy(f), rule)
        np.testing.assert_array_equal(u.numpy(), np.asarray(ranks) / (n + 1))
        assert share.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("rule", margins.CDF_RULES)
def test_the_path_for_other_devices_gives_the_same_numbers(tied, rule):
    for column in tied.T:
        expected = np.empty(len(column))
        share = margins._column_numpy(np.ascontiguousarray(column), rule, expected)
        u, torch_share = margins._column_torch(torch.from_numpy(column.copy()), rule)
        np.testing.assert_array_equal(u.numpy(), expected)
        assert float(torch_share) == share


def test_smooth_cdf_is_the_kernel_sum():
    x = np.random.default_rng(0).normal(size=(20, 2)) * [1.0, 30.0]
    h = 0.7 * x.std(0) * 20**-0.2
    expected = norm.cdf((x[:, None] - x[None]) / h).mean(1)
    np.testing.assert_allclose(smooth_cdf(torch.from_numpy(x), 0.7).numpy(), expected, rtol=1e-13, atol=0)


def test_smooth_cdf_has_the_right_gradient_where_the_step_function_has_none():
    x = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda v: smooth_cdf(v, 1.0), (x,))
    (gradient,) = torch.autograd.grad((smooth_cdf(x, 1.0) * weights).sum(), x)
    assert float(gradient.abs().min()) > 1e-6
    moved, still = (pseudo_observations(x.detach() + step)[0] for step in (1e-7 * weights, 0.0))
    assert torch.equal(moved, still)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smooth_cdf_of_a_constant_column_is_one_half_with_a_finite_gradient(dtype):
    x = torch.cat([torch.full((9, 1), 7.0), torch.arange(9.0)[:, None]], 1).to(dtype).requires_grad_()
    u = smooth_cdf(x, 1.0)
    assert u[:, 0].tolist() == [0.5] * 9
    (u * torch.arange(18.0).reshape(9, 2)).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def one_step_apart(n: int, dtype: type) -> np.ndarray:
    """Numbers whose upper bits are all the same, in falling order."""
    values = np.full(n, 0.7, dtype=dtype)
    for i in range(1, n):
        values[i] = np.nextafter(values[i - 1], dtype(0))
    return values


SORTED = {
    "uniform": np.random.default_rng(0).random(5000),
    "float32 ties": np.random.default_rng(2).integers(0, 9, 1000).astype(np.float32) / 8,
    "zeros and ones": np.array([1.0, 0.0, -0.0, 1.0, 0.5, 0.0, 5e-324, 2.2e-308, 1 - 1e-16, 0.0]),
    "many one step apart": one_step_apart(300, np.float64),
    "many one step apart, float32": one_step_apart(300, np.float32),
    "saturated": 1 - np.random.default_rng(4).random(2000) * 1e-13,
    "constant": np.full(40, 0.3),
}


@pytest.mark.parametrize("name", SORTED)
def test_sorting_value_and_place_as_one_number_is_exact(name):
    values = SORTED[name]
    order, ordered = _sorted(values)
    assert np.array_equal(ordered, np.sort(values))
    assert np.array_equal(values[order], ordered)
    assert np.array_equal(np.sort(order), np.arange(len(values)))
