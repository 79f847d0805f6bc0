"""NodeStandardize against its formula and at the sizes where a deviation does not exist."""

import pytest
import torch

from bitgnn.nn import NodeStandardize


@pytest.mark.parametrize("size", [2, 31, 33])
def test_formula(size):
    x = 3 * torch.randn(5, size) + 1
    mean, std = x.mean(1, keepdim=True), x.var(1, unbiased=True, keepdim=True).sqrt()
    assert torch.allclose(NodeStandardize()(x), (x - mean) / (std + 1e-4), atol=1e-6)


def test_the_mean_is_that_of_float64():
    x = 1e4 + torch.randn(64, 1000)
    mean = x.double().mean(1, keepdim=True).float()
    assert torch.equal(NodeStandardize()(x), (x - mean) / (x.std(1, keepdim=True) + 1e-4))


def test_constant_rows_and_single_features_become_zero():
    assert NodeStandardize()(torch.full((3, 4), 2.5)).eq(0).all()
    assert NodeStandardize()(torch.randn(3, 1)).eq(0).all()
    assert NodeStandardize()(torch.randn(0, 4)).shape == (0, 4)
    assert list(NodeStandardize().parameters()) == []
