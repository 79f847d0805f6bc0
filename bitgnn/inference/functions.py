"""Functions in full precision that programs call, and their folding into thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.operators import overload

Tensors = Mapping[str, Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class FloatFunction:
    """A function of one float matrix, computed as PyTorch computes it in the trained model.

    Attributes:
        operator: what computes it.
        arguments: those behind the matrix, of the tensors and the attributes.
        is_monotone: acts on each channel alone and never changes direction inside one.
        keeps_sign: whether the attributes make ``sgn(f(v)) == sgn(v)``.
        is_nowhere_negative: whether the attributes make every result 0 or more.
    """

    operator: str
    arguments: Callable[[Tensors, Attributes], tuple[Any, ...]] = lambda t, a: ()
    is_monotone: bool = False
    keeps_sign: Callable[[Attributes], bool] = lambda attributes: False
    is_nowhere_negative: Callable[[Attributes], bool] = lambda attributes: False

    def apply(self, x: Tensor, tensors: Tensors, attributes: Attributes) -> Tensor:
        """The function's value."""
        found: Tensor = overload(self.operator)(x, *self.arguments(tensors, attributes))
        return found


def _always(attributes: Attributes) -> bool:
    return True


def _monotone(operator: str, *names: str, **options: Any) -> FloatFunction:
    """A monotone function of each entry and of numbers of these names; integers keep integers."""
    return FloatFunction(
        operator, lambda t, a: tuple(a[name] for name in names), is_monotone=True, **options
    )


def _with_vector(name: str) -> FloatFunction:
    """A function of rows, or of images' channels, and the entries of a vector."""
    return FloatFunction(f"float::{name}", lambda t, a: (t[name],), is_monotone=True)


def _numbers(operator: str, *names: str, **options: Any) -> FloatFunction:
    return FloatFunction(operator, lambda t, a: tuple(a[name] for name in names), **options)


FUNCTIONS: dict[str, FloatFunction] = {
    "batch_norm": FloatFunction(
        "aten::batch_norm",
        lambda t, a: (
            t.get("weight"), t.get("bias"), t["mean"], t["var"], False, 0.0, a["eps"], True
        ),
        is_monotone=True,
    ),
    "layer_norm": FloatFunction(
        "float::layer_norm", lambda t, a: (t.get("weight"), t.get("bias"), a["eps"])
    ),
    "standardize": FloatFunction("float::standardize"),
    "sign": _monotone("float::sign", keeps_sign=_always),
    "hardtanh": _monotone(
        "aten::hardtanh",
        "low",
        "high",
        keeps_sign=lambda a: a["low"] < 0 <= a["high"],
        is_nowhere_negative=lambda a: a["low"] >= 0,
    ),
    "relu": _monotone("aten::relu", is_nowhere_negative=_always),
    "tanh": _monotone("aten::tanh", keeps_sign=_always),
    "sigmoid": _monotone("aten::sigmoid", is_nowhere_negative=_always),
    "elu": _monotone("aten::elu", "alpha", keeps_sign=lambda a: a["alpha"] > 0),
    "leaky_relu": _monotone("aten::leaky_relu", "slope", keeps_sign=lambda a: a["slope"] > 0),
    "gelu": _numbers("float::gelu", "approximate"),
    "silu": FloatFunction("aten::silu"),
    "scale": _monotone("aten::mul.Scalar", "factor", keeps_sign=lambda a: a["factor"] > 0),
    "shift": _monotone("aten::add.Scalar", "term"),
    "gain": _with_vector("gain"),
    "divisor": _with_vector("divisor"),
    "bias": _with_vector("bias"),
    "normalize": FloatFunction("float::normalize"),
    "softmax": FloatFunction(
        "aten::softmax.int", lambda t, a: (-1,), is_nowhere_negative=_always
    ),
    "log_softmax": FloatFunction("aten::log_softmax.int", lambda t, a: (-1,)),
}  # fmt: skip
"""Functions of one matrix, which keep its width, by the name that networks give them."""
OF_IMAGES: dict[str, FloatFunction] = {
    "max_pool": _numbers(
        "aten::max_pool2d", "kernel", "stride", "padding", "dilation", "ceil_mode"
    ),
    "avg_pool": _numbers(
        "aten::avg_pool2d", "kernel", "stride", "padding", "ceil_mode", "count_include_pad",
        "divisor",
    ),
    "adaptive_avg_pool": _numbers("float::adaptive_avg_pool", "output"),
    "mean_pixels": FloatFunction("aten::mean.dim", lambda t, a: ([2, 3],)),
    "to_float": FloatFunction("aten::to.dtype", lambda t, a: (torch.float32,)),
}  # fmt: skip
"""Functions of images that keep the number of channels."""


def is_monotone(name: str) -> bool:
    """True if a sign behind this function can become a threshold in front of it."""
    return name in FUNCTIONS and FUNCTIONS[name].is_monotone


def is_sign_preserving(name: str, attributes: Attributes) -> bool:
    """True if a sign behind this function is the sign in front of it."""
    return name in FUNCTIONS and FUNCTIONS[name].keeps_sign(attributes)


_SIGN_BIT = -(2**31)
# Bit patterns of -inf and +inf in the ordering below; the answer always lies between them.
_BISECTION_STEPS = 32
# Where the direction of a function is read off: far out, yet small enough not to overflow.
_FAR = 1e30


def _ordered_to_float(key: Tensor) -> Tensor:
    """Floats in ascending order for ascending int64 keys: the IEEE bits, negatives reversed."""
    bits = torch.where(key >= 0, key, _SIGN_BIT - key - 1)
    return bits.to(torch.int32).view(torch.float32)


@torch.no_grad()
def sign_threshold(
    function: Callable[[Tensor], Tensor], channels: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Threshold ``t`` and flip ``f`` of each channel with ``(v >= t) ^ f == (function(v) >= 0)``.

    A monotone function has one comparison for its sign. The smallest float ``t`` with
    ``function(t) >= 0`` (the largest one where the function falls) is found by bisection over the
    floats with the function's own arithmetic, so the comparison is its decision for every float
    but NaN, rounding included. A channel whose sign never changes gets an infinite threshold.

    Args:
        function: maps float32 ``[1, channels]`` to the same shape, each channel on its own and
            monotone, rising or falling.
        channels: number of channels.
        device: where the function computes.

    Returns:
        threshold float32 ``[channels]`` and flip bool ``[channels]``.
    """

    def is_positive(value: Tensor) -> Tensor:
        return function(value.unsqueeze(0)).squeeze(0) >= 0

    far = torch.full((channels,), _FAR, device=device, dtype=torch.float32)
    falls = is_positive(-far) & ~is_positive(far)
    sign = torch.where(falls, -1.0, 1.0).float()
    infinity = int(torch.tensor(float("inf"), dtype=torch.float32).view(torch.int32).item())
    low = torch.full((channels,), -infinity - 1, dtype=torch.int64, device=device)
    high = torch.full((channels,), infinity, dtype=torch.int64, device=device)
    for _ in range(_BISECTION_STEPS):
        # Invariant for rising channels: function(low) < 0 <= function(high), or no such high.
        # Floor division keeps middle below high; falling channels run along the negated axis.
        middle = torch.div(low + high, 2, rounding_mode="floor")
        positive = is_positive(sign * _ordered_to_float(middle))
        high = torch.where(positive, middle, high)
        low = torch.where(positive, low, middle)
    threshold = _ordered_to_float(high)
    # v <= -s is not (v >= the next float above -s).
    above = torch.nextafter(-threshold, torch.full_like(threshold, float("inf")))
    return torch.where(falls, above, threshold).contiguous(), falls
