"""The kinds of steps frozen programs are made of."""

from bitgnn.inference.program import steps_of
from bitgnn.inference.steps import (
    aggregates,
    bits,
    convolutions,
    floats,
    heads,
    image_floats,
    images,
    linear,
    patches,
    products,
    ternary,
)

__all__ = [
    "KINDS",
    "aggregates",
    "bits",
    "convolutions",
    "floats",
    "heads",
    "image_floats",
    "images",
    "linear",
    "patches",
    "products",
    "ternary",
]

_FILES = (
    products,
    aggregates,
    bits,
    floats,
    heads,
    linear,
    convolutions,
    images,
    image_floats,
    patches,
    ternary,
)
KINDS = steps_of(kind for file in _FILES for kind in file.KINDS)
"""Every kind by name; a checkpoint can name no other."""
