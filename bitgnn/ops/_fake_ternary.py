"""Fake kernels of the ternary operators; see ``_fake``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import words_for


def _packed(x: Tensor, *shape: int) -> tuple[Tensor, Tensor]:
    """Words and counts of rows whose last dimensions are ``shape`` in words."""
    leading = x.shape[:-1]
    words = x.new_empty((*leading, *shape), dtype=torch.int32)
    return words, x.new_empty(leading, dtype=torch.int32)


def pack_ternary(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Words and counts of rows."""
    return _packed(x, 2, words_for(x.size(-1)))


def pack_bool(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Words of one plane and counts of rows."""
    return _packed(x, words_for(x.size(-1)))


def pack_ternary_columns(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Words and counts of columns."""
    return _packed(x.transpose(-1, -2), 2, words_for(x.size(-2)))


def bmm_tbf(
    x: Tensor,
    counts: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Values of each row and output."""
    return x.new_empty((x.size(0), w.size(0)), dtype=dtype or torch.float32)


def bmm_tbb(x: Tensor, counts: Tensor, w: Tensor, *_: Any, **__: Any) -> Tensor:
    """Words of each row."""
    return x.new_empty((x.size(0), words_for(w.size(0))), dtype=torch.int32)


def linear_ternary(
    x: Tensor,
    w: Tensor,
    size: int,
    scale: Tensor,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
    boolean: bool = False,
) -> Tensor:
    """Values of each row and output."""
    return x.new_empty((x.size(0), w.size(0)), dtype=dtype or torch.float32)


def matmul_ttf(
    q: Tensor,
    q_counts: Tensor,
    k: Tensor,
    k_counts: Tensor,
    size: int,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Values of each pair of rows."""
    return q.new_empty((*q.shape[:-2], k.size(-3)), dtype=dtype or torch.float32)


def matmul_btf(
    a: Tensor,
    a_counts: Tensor,
    v: Tensor,
    v_counts: Tensor,
    size: int,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Values of each pair of rows."""
    return a.new_empty((*a.shape[:-1], v.size(-3)), dtype=dtype or torch.float32)


def attention_ternary(
    q: Tensor,
    q_counts: Tensor,
    k: Tensor,
    k_counts: Tensor,
    v: Tensor,
    v_counts: Tensor,
    size: int,
    length: int,
    scale: float,
    bool_scale: float,
    out_scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Values of each query; the heads of a query lie behind each other."""
    shape = (q.size(0), q.size(2), q.size(1), size)
    return q.new_empty(shape, dtype=dtype or torch.float32).transpose(1, 2)


TERNARY_FAKES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        attention_ternary,
        bmm_tbb,
        bmm_tbf,
        linear_ternary,
        matmul_btf,
        matmul_ttf,
        pack_bool,
        pack_ternary,
        pack_ternary_columns,
    )
}
"""Fake kernel of each operator, by name."""
