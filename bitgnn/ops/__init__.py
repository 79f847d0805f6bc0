"""Operators on bits: packing, BMM, BSpMM, ADD and CONCAT, and their reference."""

from bitgnn.ops import reference
from bitgnn.ops._register import register

register()

__all__ = ["reference"]
