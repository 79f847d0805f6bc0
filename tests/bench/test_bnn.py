"""The benchmark of binary networks: weights, wrong results, kernels."""

import json

import pytest
import torch

from bench.cases import WrongResultError
from bench.kernels import Kernel, kernels_of_calls
from bench.networks.networks import (
    NETWORKS,
    frozen_network,
    images_of,
    our_call,
    plain_network,
)
from bench_bnn import main as bnn_main


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


def test_kernels_are_medians_over_calls():
    begins = [0.0, 10.0, 100.0, 111.0, 200.0, 212.0]
    kernels = [
        Kernel(
            "void (anonymous namespace)::a<1>(int)" if place % 2 == 0 else "b",
            begin,
            begin + 5.0 + place,
        )
        for place, begin in enumerate(begins)
    ]
    found = kernels_of_calls(kernels[::-1], 3)
    assert [kernel["name"] for kernel in found] == ["a<1>", "b"]
    assert [kernel["seconds"] for kernel in found] == pytest.approx([7e-6, 8e-6])
    assert [kernel["step"] for kernel in found] == pytest.approx([7e-6, 12e-6])
    assert kernels_of_calls([], 3) == []
    with pytest.raises(ValueError, match="6 kernels are not those of 4 like calls"):
        kernels_of_calls(kernels, 4)


@pytest.mark.cuda
def test_a_run_on_a_gpu(tmp_path):
    output = tmp_path / "bnn.json"
    options = ["--quick", "--repeats", "7", "--device", "cuda", "--output", str(output)]
    assert bnn_main(options) == 0
    record = json.loads(output.read_text())
    groups = {result["group"] for result in record["results"]}
    assert {"network, latency", "linear, bits in and out"} <= groups
    for result in record["results"]:
        assert [c["failure"] for c in result["contenders"]] == [None] * len(result["contenders"])
