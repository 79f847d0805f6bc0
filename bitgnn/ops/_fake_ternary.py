"""Fake kernels of the ternary operators; see ``_fake``."""

import torch
from torch import Tensor

from bitgnn.ops._fake_calls import fakes_like
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.pack import words_for


def _packed(x: Tensor, *shape: int) -> tuple[Tensor, Tensor]:
    """Words and counts of rows whose last dimensions are ``shape`` in words."""
    leading = x.shape[:-1]
    words = x.new_empty((*leading, *shape), dtype=torch.int32)
    return words, x.new_empty(leading, dtype=torch.int32)


def _pack_ternary(x: Tensor) -> tuple[Tensor, Tensor]:
    """Words and counts of rows."""
    return _packed(x, 2, words_for(x.size(-1)))


def _pack_bool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Words of one plane and counts of rows."""
    return _packed(x, words_for(x.size(-1)))


def _pack_ternary_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    """Words and counts of columns."""
    return _pack_ternary(x.transpose(-1, -2))


def _product(x: Tensor, w: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Values of each row and output."""
    return x.new_empty((x.size(0), w.size(0)), dtype=dtype or torch.float32)


def _product_bits(x: Tensor, w: Tensor) -> Tensor:
    """Words of each row."""
    return x.new_empty((x.size(0), words_for(w.size(0))), dtype=torch.int32)


def _matmul_ttf(q: Tensor, k: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Values of each pair of rows."""
    return q.new_empty((*q.shape[:-2], k.size(-3)), dtype=dtype or torch.float32)


def _matmul_btf(a: Tensor, v: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Values of each pair of rows."""
    return a.new_empty((*a.shape[:-1], v.size(-3)), dtype=dtype or torch.float32)


def _attention(q: Tensor, size: int, dtype: torch.dtype | None) -> Tensor:
    """Values of each query; the heads of a query lie behind each other."""
    shape = (q.size(0), q.size(2), q.size(1), size)
    return q.new_empty(shape, dtype=dtype or torch.float32).transpose(1, 2)


def _attention_floats(q: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The same of floats."""
    return _attention(q, q.size(3), dtype)


TERNARY_FAKES = fakes_like(
    OPERATORS,
    (
        (["pack_ternary"], _pack_ternary),
        (["pack_bool"], _pack_bool),
        (["pack_ternary_columns"], _pack_ternary_columns),
        (["bmm_tbf", "linear_ternary"], _product),
        (["bmm_tbb"], _product_bits),
        (["matmul_ttf"], _matmul_ttf),
        (["matmul_btf"], _matmul_btf),
        (["attention_ternary"], _attention),
        (["attention_ternary_floats"], _attention_floats),
    ),
)
"""Fake kernel of each operator, by name."""
