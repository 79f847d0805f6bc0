"""Operators on bits: packing, BMM, BSpMM, ADD and CONCAT, and their reference."""

from bitgnn.ops import add, bmm, bspmm, concat, pack, reference
from bitgnn.ops._register import register
from bitgnn.ops.buffers import release_buffers

register()

__all__ = ["add", "bmm", "bspmm", "concat", "pack", "reference", "release_buffers"]
