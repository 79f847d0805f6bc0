r"""Products of ternary rows: linear layers, batched products and attention of BWTA networks.

Activations are :class:`~bitgnn.TernaryTensor` (values in {-1, 0, +1}, two bits each) or
:class:`~bitgnn.bits.BooleanTensor` ({0, 1}), weights :class:`~bitgnn.BitTensor` (+-1). With a scale
:math:`s` a float :math:`a` becomes

.. math:: ternary(a) = \lfloor a / s \ge 1/2 \rfloor - \lfloor a / s < -1/2 \rfloor, \qquad
          bool(a) = \lfloor a / s \ge 1/2 \rfloor,

compared in float32 with :math:`s / 2`. Sums of products are exact integers; what follows is float32
arithmetic, rounded once to the result's dtype. Every function raises TypeError (type, dtype) or
ValueError (shape, device, value) before any kernel runs. Operators are for inference: results carry
no gradient. Scales that are tensors on a GPU are not checked to be positive, which would wait for
them.

Source: "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware Co-design", 2026
(quantisers and the three products).
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor, BooleanTensor, TernaryTensor
from bitgnn.bits.ternary import QUANTISED, check_positive, scale_tensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call

ACTIVATIONS = ("ternary", "bool")


def pack_ternary(x: Tensor, scale: Tensor | float) -> TernaryTensor:
    """Ternary rows of floats ``[..., K]``; see :meth:`bitgnn.TernaryTensor.from_float`."""
    return TernaryTensor.from_float(x, scale)


def pack_bool(x: Tensor, scale: Tensor | float) -> BooleanTensor:
    """Boolean rows of floats ``[..., K]``; see :meth:`bitgnn.bits.BooleanTensor.from_float`."""
    return BooleanTensor.from_float(x, scale)


def pack_mask(mask: Tensor) -> BitTensor:
    """Bits of a bool mask ``[B, L]``, for masks that serve several calls.

    :func:`bitgnn.ops.ternary.attention` takes them.
    """
    name = "ternary.pack_mask"
    if not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        raise TypeError(f"{name}: mask must be a bool tensor, got {name_type(mask)}")
    if mask.dim() != 2:
        raise ValueError(f"{name}: mask must have shape [B, L], got {list(mask.shape)}")
    words = torch.ops.bitgnn.pack(mask.to(torch.float32) - 0.5)
    return BitTensor._trusted(words, mask.size(1))


def linear(
    x: Tensor,
    w: BitTensor,
    scale: Tensor | float,
    *,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str = "ternary",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Linear layer of floats, which are quantised to ternary values.

    ``((scale * w_scale[o]) * dot) + bias[o]`` with ``dot`` the product of ``ternary(x, scale)`` (or
    ``bool(x, scale)``) and the row ``o`` of ``w``.

    Args:
        x: float32, float16 or bfloat16 ``[..., K]``.
        w: ``[M, K]``.
        scale: of the activations, a positive number or float32 tensor of no dimensions.
        w_scale: float32 ``[M]`` or one number as a tensor; that of ``w``, if any, where left out.
        bias: float32 ``[M]``.
        activation: "ternary" or "bool".
        dtype: float32, float16, bfloat16, that of ``x`` where left out; or int32 for ``dot``,
            without scales and bias.

    Returns:
        ``[..., M]``.
    """
    name = "ternary.linear"
    _check_floats(name, "x", x)
    _arguments.bit_matrix(name, "w", w)
    if x.dim() < 1 or x.size(-1) != w.size:
        raise ValueError(f"{name}: x must have shape [..., {w.size}] like w, got {list(x.shape)}")
    _arguments.same_device(name, "w", w.words.device, x.device)
    if activation not in ACTIVATIONS:
        raise ValueError(f"{name}: activation must be one of {ACTIVATIONS}, got {activation!r}")
    dtype = x.dtype if dtype is None else dtype
    _check_dtype(name, dtype)
    outputs = w.words.size(0)
    if w_scale is not None:
        is_number = isinstance(w_scale, Tensor) and w_scale.dim() == 0
        each = w_scale.expand(outputs) if is_number else w_scale
        _arguments.vector(name, "w_scale", each, outputs, x.device)
    if dtype == torch.int32 and (w_scale is not None or bias is not None):
        raise ValueError(
            f"{name}: w_scale and bias must be None with dtype int32, which returns plain sums"
        )
    if dtype != torch.int32 and w_scale is None:
        w_scale = w.scale
    factor = _linear_scale(name, scale, x.device)
    rows = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), w.size)
    given = (rows, w.words, w.size, factor, w_scale, bias, dtype, activation == "bool")
    try:
        result: Tensor = call(name, "linear_ternary", *given)
    except RuntimeError:
        scale_tensor(name, "scale", scale, x.device)  # says more
        raise
    return result if x.dim() == 2 else result.view(*x.shape[:-1], outputs)


def matmul(
    x: TernaryTensor | BooleanTensor,
    y: TernaryTensor,
    *,
    scale: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Products of every row of ``x`` with every row of ``y``, of all matrices of a batch.

    Queries and keys are two ternary operands; attention and values a boolean one and the values
    packed along the keys (:meth:`TernaryTensor.from_columns
    <bitgnn.TernaryTensor.from_columns>`).

    Args:
        x: ``[..., N, K]``.
        y: ``[..., M, K]``, leading dimensions as those of ``x``.
        scale: multiply by the operands' scales, as far as they have some.
        dtype: float32, float16 or bfloat16, or int32 for the bare sums.

    Returns:
        ``[..., N, M]``.
    """
    name = "ternary.matmul"
    if not isinstance(x, TernaryTensor | BooleanTensor):
        raise TypeError(f"{name}: x must be a TernaryTensor or BooleanTensor, got {name_type(x)}")
    if not isinstance(y, TernaryTensor):
        raise TypeError(f"{name}: y must be a TernaryTensor, got {name_type(y)}")
    for operand, rows in (("x", x), ("y", y)):
        if len(rows.shape) < 2:
            raise ValueError(
                f"{name}: {operand} must have 2 or more dimensions, got {list(rows.shape)}"
            )
    if not (x.size == y.size and x.shape[:-2] == y.shape[:-2]):
        raise ValueError(
            f"{name}: y must have shape {[*x.shape[:-2], 'M', x.size]} like x, got {list(y.shape)}"
        )
    _arguments.same_device(name, "y", y.device, x.device)
    _check_dtype(name, dtype or torch.float32)
    # Both scales go to the kernel: their product would be a launch of its own.
    factors = (x.scale, y.scale) if scale and dtype != torch.int32 else (None, None)
    operands = (x.words, x.counts, y.words, y.counts)
    given = (*operands, x.size, factors[0], dtype, factors[1])
    if isinstance(x, TernaryTensor):
        return torch.ops.bitgnn.matmul_ttf(*given)
    return torch.ops.bitgnn.matmul_btf(*given)


def attention(
    q: TernaryTensor,
    k: TernaryTensor,
    v: TernaryTensor,
    *,
    scale: float,
    bool_scale: float,
    out_scale: float = 1.0,
    mask: Tensor | BitTensor | None = None,
    causal: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    r"""Attention on bits, without a matrix of scores in memory.

    With :math:`d_{ij}` the product of query i and key j, the probability of key j becomes the bit

    .. math:: b_{ij} = \Big\lfloor e^{scale (d_{ij} - m_i)} \ge \tfrac12\, bool\_scale
              \sum_{j'} e^{scale (d_{ij'} - m_i)} \Big\rfloor, \qquad m_i = \max_{j'} d_{ij'},

    over the keys that the query may attend to, and the result is
    :math:`out\_scale \sum_j b_{ij} v_j`. Powers and sums are float64 in a fixed order, so that bits
    are the same on every device.

    Args:
        q: ``[B, H, N, D]``.
        k: ``[B, G, L, D]``, G dividing H: head h reads head ``h // (H // G)`` (grouped queries).
        v: ``[B, G, D, L]``, the values packed along the keys (:meth:`TernaryTensor.from_columns
            <bitgnn.TernaryTensor.from_columns>` of ``[B, G, L, D]``).
        scale: what products are multiplied by before the softmax: the scales of queries and
            keys over ``sqrt(D)``.
        bool_scale: scale that probabilities are made boolean by.
        out_scale: what sums are multiplied by: ``bool_scale`` times the values' scale.
        mask: bool ``[B, L]``, True where a key may be attended to, or such bits packed
            (:func:`pack_mask`).
        causal: query i attends to keys up to ``i + L - N`` only.
        dtype: float32, float16 or bfloat16.

    Returns:
        ``[B, H, N, D]``, a view of memory ``[B, N, H, D]``. Queries that may attend to no key, and
        those with ``L = 0``, give 0.
    """
    name = "ternary.attention"
    for operand, rows in (("q", q), ("k", k), ("v", v)):
        if not isinstance(rows, TernaryTensor):
            raise TypeError(f"{name}: {operand} must be a TernaryTensor, got {name_type(rows)}")
    _check_heads(name, q, k, v)
    batch, groups, length, size = k.shape
    if v.shape != (batch, groups, size, length):
        raise ValueError(
            f"{name}: v must have shape {[batch, groups, size, length]} like k transposed, "
            f"got {list(v.shape)}"
        )
    numbers = _numbers(name, scale, bool_scale, out_scale, dtype)
    words = _mask_words(name, mask, batch, length, q.device)
    packed = [part for rows in (q, k, v) for part in (rows.words, rows.counts)]
    return torch.ops.bitgnn.attention_ternary(*packed, size, length, *numbers, words, causal, dtype)


def attention_floats(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_scale: Tensor | float,
    k_scale: Tensor | float,
    v_scale: Tensor | float,
    *,
    scale: float,
    bool_scale: float,
    out_scale: float = 1.0,
    mask: Tensor | BitTensor | None = None,
    causal: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """:func:`attention` of floats, which are quantised to ternary values.

    The result is that of :func:`attention` on ``TernaryTensor.from_float(q, q_scale)``, the same of
    k and ``TernaryTensor.from_columns(v, v_scale)``. On Hopper heads of 33 to 64 features and up to
    4096 keys take one launch, in which nothing packed leaves the multiprocessor.

    Args:
        q: float32, float16 or bfloat16 ``[B, H, N, D]``.
        k: ``[B, G, L, D]``, G dividing H.
        v: ``[B, G, L, D]``.
        q_scale: of the queries, a positive number or float32 tensor of no dimensions.
        k_scale: of the keys.
        v_scale: of the values.
        scale: as of :func:`attention`, and so are the others.
        bool_scale: scale that probabilities are made boolean by.
        out_scale: what sums are multiplied by.
        mask: bool ``[B, L]`` or such bits packed.
        causal: query i attends to keys up to ``i + L - N`` only.
        dtype: float32, float16 or bfloat16; that of ``q`` where left out.

    Returns:
        ``[B, H, N, D]``, a view of memory ``[B, N, H, D]``.
    """
    name = "ternary.attention_floats"
    for operand, x in (("q", q), ("k", k), ("v", v)):
        _check_floats(name, operand, x)
    _check_heads(name, q, k, v)
    if v.shape != k.shape:
        raise ValueError(f"{name}: v must have shape {list(k.shape)} like k, got {list(v.shape)}")
    dtype = q.dtype if dtype is None else dtype
    numbers = _numbers(name, scale, bool_scale, out_scale, dtype)
    scales = [
        scale_tensor(name, what, number, q.device)
        for what, number in (("q_scale", q_scale), ("k_scale", k_scale), ("v_scale", v_scale))
    ]
    words = _mask_words(name, mask, k.size(0), k.size(2), q.device)
    return torch.ops.bitgnn.attention_ternary_floats(
        q, k, v, *scales, *numbers, words, causal, dtype
    )


def _check_floats(name: str, operand: str, x: Tensor) -> None:
    if not (isinstance(x, Tensor) and x.dtype in QUANTISED and x.layout == torch.strided):
        raise TypeError(
            f"{name}: {operand} must be float32, float16 or bfloat16, got {name_type(x)}"
        )


def _check_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype not in QUANTISED and dtype != torch.int32:
        raise ValueError(f"{name}: dtype must be float32, float16, bfloat16 or int32, got {dtype}")


def _check_heads(name: str, q: Any, k: Any, v: Any) -> None:
    """Require four dimensions, one device, and keys that fit queries, whose heads theirs divide."""
    for operand, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ValueError(
                f"{name}: {operand} must have four dimensions, got shape {list(x.shape)}"
            )
        _arguments.same_device(name, operand, x.device, q.device)
    (batch, heads, _, size), found, groups = q.shape, list(k.shape), k.shape[1]
    if found[0] != batch or found[3] != size:
        raise ValueError(f"{name}: k must have shape [{batch}, G, L, {size}] like q, got {found}")
    if groups != heads and (groups <= 0 or heads % groups):
        raise ValueError(f"{name}: heads of k must divide the {heads} heads of q, got {groups}")


def _numbers(
    name: str, scale: float, bool_scale: float, out_scale: float, dtype: torch.dtype
) -> tuple[float, float, float]:
    """Numbers of an attention, which must be positive, and its dtype one of floats."""
    for what, number in (("scale", scale), ("bool_scale", bool_scale), ("out_scale", out_scale)):
        if not isinstance(number, float | int) or isinstance(number, bool):
            raise TypeError(f"{name}: {what} must be a number, got {name_type(number)}")
        check_positive(name, what, number)
    if dtype not in QUANTISED:
        raise ValueError(f"{name}: dtype must be float32, float16 or bfloat16, got {dtype}")
    return float(scale), float(bool_scale), float(out_scale)


def _mask_words(
    name: str, mask: Tensor | BitTensor | None, batch: int, length: int, device: torch.device
) -> Tensor | None:
    if mask is None:
        return None
    bits = mask if isinstance(mask, BitTensor) else pack_mask(mask)
    rows = bits.words.size(0)
    if bits.size != length or rows != batch:
        raise ValueError(
            f"{name}: mask must have shape [{batch}, {length}], got [{rows}, {bits.size}]"
        )
    _arguments.same_device(name, "mask", bits.device, device)
    return bits.words


def _linear_scale(name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """The scale as a tensor, checked here unless the operator does it."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return scale_tensor(name, "scale", scale, device)
    if isinstance(scale, Tensor) and _arguments.is_compiled("linear_ternary"):
        return scale
    if type(scale) not in (float, int):
        return scale_tensor(name, "scale", scale, device)
    # A copy to a GPU would take longer than the product.
    return _number(name, scale, device)


@lru_cache(maxsize=256)
def _number(name: str, scale: float, device: torch.device) -> Tensor:
    """A number as a read-only tensor."""
    return scale_tensor(name, "scale", scale, device)
