"""Warnings name the line of the user's code, however deep in the package they arise."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bitgnn


def _binarize():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    bitgnn.binarize(net, bitgnn.ImageConfig(activation="keep"))


def _freeze():
    layers = nn.Linear(4, 64), nn.Linear(64, 64), nn.Softmax(1), nn.Linear(64, 64)
    bitgnn.freeze(bitgnn.binarize(nn.Sequential(*layers, nn.Linear(64, 4))).eval())


def _distill():
    data = TensorDataset(torch.randn(16, 4), torch.arange(16) % 2)
    bitgnn.distill(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), data, epochs=1)


@pytest.mark.parametrize("call", [_binarize, _freeze, _distill])
def test_the_line_is_the_users(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    ours = [w for w in found if str(w.message).startswith(("binarize:", "freeze:", "distill:"))]
    assert ours
    assert {Path(warning.filename) for warning in ours} == {Path(__file__)}
