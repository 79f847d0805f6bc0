"""Convolutions of frozen networks and the pools behind them as one call."""

import pytest
import torch
from image_networks import trained
from torch import nn

import bitgnn
from bitgnn.nn import BinaryConv2d, BinaryLinear


def _network(pool, behind):
    """Two convolutions, a pool in front of the second's norm or behind it; gains of both signs."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(64)
    last = [norm, nn.Hardtanh(), pool] if behind else [pool, norm, nn.Hardtanh()]
    return trained(
        nn.Sequential(
            BinaryConv2d(3, 33, 3, padding=1, bias=False), nn.BatchNorm2d(33), nn.Hardtanh(),
            BinaryConv2d(33, 64, 3, padding=1, bias=False), *last,
            nn.Flatten(),
            BinaryLinear(_features(pool), 5, bias=False), nn.BatchNorm1d(5),
        )
    )  # fmt: skip


def _features(pool):
    return pool(torch.zeros(1, 64, 9, 8)).numel()


def _calls(frozen, x):
    return [[step.kind for step in group] for group in frozen.groups(x)]


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("size", [2, (3, 2), (9, 8)])
def test_are_one_call_with_the_same_bits(size, behind, device):
    model, x = _network(nn.MaxPool2d(size), behind).to(device), torch.randn(4, 3, 9, 8)
    frozen, x = bitgnn.freeze(model), x.to(device)
    assert ["conv_bbb", "pool_bits"] in _calls(frozen, x)
    values = {0: x}
    for step in frozen.program.steps:
        frozen._run_alone(step, values, ())
    assert torch.equal(frozen(x), values[frozen.program.output])
    twin = bitgnn.freeze(_network(nn.MaxPool2d(size), behind))
    twin.load_state_dict(frozen.state_dict())
    assert torch.equal(twin.to(device)(x), frozen(x))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(3, 2), nn.MaxPool2d(2, 2, 1)])
def test_overlapping_or_padded_windows_are_calls_of_their_own(pool):
    frozen, x = bitgnn.freeze(_network(pool, True)), torch.randn(4, 3, 9, 8)
    calls = _calls(frozen, x)
    assert ["pool_bits"] in calls
    assert ["conv_bbb", "pool_bits"] not in calls
