"""Steps on images: pools and rows of bits, integer sums, and what PyTorch computes in floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.step import Apply, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.quantize.images import COLOURS, grey, local_binary_patterns

_pool_bits = torch.ops.bitgnn.pool_bits.default
Attributes = Mapping[str, Any]


_FUNCTIONS: dict[str, tuple[Callable[[Tensor, Attributes], Tensor], dict[str, Any]]] = {
    "max_pool": (
        lambda x, a: functional.max_pool2d(
            x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil_mode"]
        ),
        {"kernel": list, "stride": list, "padding": list, "dilation": list, "ceil_mode": bool},
    ),
    "avg_pool": (
        lambda x, a: functional.avg_pool2d(
            x, a["kernel"], a["stride"], a["padding"], a["ceil_mode"], a["count_include_pad"],
            a["divisor"],
        ),
        {
            "kernel": list, "stride": list, "padding": list, "ceil_mode": bool,
            "count_include_pad": bool, "divisor": (int, type(None)),
        },
    ),
    "adaptive_avg_pool": (
        lambda x, a: functional.adaptive_avg_pool2d(x, a["output"]),
        {"output": list},
    ),
    "mean_pixels": (lambda x, a: x.mean((2, 3)), {}),
    "to_float": (lambda x, a: x.float(), {}),
}  # fmt: skip
"""Functions that keep the number of channels, with the types of their attributes."""


def _check_function(check: StepCheck) -> tuple[Register, ...]:
    for name, value in check.has(**_FUNCTIONS[check.kind][1]).items():
        if isinstance(value, list) and not (
            len(value) == 2 and all(type(v) is int or v is None for v in value)
        ):
            raise ValueError(f"{name} must be 2 numbers, got {value}")
    check.reads(("floats", None))
    check.vectors(None)
    return (Register("floats", check.registers[0].size),)


def _make_function(step: Step, tensors: Tensors) -> Apply:
    apply, attributes = _FUNCTIONS[step.kind][0], step.attributes
    return lambda x: apply(x, attributes)


_COLOURED = {"grey": (grey, 1), "local_binary_patterns": (local_binary_patterns, COLOURS)}
"""Functions of red, green and blue, and the channels they give."""


def _check_coloured(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("floats", COLOURS))
    check.vectors(None)
    return (Register("floats", _COLOURED[check.kind][1]),)


def _make_coloured(step: Step, tensors: Tensors) -> Apply:
    return _COLOURED[step.kind][0]


def _check_flatten(check: StepCheck) -> tuple[Register, ...]:
    size = check.has(size=(int, type(None)))["size"]
    check.reads(("floats", None))
    check.vectors(None)
    return (Register("floats", size),)


def _make_flatten(step: Step, tensors: Tensors) -> Apply:
    size = step.attributes["size"]

    def flatten(x: Tensor) -> Tensor:
        rows = x.flatten(1)
        if size is not None and rows.size(1) != size:
            raise ValueError(f"the layer behind it takes {size} features, gets {rows.size(1)}")
        return rows

    return flatten


def _check_shortcut(check: StepCheck) -> tuple[Register, ...]:
    size, out = check.sizes("size", "out", stride=list)
    check.reads(("floats", size))
    if out < size:
        raise ValueError(f"{size} channels cannot become {out}")
    check.numbers("stride", 2, 1)
    check.vectors(None)
    return (Register("floats", out),)


def _make_shortcut(step: Step, tensors: Tensors) -> Apply:
    """Every so many pixels of ``[N, C, H, W]``, with zero channels appended."""
    (down, right), out = step.attributes["stride"], step.attributes["out"]
    return lambda x: functional.pad(x[:, :, ::down, ::right], (0, 0, 0, 0, 0, out - x.size(1)))


def _check_conv(check: StepCheck) -> tuple[Register, ...]:
    size, out = check.sizes(
        "size", "out", stride=list, padding=(list, str), dilation=list, groups=int
    )
    check.reads(("floats", size))
    check.tensor("weight", torch.float32, out, size // check.positive("groups"), None, None)
    check.vectors(out, "bias")
    return (Register("floats", out),)


def _make_conv(step: Step, tensors: Tensors) -> Apply:
    a, weight, bias = step.attributes, tensors["weight"], tensors.get("bias")
    padding = a["padding"] if isinstance(a["padding"], str) else tuple(a["padding"])
    numbers: Any = (tuple(a["stride"]), padding, tuple(a["dilation"]), a["groups"])
    return lambda x: functional.conv2d(x, weight, bias, *numbers)


def _check_pool(check: StepCheck) -> tuple[Register, ...]:
    """``flip`` holds a row of words whose set bits are channels that take the minimum."""
    (size,) = check.sizes("size", kernel=list, stride=list, padding=list)
    check.reads(("image_bits", size))
    for name, count, least in (("kernel", 2, 1), ("stride", 2, 1), ("padding", 4, 0)):
        check.numbers(name, count, least)
    if check.tensors:
        check.channel_mask("flip", size)
    check.vectors(None)
    return (Register("image_bits", size),)


def _make_pool(step: Step, tensors: Tensors) -> Apply:
    a = step.attributes
    numbers = (a["kernel"], a["stride"], a["padding"], tensors.get("flip"))
    return lambda x: _pool_bits(x, *numbers)


def _check_flatten_bits(check: StepCheck) -> tuple[Register, ...]:
    """Rows of all words of an image; ``size`` leaves out at most one bit, of the padding."""
    channels, pixels, size = check.sizes("channels", "pixels", "size")
    bits = pixels * words_for(channels) * WORD_BITS
    check.reads(("image_bits", channels))
    if size not in (bits, bits - 1):
        raise ValueError(f"size must be {bits} or one less, got {size}")
    check.vectors(None)
    return (Register("bits", size),)


def _make_flatten_bits(step: Step, tensors: Tensors) -> Apply:
    channels, pixels = step.attributes["channels"], step.attributes["pixels"]

    def flatten(words: Tensor) -> Tensor:
        found = words.size(1) * words.size(2)
        if found != pixels:
            raise ValueError(
                f"the layer behind it takes {pixels * channels} features, gets {found * channels}"
            )
        return words.flatten(1)

    return flatten


def _check_sums(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("sums", None))
    check.vectors(None)
    return (Register("floats", check.registers[0].size),)


def _make_sums(step: Step, tensors: Tensors) -> Apply:
    return lambda x: x.float().permute(0, 3, 1, 2)


KINDS = (
    *(StepKind(name, _check_function, _make_function) for name in _FUNCTIONS),
    *(StepKind(name, _check_coloured, _make_coloured) for name in _COLOURED),
    StepKind("flatten", _check_flatten, _make_flatten),
    StepKind("shortcut", _check_shortcut, _make_shortcut),
    StepKind("float_conv", _check_conv, _make_conv),
    StepKind("pool_bits", _check_pool, _make_pool),
    StepKind("flatten_bits", _check_flatten_bits, _make_flatten_bits),
    StepKind("sums_to_floats", _check_sums, _make_sums),
)
