"""The gain of a last layer's products: how fast optimisers move it."""

import math

import pytest
import torch
from torch.nn import functional

from bitgnn.nn import GCNConv, GraphConv, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])


@pytest.fixture(params=[GCNConv, SAGEConv], ids=["GCNConv", "SAGEConv"])
def layer(request):
    torch.manual_seed(0)
    return request.param(8, 3, **({"root_weight": False} if request.param is SAGEConv else {}))


def _loss(layer, x):
    return functional.cross_entropy(layer(x, EDGES), torch.tensor([0, 1, 2, 0, 1, 2]))


def test_its_level_gets_a_tenth_of_the_logarithms_gradient(layer):
    out = layer(torch.randn(6, 8), EDGES)
    out.retain_grad()
    functional.cross_entropy(out, torch.tensor([0, 1, 2, 0, 1, 2])).backward()
    slope = (out.grad * out.detach()).sum()  # of the loss by the gain's logarithm; no bias yet
    assert float(layer.gain_level.grad) == pytest.approx(float(slope) / 10, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "moved"),
    [(torch.optim.Adam, lambda g: 10 * 0.01), (torch.optim.SGD, lambda g: 0.1 * g)],
)
def test_adam_moves_its_logarithm_ten_times_as_fast(layer, kind, moved):
    optimizer = kind(layer.parameters(), lr=0.01)
    _loss(layer, torch.randn(6, 8)).backward()
    gradient = abs(float(layer.gain_level.grad))
    before = float(layer.output_gain.log())
    optimizer.step()
    assert abs(float(layer.output_gain.log()) - before) == pytest.approx(
        moved(gradient), rel=1e-3, abs=2e-7
    )


@pytest.mark.parametrize(
    ("kind", "options", "share"),
    [(SAGEConv, {}, 0.3), (SAGEConv, {"aggr": "sum"}, 1.0), (GraphConv, {}, 1.0)],
)
def test_nodes_own_products_start_smaller_beside_a_mean(kind, options, share):
    layer = kind(8, 3, **options)
    for _ in range(2):
        assert float(layer.root_gain.detach()) == pytest.approx(share * math.exp(-2))
        assert layer.root_norm.weight.detach().eq(share).all()
        with torch.no_grad():
            layer.root_gain_level += 1.0
            layer.root_norm.weight.zero_()
        layer.reset_parameters()
