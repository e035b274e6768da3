"""Own logits of many classes from a subspace: the whole space gives the dense formula, a part of it comes close."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, logit_differences
from calirare.leave_one_out import OwnLogits, krylov
from calirare.leave_one_out import own_logits as own_logits_module
from calirare.leave_one_out.krylov import KrylovOwn, positive, still_to_come
from calirare.leave_one_out.own_logits import own_form
from calirare.models import GcnFit, GcnTraining, fit
from tests.calirare.leave_one_out.cases import (
    SOME,
    agreement,
    linearised_network,
    retrained_logits,
    trained,
    words_graph,
)
from tests.helpers.problems import NETWORKS
from tests.helpers.tolerance import assert_within, sum_bound

MANY = [name for name, spec in NETWORKS.items() if spec.n_classes > 2]


def by_dense(tape: GcnLinearisation, damping: float) -> Tensor:
    return OwnLogits(tape, tape.kernel)(damping)[:, 1:] - tape.differences.double()


def distance(found: Tensor, want: Tensor) -> float:
    return float((found - want).norm() / want.norm())


@pytest.fixture(scope="module")
def many() -> GcnFit:
    """100 labels of 4 classes, 300 numbers; 1,625 parameters."""
    return fit(words_graph(4), torch.arange(100), GcnTraining(hidden=8, epochs=60, weight_decay=1e-3))


@pytest.mark.parametrize("name", list(NETWORKS))
def test_blocks_of_the_kernel_are_its_diagonal(name: str) -> None:
    tape = linearised_network(name).tape
    m, k = tape.n_nodes, tape.n_classes - 1
    rows = tape.jacobian
    want = (rows @ rows.T).view(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    size = (rows.abs() @ rows.abs().T).view(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    bound = sum_bound(want, 20 * rows.shape[1], size, out=torch.float64)
    assert_within(tape.kernel_products().blocks, want, bound, "blocks")


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("damping", [1e-3, 0.05, 3.0])
@pytest.mark.parametrize("block", [3, 128])
def test_the_whole_space_gives_the_dense_formula(name: str, damping: float, block: int, monkeypatch) -> None:
    """To rounding, block by block or at once; where J has fewer columns than rows, too."""
    monkeypatch.setattr(krylov, "BLOCK", block)
    tape = linearised_network(name).tape
    own = KrylovOwn(tape, tolerance=1e-300)
    want = by_dense(tape, damping)
    scale = float(tape.kernel.norm() / damping) ** 2 * want.abs().max().expand_as(want)
    assert_within(own(damping), want, sum_bound(want, 50 * want.numel(), scale, out=torch.float64), "own changes")
    assert own.basis.shape[1] == want.numel()
    assert own.error == 0


@pytest.mark.slow
def test_a_part_of_the_space_errs_as_it_says(many: GcnFit, monkeypatch) -> None:
    monkeypatch.setattr(krylov, "BLOCK", 16)
    tape = many.as_dtype(words_graph(4), torch.float64).linearisation
    want = by_dense(tape, many.weight_decay)
    sizes = []
    for tolerance in (0.3, 0.03, 0.003):
        own = KrylovOwn(tape, tolerance)
        found = own(many.weight_decay)
        assert own.error <= tolerance
        assert distance(found, want) < 2 * tolerance
        sizes.append(own.basis.shape[1])
    assert sizes == sorted(set(sizes))
    assert sizes[-1] < tape.n_nodes * 3


def test_what_is_still_to_come() -> None:
    assert still_to_come(0.1, 0.05) == 0.05
    assert still_to_come(0.1, 0.08) == pytest.approx(0.32)
    assert still_to_come(0.1, 0.1) == float("inf")
    assert still_to_come(0.0, 0.0) == 0


def test_what_lies_outside_of_the_space_counts(many: GcnFit, monkeypatch) -> None:
    """Left out, or taken without its curvature, the answer is several times further off."""
    monkeypatch.setattr(krylov, "BLOCK", 16)
    tape = many.linearisation
    want = by_dense(tape, 0.01)
    own = KrylovOwn(tape, 0.1)
    error, right = distance(own(0.01), want), own.own_blocks
    assert error < 0.1
    own.own_blocks = own.outer.clone()
    assert distance(own(0.01), want) > 2 * error
    own.own_blocks = right
    monkeypatch.setattr(krylov, "positive", torch.zeros_like)
    assert distance(own(0.01), want) > 5 * error


def test_a_smaller_damping_grows_the_space_and_a_larger_one_does_not(many: GcnFit, monkeypatch) -> None:
    monkeypatch.setattr(krylov, "BLOCK", 16)
    tape = many.linearisation
    own = KrylovOwn(tape, 0.02)
    for damping, grows in ((0.1, True), (1.0, False), (1e-3, True)):
        before = own.basis.shape[1]
        assert distance(own(damping), by_dense(tape, damping)) < 0.03
        assert (own.basis.shape[1] > before) == grows


def test_labels_the_network_is_sure_of_stay_finite(many: GcnFit) -> None:
    tape = many.linearisation
    sure = dataclasses.replace(tape, logits=40 * tape.logits)
    assert bool(torch.isfinite(KrylovOwn(sure)(1e-3)).all())


@pytest.mark.slow
def test_own_changes_follow_retraining() -> None:
    """At a minimum, from the subspace as from the dense system."""
    fitted, _ = trained(3)
    found = KrylovOwn(fitted.linearisation)(fitted.weight_decay)
    some = SOME[:4].tolist()
    start = fitted.linearisation.differences
    truth = torch.stack([logit_differences(retrained_logits(fitted, i))[i] - start[i] for i in some])
    correlation, error = agreement(found[some], truth)
    assert correlation > 0.99
    assert error < 0.15
    assert agreement(-found[some], truth)[0] < 0


def test_many_labels_of_two_classes_take_the_subspace(monkeypatch) -> None:
    few = fit(words_graph(2), torch.arange(150), GcnTraining(hidden=8, epochs=60, weight_decay=1e-3))
    tape = few.linearisation
    want = OwnLogits(tape)
    assert want.form == "dual"
    monkeypatch.setattr(own_logits_module, "DENSE_OF_TWO", 100)
    monkeypatch.setattr(krylov, "BLOCK", 16)
    own = OwnLogits(tape)
    assert own.form == "krylov"
    assert own_form(tape, tolerance=0) == "dual"
    for damping in (few.weight_decay, 0.1):
        found, exact = (each(damping)[:, 1:] - tape.differences.double() for each in (own, want))
        assert distance(found, exact) < 0.02


def test_many_classes_with_large_systems_take_the_subspace(many: GcnFit, monkeypatch) -> None:
    tape = many.linearisation
    assert own_form(tape) == "dual"
    monkeypatch.setattr(own_logits_module, "DENSE", 100)
    own = OwnLogits(tape)
    assert own.form == "krylov"
    assert own_form(tape, tolerance=0) == "dual"
    monkeypatch.setattr(own_logits_module, "DENSE", 1)
    assert own_form(linearised_network("two layers").tape) != "krylov"  # two classes
    assert own_form(linearised_network("three classes").tape) == "krylov"
    want = OwnLogits(tape, tape.kernel)(many.weight_decay)
    assert float((own(many.weight_decay) - want).abs().max()) < 0.05
    with pytest.raises(ValueError, match="damping must be positive"):
        own(0.0)


def test_negative_parts_of_blocks_are_cut_off() -> None:
    blocks = torch.tensor([[[1.0, 0.0], [0.0, -1e-9]], [[2.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    found = positive(blocks)
    assert bool((torch.linalg.eigvalsh(found) >= -1e-15).all())
    assert float((found - blocks).abs().max()) < 2e-9


def test_a_space_that_may_grow_no_more_says_how_far_off_it_is(many: GcnFit, monkeypatch) -> None:
    monkeypatch.setattr(krylov, "BLOCK", 8)
    monkeypatch.setattr(krylov, "MOST", 24)
    monkeypatch.setattr(krylov, "WORK", 0)
    monkeypatch.setattr(own_logits_module, "own_form", lambda *_: "krylov")
    tape = many.linearisation
    own = own_logits_module.OwnLogits(tape, tolerance=1e-9)
    own(many.weight_decay)
    assert own.krylov.basis.shape[1] == 24
    assert own.krylov.error > 1e-9
    assert f"in 24 of {own.krylov.basis.shape[0]:,} directions" in own.rough_note(many.weight_decay)
    roomy = own_logits_module.OwnLogits(tape, tolerance=1e6)
    roomy(many.weight_decay)
    assert roomy.rough_note(many.weight_decay) == ""


@pytest.mark.parametrize("name", MANY)
def test_units_a_few_at_a_time_give_the_same_products(name: str, monkeypatch) -> None:
    tape = linearised_network(name).tape
    products = tape.kernel_products()
    columns = torch.randn(*tape.logits[:, 1:].shape, 5, dtype=tape.logits.dtype)
    whole = products(columns)
    for few in (1, 3 * columns.shape[0] * 5 * columns.element_size()):  # one unit, and three
        monkeypatch.setattr("calirare.curvature.gcn.BLOCK_BYTES", few)
        assert torch.allclose(products(columns), whole, rtol=0, atol=1e-4 * float(whole.abs().max()))
    monkeypatch.setattr("calirare.curvature.gcn.MOST_BYTES", 0)  # then by derivatives, a column at a time
    assert torch.allclose(tape.kernel_products()(columns), whole, rtol=0, atol=1e-4 * float(whole.abs().max()))
