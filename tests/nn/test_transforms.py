"""Transforms of torch.func refuse binary layers in one sentence; functional_call alone works."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn import functional

from bitgnn.nn import BinaryConv2d, BinaryLinear, GCNConv, GraphConv, Linear, SAGEConv

N, K, CLASSES = 60, 12, 4
LAYERS = (GCNConv, SAGEConv, GraphConv)


class Net(nn.Module):
    """Two layers."""

    def __init__(self, layer, **options):
        super().__init__()
        self.first = layer(K, 16, **options)
        self.last = layer(16, CLASSES, **options)

    def forward(self, x, edges):
        return self.last(self.first(x, edges).relu(), edges)


@pytest.fixture(params=LAYERS)
def net(request):
    torch.manual_seed(0)
    return Net(request.param, precision="bin")


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, N, (2, 200), generator=generator)
    y = torch.randint(0, CLASSES, (N,), generator=generator)
    return torch.randn(N, K, generator=generator), edges, y


def step(net, x, edges, y):
    net.zero_grad()
    functional.cross_entropy(net(x, edges), y).backward()
    return [p.grad for p in net.parameters()]


TRANSFORMS = {
    "grad": lambda call, p, x: grad(lambda q: call(q, x).sum())(p),
    "vjp": lambda call, p, x: vjp(lambda given: call(p, given), x),
    "jvp": lambda call, p, x: jvp(lambda given: call(p, given), (x,), (x,)),
    "vmap": lambda call, p, x: vmap(lambda given: call(p, given))(torch.stack([x, x])),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_transform_is_refused_and_changes_nothing(transform, mode, net, graph):
    x, edges, y = graph
    untouched = copy.deepcopy(net)
    net.train(mode == "train")
    kind = type(net.first).__name__
    with pytest.raises(RuntimeError, match=rf"{kind}: a binary layer must not be called .* torch"):
        TRANSFORMS[transform](
            lambda p, given: functional_call(net, p, (given, edges)),
            {name: p.detach() for name, p in net.named_parameters()},
            x,
        )
    net.train()
    for _ in range(3):
        for own, expected in zip(step(net, x, edges, y), step(untouched, x, edges, y), strict=True):
            assert torch.equal(own, expected)
    assert net.first.role == "first"
    assert net.last.role == "last"


@pytest.mark.parametrize("transform", [k for k in TRANSFORMS if k != "grad"])
@pytest.mark.parametrize("kind", ["BinaryLinear", "BinaryConv2d", "Linear"])
def test_layers_without_a_graph_are_refused_too(kind, transform):
    layer, shape = {
        "BinaryLinear": (BinaryLinear(8, 4), (5, 8)),
        "BinaryConv2d": (BinaryConv2d(3, 4, 3), (2, 3, 8, 8)),
        "Linear": (Linear(8, 4, precision="full"), (5, 8)),
    }[kind]
    with pytest.raises(RuntimeError, match=rf"{kind}: a binary layer must not be called .* torch"):
        TRANSFORMS[transform](lambda p, given: layer(given), {}, torch.randn(shape))


def test_float_layers_go_through(graph):
    x, edges, y = graph
    net = Net(GCNConv, precision="fp32")
    parameters = dict(net.named_parameters())
    found = grad(lambda p: functional.cross_entropy(functional_call(net, p, (x, edges)), y))(
        parameters
    )
    for own, expected in zip(found.values(), step(net, x, edges, y), strict=True):
        assert torch.allclose(own, expected, atol=1e-6)
