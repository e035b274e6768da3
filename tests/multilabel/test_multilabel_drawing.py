"""Initial weights come from a generator of their own."""

from __future__ import annotations

import torch

from calirare_multilabel.drawing import DrawnFrom


def test_weights_are_drawn_as_torchs_own_generator_would_and_leave_it_alone():
    torch.manual_seed(3)
    want = [torch.nn.Linear(4, 5).weight, torch.nn.Embedding(3, 2).weight, torch.empty(6).uniform_()]
    state = torch.get_rng_state()
    with DrawnFrom(torch.Generator().manual_seed(3)):
        got = [torch.nn.Linear(4, 5).weight, torch.nn.Embedding(3, 2).weight, torch.empty(6).uniform_()]
        assert torch.nn.Linear(2, 2, device="meta").weight.is_meta, "elsewhere nothing is drawn from it"
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
