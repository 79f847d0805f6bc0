"""The benchmark of binary networks: like networks are compared, wrong results get no time."""

import pytest
import torch

from bench.cases import WrongResultError
from bench.networks.networks import (
    NETWORKS,
    frozen_network,
    images_of,
    our_call,
    plain_network,
)


def weights_of(network):
    layers = (torch.nn.Conv2d, torch.nn.Linear)
    return [m.weight.shape for m in network.modules() if isinstance(m, layers)]


@pytest.mark.parametrize("key", list(NETWORKS))
def test_plain_networks_have_the_weights_of_binary_ones_and_no_norms(key):
    plain = plain_network(NETWORKS[key], "meta", torch.float32)
    with torch.device("meta"):
        ours = NETWORKS[key].make()
    assert weights_of(ours) == weights_of(plain)
    assert not any("norm" in type(module).__name__.lower() for module in plain.modules())


@torch.no_grad()
def test_norms_are_folded_into_residual_blocks():
    network = NETWORKS["resnet14"]
    plain = plain_network(network, "cpu", torch.float32)
    model = network.make("fp32").eval()
    layers = (torch.nn.Conv2d, torch.nn.Linear)
    for one, other in zip(
        *([m for m in n.modules() if isinstance(m, layers)] for n in (model, plain)), strict=True
    ):
        one.weight.copy_(other.weight)
        if one.bias is not None:
            one.bias.copy_(other.bias)
    x = images_of(network, 2, "cpu", torch.float32)
    torch.testing.assert_close(plain(x), model(x), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_wrong_frozen_network_is_refused():
    network = NETWORKS["mlp"]
    model, frozen = frozen_network(network, "cpu")
    x = images_of(network, 4, "cpu")
    assert our_call(model, frozen, x)().shape == (4, 10)
    with pytest.raises(WrongResultError):
        our_call(model, lambda x: -frozen(x), x)
    with pytest.raises(WrongResultError):
        our_call(model, lambda x: frozen(x)[:, 1:], x)
