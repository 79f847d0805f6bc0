"""Transforms of torch.func refuse binary layers in one sentence; functional_call alone works."""

import copy

import pytest
import torch
from small_models import EDGES, X, Y, two
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn import functional

from bitgnn.nn import BinaryConv2d, BinaryLinear, GCNConv, GraphConv, Linear, SAGEConv


@pytest.fixture(params=[GCNConv, SAGEConv, GraphConv])
def net(request):
    return two(request.param)


def step(net):
    net.zero_grad()
    functional.cross_entropy(net(X, EDGES), Y).backward()
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
def test_a_transform_is_refused_and_changes_nothing(transform, mode, net):
    untouched = copy.deepcopy(net)
    net.train(mode == "train")
    kind = type(net.first).__name__
    with pytest.raises(RuntimeError, match=rf"{kind}: a binary layer must not be called .* torch"):
        TRANSFORMS[transform](
            lambda p, given: functional_call(net, p, (given, EDGES)),
            {name: p.detach() for name, p in net.named_parameters()},
            X,
        )
    net.train()
    for _ in range(3):
        for own, expected in zip(step(net), step(untouched), strict=True):
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


def test_float_layers_go_through():
    net = two(GCNConv, precision="fp32")
    parameters = dict(net.named_parameters())
    found = grad(lambda p: functional.cross_entropy(functional_call(net, p, (X, EDGES)), Y))(
        parameters
    )
    for own, expected in zip(found.values(), step(net), strict=True):
        assert torch.allclose(own, expected, atol=1e-6)
