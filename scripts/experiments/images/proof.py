"""Freezes a trained network and compares it with the trained one on every test image."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.data import ImageSet
from experiments.images.loop import image_batches

__all__ = ["FrozenCheck", "check_frozen", "class_scores"]


@dataclass(frozen=True)
class FrozenCheck:
    """What a frozen network said beside the trained one.

    Attributes:
        device: where both ran.
        images: number of images.
        equal: on how many the classes are equal.
        largest_difference: of a class score.
        test_accuracy: share of right answers of the frozen network.
    """

    device: str
    images: int
    equal: int
    largest_difference: float
    test_accuracy: float


def check_frozen(model: nn.Module, part: ImageSet, device: torch.device | str) -> FrozenCheck:
    """Compare frozen and emulated classes of all images on a device.

    Args:
        model: a trained binary network; left as it is.
        part: the images.
        device: where both run.
    """
    emulated = copy.deepcopy(model).eval().to(device)
    frozen = bitgnn.freeze(emulated)
    there = part.to(device)
    expected, found = class_scores(emulated, there), class_scores(frozen, there)
    classes = found.argmax(1)
    return FrozenCheck(
        torch.device(device).type,
        len(part),
        int((classes == expected.argmax(1)).sum()),
        float((found - expected).abs().max()) if len(part) else 0.0,
        int((classes == there.labels).sum()) / max(len(part), 1),
    )


@torch.no_grad()
def class_scores(model: nn.Module, part: ImageSet) -> Tensor:
    """``[N, classes]`` scores of all images."""
    return torch.cat([model(x).float() for x, _ in image_batches(part)])
