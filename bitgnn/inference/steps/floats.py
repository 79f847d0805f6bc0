"""Steps in full precision: functions a checkpoint may name, and their folding into thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.inference.step import Apply, Read, Register, StepReader, Tensors, step_kind
from bitgnn.nn.torch_layers import NodeStandardize
from bitgnn.quantize import sgn

_STANDARDIZE = NodeStandardize()

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class FloatFunction:
    """A function of one float matrix, computed as PyTorch computes it in the trained model.

    Attributes:
        apply: takes the matrix, the tensors and the attributes.
        tensors: names of its vectors ``[channels]``.
        required: those of them that must be there.
        attributes: types of its attributes by name; lists are of two numbers or None.
        is_monotone: acts on each channel alone and never changes direction inside one.
        keeps_sign: whether the attributes make ``sgn(f(v)) == sgn(v)``.
        is_nowhere_negative: whether the attributes make every result 0 or more.
    """

    apply: Callable[[Tensor, Tensors, Attributes], Tensor]
    tensors: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    attributes: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    is_monotone: bool = False
    keeps_sign: Callable[[Attributes], bool] = lambda attributes: False
    is_nowhere_negative: Callable[[Attributes], bool] = lambda attributes: False


def _always(attributes: Attributes) -> bool:
    return True


def _batch_norm(x: Tensor, t: Tensors, a: Attributes) -> Tensor:
    weight, bias = t.get("weight"), t.get("bias")
    return functional.batch_norm(x, t["mean"], t["var"], weight, bias, False, 0.0, a["eps"])


def _layer_norm(x: Tensor, t: Tensors, a: Attributes) -> Tensor:
    return functional.layer_norm(x, (x.size(-1),), t.get("weight"), t.get("bias"), a["eps"])


def _monotone(function: Callable[..., Tensor], *names: str, **options: Any) -> FloatFunction:
    """A monotone function of each entry and of numbers of these names; integers keep integers."""
    return FloatFunction(
        lambda x, t, a: function(x, *(a[name] for name in names)),
        attributes=dict.fromkeys(names, (int, float)),
        is_monotone=True,
        **options,
    )


def _with_vector(function: Callable[..., Tensor], name: str) -> FloatFunction:
    """A function of rows, or of images' channels, and the entries of a vector."""

    def apply(x: Tensor, t: Tensors, a: Attributes) -> Tensor:
        return function(x, t[name] if x.dim() == 2 else t[name].view(-1, 1, 1))

    return FloatFunction(apply, (name,), (name,), is_monotone=True)


FUNCTIONS: dict[str, FloatFunction] = {
    "batch_norm": FloatFunction(
        _batch_norm,
        ("mean", "var", "weight", "bias"),
        ("mean", "var"),
        {"eps": float},
        is_monotone=True,
    ),
    "layer_norm": FloatFunction(_layer_norm, ("weight", "bias"), (), {"eps": float}),
    "standardize": FloatFunction(lambda x, t, a: _STANDARDIZE(x)),
    "sign": _monotone(sgn, keeps_sign=_always),
    "hardtanh": _monotone(
        functional.hardtanh,
        "low",
        "high",
        keeps_sign=lambda a: a["low"] < 0 <= a["high"],
        is_nowhere_negative=lambda a: a["low"] >= 0,
    ),
    "relu": _monotone(functional.relu, is_nowhere_negative=_always),
    "tanh": _monotone(torch.tanh, keeps_sign=_always),
    "sigmoid": _monotone(torch.sigmoid, is_nowhere_negative=_always),
    "elu": _monotone(functional.elu, "alpha", keeps_sign=lambda a: a["alpha"] > 0),
    "leaky_relu": _monotone(functional.leaky_relu, "slope", keeps_sign=lambda a: a["slope"] > 0),
    "gelu": FloatFunction(
        lambda x, t, a: functional.gelu(x, approximate=a["approximate"]),
        attributes={"approximate": str},
    ),
    "silu": FloatFunction(lambda x, t, a: functional.silu(x)),
    "scale": _monotone(torch.mul, "factor", keeps_sign=lambda a: a["factor"] > 0),
    "shift": _monotone(torch.add, "term"),
    "gain": _with_vector(torch.mul, "gain"),
    "divisor": _with_vector(torch.div, "divisor"),
    "bias": _with_vector(torch.add, "bias"),
    "normalize": FloatFunction(lambda x, t, a: functional.normalize(x, p=2.0, dim=-1)),
    "softmax": FloatFunction(lambda x, t, a: torch.softmax(x, dim=-1), is_nowhere_negative=_always),
    "log_softmax": FloatFunction(lambda x, t, a: torch.log_softmax(x, dim=-1)),
}
"""Functions of one matrix by the name that programs and checkpoints use."""


def is_monotone(name: str) -> bool:
    """Whether a sign behind this function can become a threshold in front of it."""
    return name in FUNCTIONS and FUNCTIONS[name].is_monotone


def is_sign_preserving(name: str, attributes: Attributes) -> bool:
    """Whether a sign behind this function is the sign in front of it."""
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


def function_kinds(functions: Mapping[str, FloatFunction]) -> None:
    """Make a kind of step of each of the functions."""

    @step_kind(*functions)
    def read(s: StepReader) -> Read:
        function = functions[s.kind]
        attributes = s.has(**function.attributes)
        for name, value in attributes.items():
            if isinstance(value, list) and not (
                len(value) == 2 and all(type(v) is int or v is None for v in value)
            ):
                raise ValueError(f"{name} must be 2 numbers, got {value}")
        s.reads(("floats", None))
        (size,) = s.input_sizes() or [None]
        tensors = s.vectors(size, *function.tensors, required=function.required)
        apply = function.apply
        return [Register("floats", size)], lambda x: apply(x, tensors, attributes)


function_kinds(FUNCTIONS)


@step_kind("linear")
def _read_linear(s: StepReader) -> Read:
    size, out = s.sizes("size", "out")
    s.reads(("floats", size))
    weight = s.tensor("weight", torch.float32, out, size)
    bias = s.vectors(out, "bias").get("bias")
    return [Register("floats", out)], lambda x: functional.linear(x, weight, bias)


_JOINS: dict[str, Apply] = {
    "cat": lambda *parts: torch.cat(parts, dim=-1),
    "cat_channels": lambda *parts: torch.cat(parts, dim=1),
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
}


@step_kind(*_JOINS)
def _read_joined(s: StepReader) -> Read:
    s.has()
    s.reads(*[("floats", None)] * max(1, s.num_inputs))
    sizes = s.input_sizes()
    known = [size for size in sizes if size is not None]
    if s.kind.startswith("cat"):
        size = sum(known) if len(known) == len(sizes) else None
    elif s.num_inputs != 2 or len(set(known)) > 1:
        raise ValueError(f"inputs must be two of one size, got {sizes}")
    else:
        size = known[0] if known else None
    return [Register("floats", size)], _JOINS[s.kind]


@step_kind("scale_rows")
def _read_scale_rows(s: StepReader) -> Read:
    s.has()
    s.reads(("floats", None), ("scale", None))
    return s.registers[:1], lambda x, scale: scale.unsqueeze(1) * x


@step_kind("classes")
def _read_classes(s: StepReader) -> Read:
    """int64 ``[N]``: the first of the largest scores of each node, or its first NaN."""
    s.has()
    s.reads(("floats", None))
    written = [Register("classes", size) for size in s.input_sizes()]
    return written, lambda x: torch.argmax(x, dim=-1)
