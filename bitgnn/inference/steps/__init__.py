"""The kinds of steps frozen programs are made of."""

from bitgnn.inference.step import KINDS
from bitgnn.inference.steps import bits, floats, images, int8, products

__all__ = ["KINDS", "bits", "floats", "images", "int8", "products"]
