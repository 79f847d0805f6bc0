"""The kinds of steps frozen programs are made of."""

from bitgnn.inference.program import StepKind
from bitgnn.inference.steps import bits, floats, images, products

__all__ = ["KINDS"]

_FILES = (products, bits, floats, images)
KINDS: dict[str, StepKind] = {kind.name: kind for file in _FILES for kind in file.KINDS}
"""Every kind by name; a checkpoint can name no other."""
