"""The kinds of steps frozen programs are made of."""

from bitgnn.inference.step import KINDS
from bitgnn.inference.steps import attention, bits, floats, images, int8, products

__all__ = ["KINDS", "attention", "bits", "floats", "images", "int8", "products"]
