"""Binary networks of ``bitgnn.models`` for the benchmark: random weights, fitting norms, frozen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.networks.cases import WrongResultError
from bench.networks.peers import SEED, images_of
from bench.networks.structures import Structure
from bitgnn import models
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel

CALIBRATION_IMAGES = 16
TOLERANCE = 1e-3
SAME_IMAGES = 0.75
"""Part of the images whose scores must be those of the trained network within the tolerance: a
float sum next to its threshold may turn one hidden bit, which reaches the scores of its image."""


def binary_network(structure: Structure) -> nn.Module:
    """The network of ``bitgnn.models`` with this structure, on the CPU, for training."""
    torch.manual_seed(SEED)
    network: nn.Module = getattr(models, structure.key)(classes=structure.classes)
    return network


def weights_of(network: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the weights of all convolutions and linear layers, in their order."""
    layers = (nn.Conv2d, nn.Linear)
    return [tuple(m.weight.shape) for m in network.modules() if isinstance(m, layers)]


@torch.no_grad()
def frozen_network(structure: Structure, device: str) -> tuple[nn.Module, FrozenModel]:
    """The network with the statistics of its inputs in its batch norms, and frozen."""
    network = binary_network(structure).to(device)
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0  # the statistics of the one batch that follows
    network.train()
    network(images_of(structure, CALIBRATION_IMAGES, device, torch.float32))
    network.eval()
    return network, freeze(network)


def our_call(
    structure: Structure, network: nn.Module, frozen: Callable[[Tensor], Tensor], x: Tensor
) -> Callable[[], Any]:
    """The frozen network on these images."""
    scores = frozen(x)
    if list(scores.shape) != [x.size(0), structure.classes]:
        raise WrongResultError
    few = x[:CALIBRATION_IMAGES].float()
    expected = network(few)
    found = scores[: few.size(0)]
    same = torch.isclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE).all(1)
    if same.float().mean() < SAME_IMAGES:
        raise WrongResultError
    return partial(frozen, x)
