from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from calirare._util.errors import InputError
from calirare.datasets import synthetic_rare
from calirare.graph import propagation
from calirare.leave_one_out import leave_one_out
from calirare.models import ModuleFit
from calirare_ext import ReceptiveField
from calirare_lab.leave_one_out import Retrain, Steps, retrain
from calirare_lab.leave_one_out.retraining import near_labels
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, retrained_logits, trained


def test_retraining_is_independent_of_jobs_and_takes_up_where_it_ended(tmp_path: Path) -> None:
    fit, graph = trained(2, 1)
    everywhere = propagation(graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    chosen = torch.tensor([0, 7, 12])
    found = retrain(fit, everywhere, chosen, folder=tmp_path)
    for i in chosen.tolist():
        after = retrained_logits(fit, i, 1e-9)[i]
        before = fit.linearisation.logits[i]
        assert float(found.own[i]) == pytest.approx(float(after[1] - after[0] - before[1] + before[0]), rel=1e-4)
    assert bool(found.own[1].isnan().all())
    assert found.samples()[0].tolist() == [0, 7, 12]
    (tmp_path / "without_7.npz").unlink()
    stamps = {name: (tmp_path / name).stat().st_mtime_ns for name in ("without_0.npz", "without_12.npz")}
    told: list[int] = []
    again = retrain(fit, everywhere, chosen, folder=tmp_path, progress=told.append)
    assert told == [2, 3]  # two were there
    assert torch.equal(again.change, found.change)
    assert all((tmp_path / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items())
    other, other_graph = trained(4, 1)
    field = propagation(other_graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    with pytest.raises(InputError, match="another network"):
        retrain(other, field, chosen, folder=tmp_path)


def test_retraining_knows_another_weight_decay_and_another_graph(tmp_path: Path) -> None:
    fit, graph = trained(2, 1)
    where, chosen = torch.tensor([1, 100]), torch.tensor([3])
    field = propagation(graph).to(torch.float64).field(where, 1)
    retrain(fit, field, chosen, folder=tmp_path)
    moved = ReceptiveField(field.rows, 2 * field.inputs, field.blocks)  # type: ignore[operator]
    other_labelled = ReceptiveField(fit.field.rows, 2 * fit.field.inputs, ())  # type: ignore[operator]
    for other, there in (
        (dataclasses.replace(fit, weight_decay=2 * fit.weight_decay), field),
        (fit, moved),
        (dataclasses.replace(fit, field=other_labelled), field),
    ):
        with pytest.raises(InputError, match="another network, graph or weight decay"):
            retrain(other, there, chosen, folder=tmp_path)
    with pytest.raises(InputError, match="another network"):
        retrain(fit, field, chosen, folder=tmp_path, max_steps=5)
    (tmp_path / "without_3.npz").write_bytes(b"PK no longer")
    with pytest.raises(InputError, match=r"without_3\.npz must be a retraining, but is damaged .*: delete it"):
        retrain(fit, field, chosen, folder=tmp_path)


def test_retraining_says_where_it_did_not_converge_and_that_it_has_no_damping() -> None:
    fit, graph = trained(2, 1)
    field = propagation(graph).to(torch.float64).field(torch.tensor([1]), 1)
    done = retrain(fit, field, torch.tensor([0, 7])).diagnostics
    stopped = retrain(fit, field, torch.tensor([0, 7]), tolerance=1e-14, max_steps=1).diagnostics
    assert done is not None
    assert stopped is not None
    assert (done.unconverged, stopped.unconverged) == (0.0, 1.0)
    settings = Retrain(n_models=1)
    facts = leave_one_out(fit, graph, dataclasses.replace(settings, damping=1.0), nodes=torch.tensor([1])).diagnostics
    assert facts is not None
    assert facts.damping == fit.weight_decay
    assert "no damping" in facts.damping_reason
    with pytest.raises(ValueError, match="weight decay must be positive"):
        retrain(dataclasses.replace(fit, weight_decay=0.0), field, torch.tensor([0]))


def test_training_on_is_not_taken_for_the_effect_of_a_label() -> None:
    # Label 3 weighs nothing: leaving it out changes nothing, however far the network is from its minimum.
    fit, graph = trained(2, 1)
    model = copy.deepcopy(fit.model)  # others read the original
    with torch.no_grad():
        model.weights[0].add_(0.3)
    weights = fit.sample_weights.index_fill(0, torch.tensor([3]), 0.0)
    stopped = dataclasses.replace(fit, model=model, sample_weights=weights)
    field = propagation(graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    found = retrain(stopped, field, torch.tensor([3, 7]), max_steps=5)
    assert float(found.change[:, :, 0].abs().max()) == 0.0
    assert float(found.own[3].abs().max()) == 0.0
    assert float(found.own[7].abs().min()) > 1e-3


@pytest.mark.parametrize(
    ("chosen", "message"), [([-1], "be in"), ([10_000], "be in"), ([1, 1], "be distinct"), ([], "name at least one")]
)
def test_labels_to_leave_out_must_be_there(chosen: list[int], message: str) -> None:
    fit, graph = trained()
    places = torch.tensor(chosen, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"leave_one_out: chosen must {message}"):
        leave_one_out(fit, graph, Steps(steps=2, chosen=places))


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "n_layers"), [(2, 2), (3, 2)])
def test_steps_come_nearer_to_retraining(n_classes: int, n_layers: int) -> None:
    fit, graph = trained(n_classes, n_layers)
    truth = retrained(n_classes, n_layers)
    plain = leave_one_out(fit, graph)
    found = leave_one_out(fit, graph, Steps(steps=30, chosen=SOME))
    own, start = (agreement(x.own[SOME], truth.own[SOME]) for x in (found, plain))
    away, start_away = (agreement(x, truth.change) for x in (found.change, plain.change[:, :, SOME]))
    assert own[0] > 0.999
    assert away[0] > 0.98
    assert own[1] < min(0.05, max(start[1], 1e-3))
    assert away[1] < min(0.2, max(start_away[1], 1e-3))
    assert found.diagnostics is not None
    assert (found.diagnostics.method, found.diagnostics.form) == ("steps", "30 steps")
    assert torch.allclose(found.leverage, plain.leverage)


@pytest.mark.slow
def test_steps_of_some_labels_are_some_columns() -> None:
    fit, graph = trained()
    nodes, chosen = torch.arange(0, 150, 9), torch.tensor([31, 4])
    every = leave_one_out(fit, graph, Steps(steps=2), nodes=nodes)
    told: list[int] = []
    some = leave_one_out(fit, graph, Steps(steps=2, chosen=chosen), nodes=nodes, progress=told.append)
    assert told[-1] == 2
    assert torch.allclose(some.change, every.change[:, :, chosen], rtol=1e-6, atol=1e-9)
    assert torch.allclose(some.own[chosen], every.own[chosen], rtol=1e-6, atol=1e-9)
    assert int(torch.isfinite(some.own).sum()) == 2
    places, models = some.samples()
    assert (places.tolist(), models.tolist()) == ([4, 31], [1, 0])
    drawn = leave_one_out(fit, graph, Steps(steps=2, n_models=3), nodes=nodes)
    assert drawn.change.shape[2] == 3


class Sums(nn.Module):
    """Two layers that add up neighbours; `everywhere` adds the mean of all nodes."""

    def __init__(self, d: int, everywhere: bool) -> None:
        super().__init__()
        self.first, self.second, self.everywhere = nn.Linear(d, 4), nn.Linear(4, 2), everywhere

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = layer(torch.relu(x).index_add(0, edge_index[1], torch.relu(x)[edge_index[0]]))
        return x + x.mean(0) if self.everywhere else x


@pytest.mark.parametrize("everywhere", [False, True])
def test_steps_read_what_the_labels_need(everywhere: bool) -> None:
    graph = synthetic_rare(400, seed=0, share=0.2, n_features=3, mean_degree=2)
    a, nodes = graph.adjacency, torch.arange(8)
    torch.manual_seed(0)
    inputs = (graph.x.double(), torch.stack([a.indices.long(), a.rows()]))
    model = Sums(3, everywhere).double().eval()
    whole = ModuleFit(model, inputs, nodes, graph.y[nodes], torch.ones(8, dtype=torch.float64), 5e-3)
    near = near_labels(whole)
    assert near.model is model
    assert (len(near.inputs[0]) == 400) == everywhere
    for one, other in zip(near.penalised_loss(), whole.penalised_loss(), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))
