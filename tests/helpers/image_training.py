"""A tiny network, images of plain classes and a recipe, for tests of training on images."""

import torch
from torch import nn

from bitgnn.data import ImageData, ImageSet
from bitgnn.nn import BinaryLinear
from experiments.images.recipe import ImageRecipe

SIZE, CLASSES = 6, 3


def tiny_network(binary=True):
    linear = BinaryLinear if binary else nn.Linear
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIZE * SIZE, 32),
        nn.BatchNorm1d(32),
        linear(32, CLASSES),
        nn.BatchNorm1d(CLASSES),
    )


def make_image_data(count=96, device="cpu"):
    """Images whose class is which third of the rows is bright."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    images = torch.randint(0, 120, (count, 1, SIZE, SIZE), generator=generator)
    for number, label in enumerate(labels.tolist()):
        images[number, :, 2 * label : 2 * label + 2] += 90
    half = count // 2
    parts = [
        ImageSet(images[part].to(torch.uint8), labels[part])
        for part in (slice(0, half), slice(half, None))
    ]
    return ImageData("thirds", *parts, ("top", "middle", "bottom")).to(device)


def recipe(**changes):
    return ImageRecipe(**{"epochs": 6, "batch_size": 16, "learning_rate": 0.02, **changes})
