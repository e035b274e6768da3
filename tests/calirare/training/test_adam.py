import pytest
import torch

from calirare.models.convergence import Adam
from tests.helpers.tolerance import assert_within

STEPS, RATE, DECAY = 50, 0.05, 0.1


@pytest.mark.parametrize("fused", [False, True])
def test_takes_torchs_steps(fused):
    torch.manual_seed(0)
    start = [torch.randn(7, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    ours = [x.clone() for x in start]
    theirs = [x.clone().requires_grad_() for x in start]
    mine = Adam(ours, learning_rate=RATE, weight_decay=DECAY, fused=fused)
    wanted = torch.optim.Adam(theirs, lr=RATE, weight_decay=DECAY)
    for k in range(STEPS):
        gradients = [torch.sin(x * (k + 1)) for x in theirs]
        for x, gradient in zip(theirs, gradients, strict=True):
            x.grad = gradient.detach()
        wanted.step()
        mine.step([torch.sin(x * (k + 1)) for x in ours])
    for x, y, before in zip(ours, [p.detach() for p in theirs], start, strict=True):
        assert float((y - before).abs().min()) > 0  # every parameter moved
        # Each step rounds a few numbers of the size of the parameters; sin(k x) passes errors on k-fold.
        assert_within(x, y, torch.finfo(torch.float64).eps * STEPS**3 * (1 + before.abs()))
