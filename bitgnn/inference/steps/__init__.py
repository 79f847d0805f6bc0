"""The kinds of steps frozen programs are made of."""

from bitgnn.inference.program import steps_of
from bitgnn.inference.steps import aggregates, bits, floats, heads, products

__all__ = ["KINDS", "aggregates", "bits", "floats", "heads", "products"]

KINDS = steps_of((*products.KINDS, *aggregates.KINDS, *bits.KINDS, *floats.KINDS, *heads.KINDS))
"""Every kind by name; a checkpoint can name no other."""
