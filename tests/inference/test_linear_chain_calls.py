"""Linear layers that follow each other as one call of a frozen network."""

import pytest
import torch
from image_networks import trained
from torch import nn

import bitgnn
from bitgnn.inference.fusions import joint
from bitgnn.nn import BinaryConv2d, BinaryLinear


def _network(step=None):
    torch.manual_seed(0)
    return trained(
        nn.Sequential(
            BinaryConv2d(3, 33, 3, bias=False, input_step=step), nn.BatchNorm2d(33),
            nn.Flatten(), BinaryLinear(33 * 9, 65, bias=False, scale=False), nn.BatchNorm1d(65),
            nn.Hardtanh(), BinaryLinear(65, 40), nn.BatchNorm1d(40), nn.Hardtanh(),
            BinaryLinear(40, 7), nn.BatchNorm1d(7),
        )
    )  # fmt: skip


@pytest.fixture
def clusters(monkeypatch):
    """As on a GPU that has the launch: elsewhere its reference runs."""
    monkeypatch.setattr(joint, "_has_clusters", lambda device: True)


def _calls(frozen, x):
    return [len(group) for group in frozen.groups(x)]


@pytest.mark.parametrize("images", [0, 1, 5, 130])
def test_layers_are_one_call_with_the_same_bits(clusters, images):
    model, x = _network(), torch.randn(images, 3, 5, 5)
    frozen = bitgnn.freeze(model)
    assert _calls(frozen, x)[-1] == 3
    values = {0: x}
    for step in frozen.program.steps:
        frozen._run_alone(step, values, ())
    assert torch.equal(frozen(x), values[frozen.program.output])


def test_a_write_to_the_weights_is_noticed(clusters):
    model, x = _network(), torch.randn(4, 3, 5, 5)
    frozen = bitgnn.freeze(model)
    before = frozen(x)
    name = frozen.program.steps[-1].tensors["bias"]
    frozen.get_buffer(name).add_(1.0)
    torch.testing.assert_close(frozen(x), before + 1)
    twin = bitgnn.freeze(_network())
    twin.load_state_dict(frozen.state_dict())
    assert torch.equal(twin(x), frozen(x))


@pytest.mark.cuda
@pytest.mark.parametrize("images", [0, 1, 128, 129])
def test_the_launch_gives_the_same_scores(images):
    frozen = bitgnn.freeze(_network(2.0**-6))
    x = torch.randn(images, 3, 5, 5)
    expected = frozen(x)
    frozen = frozen.to("cuda")
    assert torch.equal(frozen(x.to("cuda")).cpu(), expected)
    assert torch.equal(frozen.executor()(x.to("cuda")).cpu(), expected)
    if torch.cuda.get_device_capability() == (9, 0):
        assert _calls(frozen, x.to("cuda"))[-1] == 3
