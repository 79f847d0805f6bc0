"""Comparisons of scaled products as comparisons of the products themselves: the same bits."""

import pytest
import torch

from bitgnn.convert.network.registers import comparison, folded_scale
from bitgnn.convert.network.values import Value

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("size", [1, 2, 33, 1000])
@pytest.mark.parametrize("flips", [False, True])
def test_every_dot_product_has_the_same_bit(size, flips):
    generator = torch.Generator().manual_seed(size)
    scales = [0.0, -0.0, 1e-30, -1e-30, 0.3, -0.7, 1.0, -1.0, 1e30, NAN]
    limits = [0.0, -0.0, 1e-38, -2.5, 2.5, 0.3, -0.3, size * 0.7, -size * 1.0, 1e31, INF, -INF, NAN]
    scale, threshold = (t.flatten() for t in torch.meshgrid(
        torch.tensor(scales), torch.tensor(limits), indexing="ij"
    ))  # fmt: skip
    drawn = torch.randint(-size, size + 1, (200,), generator=generator).float()
    own = torch.randn(200, generator=generator)
    scale = torch.cat([scale, own])
    threshold = torch.cat([threshold, own * drawn])  # equal to a product that there may be
    flipped = torch.rand(scale.shape, generator=generator) < 0.5 if flips else None
    dot = torch.arange(-size, size + 1).unsqueeze(1)
    expected = scale * dot.float() >= threshold
    if flipped is not None:
        expected = expected ^ flipped
    least, turned = folded_scale(size, scale, threshold, flipped)
    found = dot.float() >= least
    assert torch.equal(found if turned is None else found ^ turned, expected)


def test_a_positive_scale_leaves_the_sign():
    assert folded_scale(40, torch.tensor([0.5, 2.0]), None, None) == (None, None)
    least, turned = folded_scale(40, torch.tensor([0.0, 0.5]), None, None)
    assert turned is None
    assert least.tolist() == [-40.0, 0.0]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_bias_moves_the_threshold_unless_it_comes_behind_an_addend(parts):
    scale, bias = torch.tensor([0.5, -0.5, 2.0]), torch.tensor([1.5, 1.5, 0.0])
    inputs = tuple(Value("input", "x", size=8) for _ in range(parts))
    product = Value("product", "last", inputs, 3, tensors={"scale": scale, "bias": bias})
    threshold, flipped = comparison(product, torch.device("cpu"), of_sums=True)
    dot = torch.arange(-8.0, 9.0).unsqueeze(1)
    expected = scale * dot + (bias if parts == 1 else 0) >= 0
    assert torch.equal((dot >= threshold) ^ flipped, expected)
    assert comparison(product, torch.device("cpu"), of_sums=False) == (None, None)
