"""Checks of the arguments of :mod:`bitgnn.ops.ternary`."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor, BooleanTensor, TernaryTensor
from bitgnn.bits.ternary import QUANTISED, check_positive, scale_tensor
from bitgnn.ops import _arguments

ACTIVATIONS = ("ternary", "bool")


def attention_keys(name: str, q: Sequence[int], k: Sequence[int]) -> None:
    """Require keys that fit queries, whose heads theirs divide; of four dimensions both."""
    batch, heads, _, size = q
    groups = k[1]
    if not (k[0] == batch and k[3] == size):
        raise ValueError(f"{name}: k must have shape [{batch}, G, L, {size}] like q, got {list(k)}")
    if not (groups == heads or (groups > 0 and heads % groups == 0)):
        raise ValueError(f"{name}: heads of k must divide the {heads} heads of q, got {groups}")


def attention_numbers(
    name: str, scale: float, bool_scale: float, out_scale: float, dtype: torch.dtype
) -> None:
    """Require positive numbers, and a dtype of results."""
    for what, number in (("scale", scale), ("bool_scale", bool_scale), ("out_scale", out_scale)):
        if not (isinstance(number, float | int) and not isinstance(number, bool)):
            raise TypeError(f"{name}: {what} must be a number, got {name_type(number)}")
        check_positive(name, what, number)
    if dtype not in QUANTISED:
        raise ValueError(f"{name}: dtype must be float32, float16 or bfloat16, got {dtype}")


def pack_mask(mask: Tensor) -> BitTensor:
    """Bits of a bool mask ``[B, L]``, for masks that serve several calls.

    :func:`bitgnn.ops.ternary.attention` takes them.

    Raises:
        TypeError: ``mask`` is no bool tensor.
        ValueError: it has other than two dimensions.
    """
    name = "ternary.pack_mask"
    if not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        raise TypeError(f"{name}: mask must be a bool tensor, got {name_type(mask)}")
    if mask.dim() != 2:
        raise ValueError(f"{name}: mask must have shape [B, L], got {list(mask.shape)}")
    words = torch.ops.bitgnn.pack(mask.to(torch.float32) - 0.5)
    return BitTensor._trusted(words, mask.size(1))


def quantisable(name: str, operand: str, x: Tensor) -> None:
    if not (isinstance(x, Tensor) and x.dtype in QUANTISED and x.layout == torch.strided):
        raise TypeError(
            f"{name}: {operand} must be float32, float16 or bfloat16, got {name_type(x)}"
        )


def linear_operands(name: str, x: Tensor, w: BitTensor, activation: str) -> None:
    """Require activations and weights that fit."""
    is_quantisable = isinstance(x, Tensor) and x.dtype in QUANTISED and x.layout is torch.strided
    if (
        is_quantisable
        and isinstance(w, BitTensor)
        and x.dim() >= 1
        and x.size(-1) == w.size
        and x.device == w.words.device
        and activation in ACTIVATIONS
    ):
        return
    quantisable(name, "x", x)
    _arguments.bit_matrix(name, "w", w)
    if not (x.dim() >= 1 and x.size(-1) == w.size):
        raise ValueError(f"{name}: x must have shape [..., {w.size}] like w, got {list(x.shape)}")
    _arguments.same_device(name, "w", w.words.device, x.device)
    if activation not in ACTIVATIONS:
        raise ValueError(f"{name}: activation must be one of {ACTIVATIONS}, got {activation!r}")


def linear_scale(name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """The scale as a tensor, checked here unless the operator does it."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return scale_tensor(name, "scale", scale, device)
    if isinstance(scale, Tensor):
        is_checked = _arguments.is_compiled("linear_ternary")
        return scale if is_checked else scale_tensor(name, "scale", scale, device)
    if type(scale) not in (float, int):
        return scale_tensor(name, "scale", scale, device)
    # A copy to a GPU would take longer than the product.
    return _number(name, scale, device)


@lru_cache(maxsize=256)
def _number(name: str, scale: float, device: torch.device) -> Tensor:
    """A number as a tensor, which nothing may write to."""
    return scale_tensor(name, "scale", scale, device)


def ternary(name: str, operand: str, x: TernaryTensor) -> None:
    if not isinstance(x, TernaryTensor):
        raise TypeError(f"{name}: {operand} must be a TernaryTensor, got {name_type(x)}")


def four_dimensions(name: str, operand: str, shape: Sequence[int]) -> None:
    if len(shape) != 4:
        raise ValueError(f"{name}: {operand} must have four dimensions, got shape {list(shape)}")


def batched(name: str, operand: str, x: TernaryTensor | BooleanTensor, dimensions: int) -> None:
    if len(x.shape) < dimensions:
        raise ValueError(
            f"{name}: {operand} must have {dimensions} or more dimensions, got {list(x.shape)}"
        )


def result_dtype(name: str, dtype: torch.dtype | None, default: torch.dtype) -> torch.dtype:
    dtype = default if dtype is None else dtype
    if dtype not in (*QUANTISED, torch.int32):
        raise ValueError(f"{name}: dtype must be float32, float16, bfloat16 or int32, got {dtype}")
    return dtype


def output_scale(name: str, scale: Tensor | None, outputs: int, device: torch.device) -> None:
    """Require None, one number or one a output, of any sign."""
    if isinstance(scale, Tensor) and scale.dim() == 0:
        scale = scale.expand(outputs)
    _arguments.vector(name, "w_scale", scale, outputs, device)


def mask_bits(
    name: str, mask: Tensor | BitTensor | None, batch: int, length: int, device: torch.device
) -> BitTensor | None:
    if mask is None:
        return None
    bits = mask if isinstance(mask, BitTensor) else pack_mask(mask)
    if not (bits.size == length and bits.words.size(0) == batch):
        raise ValueError(
            f"{name}: mask must have shape [{batch}, {length}], "
            f"got [{bits.words.size(0)}, {bits.size}]"
        )
    _arguments.same_device(name, "mask", bits.device, device)
    return bits
