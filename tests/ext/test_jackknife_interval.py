"""jackknife_interval: exactly NumPy's "linear" quantiles, and which models they come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.autograd import gradcheck, gradgradcheck

from calirare_ext import jackknife_interval, reference
from calirare_ext._backend import _C
from tests.helpers.compare import exactly, interval_matches, numpy_interval
from tests.helpers.problems import SAMPLES, far_apart, normal
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

# The paper's coverage .9, the ends, the middle, and ranks that are whole numbers for some m.
QUANTILES = [(0.05, 0.95), (0.0, 1.0), (0.5, 0.5), (0.25, 0.75), (0.1, 0.8999999999999999), (1.0, 0.0), (1 / 3, 2 / 3)]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("q_lower", "q_upper"), QUANTILES)
def test_exactly_numpy(name, q_lower, q_upper, dtype, device):
    scores, residuals = (part.to(dtype).to(device) for part in SAMPLES[name]())
    result = jackknife_interval(scores, residuals, q_lower, q_upper)
    assert (result.lower.dtype, result.lower.device) == (dtype, scores.device)
    assert (result.lower_places.dtype, result.lower_places.shape) == (torch.int64, (scores.shape[0], 2))
    interval_matches(result, scores, residuals, q_lower, q_upper)


@pytest.mark.parametrize("m", [*range(1, 10), 31, 32, 33, 64, 127, 128, 129, 1023, 1024, 1025])
def test_every_number_of_models_around_the_block_limits(m, dtype, device):
    scores, residuals = normal(5, m, seed=m).to(dtype).to(device), normal(m, seed=m + 1).abs().to(dtype).to(device)
    interval_matches(jackknife_interval(scores, residuals, 0.05, 0.95), scores, residuals, 0.05, 0.95)


EIGHTHS = st.integers(1, 20).map(lambda k: k / 8)
FINITE = st.floats(-1e6, 1e6, width=32, allow_subnormal=False).filter(lambda x: x != 0)


@pytest.mark.slow
@pytest.mark.parametrize("elements", [EIGHTHS, FINITE], ids=["with ties", "any"])
@given(data=st.data())
def test_exactly_numpy_on_random_samples(elements, data):
    shape = data.draw(st.tuples(st.integers(0, 4), st.integers(1, 9)))
    scores = torch.from_numpy(data.draw(hnp.arrays(np.float64, shape, elements=elements)))
    residuals = torch.from_numpy(data.draw(hnp.arrays(np.float64, shape[1:], elements=EIGHTHS)))
    q = data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    # A sample of -0 and one of +0 are equal to NumPy and ordered here: keep the places comparable.
    scores = torch.where((scores.abs()[:, :, None] == residuals.abs()).any(2), scores + 100, scores)
    interval_matches(jackknife_interval(scores, residuals, *q), scores, residuals, *q)
    interval_matches(jackknife_interval(scores.float(), residuals.float(), *q), scores.float(), residuals.float(), *q)


def test_negative_zero_comes_before_zero(device):
    scores = torch.tensor([[0.0, -0.0, 0.0, -0.0]], device=device)
    result = jackknife_interval(scores, torch.tensor([0.0, 0.0, 0.0, 0.0], device=device), 0.0, 1.0)
    assert result.lower_places.tolist() == [[1, 3]]


@pytest.mark.parametrize("value", [float("nan"), -float("nan")])
@pytest.mark.parametrize("place", [0, 3, 139])
def test_a_nan_makes_both_ends_nan_and_spares_other_rows(value, place, dtype, device):
    scores, residuals = (part.to(dtype).to(device) for part in SAMPLES["random"]())
    spoilt = scores.clone()
    spoilt[4, place] = value
    result, clean = jackknife_interval(spoilt, residuals, 0.05, 0.95), jackknife_interval(scores, residuals, 0.05, 0.95)
    for end, clean_end in zip(result[:2], clean[:2], strict=True):
        assert end.isnan().nonzero()[:, 0].tolist() == [4]
        kept = torch.arange(end.numel(), device=device) != 4
        assert_identical(end[kept], clean_end[kept], "other rows")
    assert bool(((result.lower_places >= 0) & (result.lower_places < scores.shape[1])).all())


INF = float("inf")


@pytest.mark.parametrize(
    ("samples", "q", "expected"),
    [
        ([-INF, 0.0, 1.0], 0.4, -INF),
        ([-INF, 0.0, 1.0], 0.5, 0.0),
        ([0.0, 1.0, INF], 0.5, 1.0),
        ([0.0, 1.0, INF], 1.0, INF),
        ([-INF, -INF, 0.0], 0.25, -INF),
        ([-INF, INF], 0.5, float("nan")),
        ([-1e308, 1e308], 0.25, -5e307),
    ],
)
def test_infinite_samples_are_numbers(samples, q, expected, device):
    """NumPy meets inf - inf in some of these and gives NaN; the limit is what is meant."""
    scores = torch.tensor([samples], dtype=torch.float64, device=device)
    zeros = torch.zeros(len(samples), dtype=torch.float64, device=device)
    result = jackknife_interval(scores, zeros, q, q)
    want = torch.tensor([expected], dtype=torch.float64)
    assert_identical(result.lower.cpu(), want, "lower")
    assert_identical(result.upper.cpu(), want, "upper")
    with np.errstate(invalid="ignore", over="ignore"):
        numpy = float(np.quantile(np.array(samples), q))
    assert numpy == expected or np.isnan(numpy) or np.isinf(numpy)


@pytest.mark.parametrize("name", SAMPLES)
def test_reference_agrees_within_a_rounding(name, dtype):
    scores, residuals = (part.to(dtype) for part in SAMPLES[name]())
    expected = numpy_interval(scores.double(), residuals.double(), 0.05, 0.95)
    magnitude = (exactly(scores).abs() + exactly(residuals)).amax(1) if scores.numel() else expected[0]
    for end, want in zip(reference.jackknife_interval(scores, residuals, 0.05, 0.95), expected, strict=True):
        assert_within(end, want, sum_bound(want, 4, magnitude, out=dtype), "reference")


def test_rows_further_apart_than_2_to_the_31_elements(device):
    scores = far_apart(2050, 3, 2**20, torch.float32, device)
    scores[-1] = torch.tensor([3.0, 1.0, 2.0], device=device)
    result = jackknife_interval(scores, torch.zeros(3, device=device), 0.0, 1.0)
    assert (result.lower[-1].item(), result.upper[-1].item()) == (1.0, 3.0)
    assert (result.lower[0].item(), result.upper[0].item()) == (0.0, 0.0)


class TestDerivatives:
    """The ends are linear in the order statistics they come from, as long as no two samples change places."""

    @pytest.fixture
    def samples(self, device):
        return normal(4, 7, seed=1).to(device).requires_grad_(), normal(7, seed=2).abs().to(device).requires_grad_()

    @pytest.mark.slow
    @pytest.mark.parametrize(("q_lower", "q_upper"), [(0.05, 0.95), (0.0, 1.0), (0.31, 0.77)])
    def test_finite_differences(self, samples, q_lower, q_upper):
        def ends(scores, residuals):
            return jackknife_interval(scores, residuals, q_lower, q_upper)[:2]

        assert gradcheck(ends, samples, check_forward_ad=True)
        assert gradgradcheck(lambda s, r: [end.sin() for end in ends(s, r)], samples, check_fwd_over_rev=True)

    def test_the_value_is_the_same_with_and_without_gradients(self, dtype, device):
        scores, residuals = (part.to(dtype).to(device) for part in SAMPLES["odd"]())
        with_grad = jackknife_interval(scores.requires_grad_(), residuals.requires_grad_(), 0.05, 0.95)
        plain = jackknife_interval(scores.detach(), residuals.detach(), 0.05, 0.95)
        assert with_grad.lower.requires_grad
        assert not plain.lower.requires_grad
        for end, expected in zip(with_grad, plain, strict=True):
            assert_identical(end.detach(), expected, "end")

    def test_torch_func(self, samples):
        scores, residuals = (part.detach() for part in samples)

        def width(scores):
            result = jackknife_interval(scores, residuals, 0.2, 0.9)
            return (result.upper - result.lower).sum()

        leaf = scores.clone().requires_grad_()
        width(leaf).backward()
        assert_identical(torch.func.grad(width)(scores), leaf.grad, "grad")
        value, moved = torch.func.jvp(width, (scores,), (torch.ones_like(scores),))
        nothing, both_ends = torch.zeros((), dtype=torch.float64), torch.tensor(2.0 * scores.shape[0]).double()
        bound = sum_bound(nothing, 4 * scores.shape[0], both_ends, out=torch.float64)
        assert_within(moved, nothing, bound, "moving all scores alike")
        assert value > 0


S, R = torch.ones(2, 3), torch.ones(3)


@pytest.mark.parametrize(
    ("scores", "residuals", "q", "error", "message"),
    [
        (S.half(), R, (0, 1), TypeError, "scores must be float32 or float64, got float16"),
        (S[:, :0], R[:0], (0, 1), ValueError, r"scores must have at least one column, got shape \[2, 0\]"),
        (S, R[:2], (0, 1), ValueError, r"residuals must have shape \[3\], got \[2\]"),
        (S, R, (-0.1, 1), ValueError, r"q_lower must be in \[0.0, 1.0\], got -0.1"),
        (S, R, (0, 1.1), ValueError, r"q_upper must be in \[0.0, 1.0\], got 1.1"),
        (S, R, (float("nan"), 1), ValueError, r"q_lower must be in \[0.0, 1.0\], got nan"),
    ],
)
def test_refuses(scores, residuals, q, error, message):
    with pytest.raises(error, match=f"jackknife_interval: {message}"):
        jackknife_interval(scores, residuals, *q)


def test_no_row_is_no_interval():
    """A table of numpy without rows has strides that contiguous() leaves as they are."""
    ends = jackknife_interval(torch.from_numpy(np.zeros((0, 3), dtype=np.float32)), R, 0.1, 0.9)
    assert (ends.lower.shape, ends.upper_places.shape) == ((0,), (0, 2))


def test_the_binding_guards_memory():
    for args, message in (
        ((S, R[:2], 0.0, 1.0), "residuals must have one entry per column"),
        ((S.T.contiguous().T, R, 0.0, 1.0), "scores must be a matrix with contiguous rows"),
        ((S, R, 0.0, 2.0), r"quantiles must be in \[0, 1\]"),
        ((S[:, :0], R[:0], 0.0, 1.0), "scores must have between 1 and 2"),
    ):
        with pytest.raises(ValueError, match=f"jackknife_interval: {message}"):
            _C.jackknife_interval(*args)
