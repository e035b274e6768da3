"""What people hand over in the place of our own kinds is named in the message."""

from __future__ import annotations

import resource

import pytest
import torch

import calirare
from calirare.metrics import ece
from calirare_lab.published.pickles import unpickle
from tests.helpers.tasks import rare_task


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("function", ["train", "fit"])
def test_a_graph_of_pytorch_geometric_is_named(function):
    with pytest.raises(TypeError, match=f"{function}: graph must be a calirare.Graph, got Data: take Graph.from_data"):
        getattr(calirare, function)(rare_task().to_data())


@pytest.mark.parametrize("function", ["jackknife", "fit_of"])
def test_what_is_no_graph_of_either_kind_is_named(function):
    with pytest.raises(TypeError, match=f"{function}: data must be a Data of PyTorch Geometric or a calirare.Graph"):
        getattr(calirare, function)(Module(), [1, 2])


def test_a_few_bytes_of_a_pickle_do_not_take_gigabytes(tmp_path):
    """A long table of kept things is none of ours; a long text is refused, each without the memory it claims."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert unpickle(b"\x80\x02Nr" + (2**28).to_bytes(4, "little") + b".", tmp_path) is None
    with pytest.raises(calirare.InputError, match="the file is damaged or cut off"):
        unpickle(b"\x80\x04\x8e" + (2**32).to_bytes(8, "little") + b".", tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kB"


def test_what_stands_in_the_place_of_a_graph_is_named():
    from calirare.sklearn import GraphClassifier

    data = rare_task().to_data()
    outcome = calirare.train(rare_task(), model="trees", folds=2)
    for work in (lambda: outcome.predict(data), lambda: GraphClassifier(data).fit([0, 1], [0, 1])):
        with pytest.raises(TypeError, match=r"graph must be a calirare\.Graph, got Data: take Graph"):
            work()


def test_bare_logits_are_told_what_to_be():
    with pytest.raises(
        TypeError, match=r"given must be calirare.models.Given, got Tensor: take models.Given\(logits\)"
    ):
        calirare.train(rare_task(), given=torch.zeros(260, 2))


class Alone(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("module", [Module().double(), Alone()], ids=["double", "one input"])
def test_a_module_that_cannot_be_called_is_told(module):
    with pytest.raises(ValueError, match=r"could not be called with float32 \[260, \d+\] and int64 .*inputs=\.\.\."):
        calirare.jackknife(module, rare_task())


def test_probabilities_may_be_rounded_up():
    above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    p = torch.stack([torch.tensor(0.25), above])
    assert ece([0, 1], p) == ece([0, 1], p.clamp(max=1))
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got values from 0.25 to 1.00001"):
        ece([0, 1], torch.tensor([0.25, 1.00001]))
