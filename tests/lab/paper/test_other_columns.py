"""Other columns of FaceBook's words: the scaling is PyG's, the graph and its split stay."""

from __future__ import annotations

import torch

from calirare_lab.paper import other_columns


def test_the_scaling_is_pygs() -> None:
    from torch_geometric.data import Data
    from torch_geometric.transforms import NormalizeFeatures

    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    small = x / 100  # rows whose sums stay below 1 are not divided
    for features in (x, small):
        theirs = NormalizeFeatures()(Data(x=features.clone())).x
        assert torch.allclose(other_columns.normalised(features), theirs, atol=1e-7)
