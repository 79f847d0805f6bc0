"""Steps on images in full precision, computed as PyTorch computes them in the trained model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.quantize.pixels import COLOURS, grey, local_binary_patterns

__all__ = ["KINDS", "channel_shortcut"]

Attributes = Mapping[str, Any]


def channel_shortcut(x: Tensor, stride: Sequence[int], out: int) -> Tensor:
    """``x[:, :, ::s, ::s]`` of ``[N, C, H, W]`` with zero channels appended up to ``out``."""
    part = x[:, :, :: stride[0], :: stride[1]]
    return functional.pad(part, (0, 0, 0, 0, 0, out - x.size(1)))


def _max_pool(x: Tensor, a: Attributes) -> Tensor:
    numbers = (a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil_mode"])
    return functional.max_pool2d(x, *numbers)


def _avg_pool(x: Tensor, a: Attributes) -> Tensor:
    return functional.avg_pool2d(
        x, a["kernel"], a["stride"], a["padding"], a["ceil_mode"], a["count_include_pad"],
        a["divisor"],
    )  # fmt: skip


_FUNCTIONS: dict[str, tuple[Callable[[Tensor, Attributes], Tensor], dict[str, Any]]] = {
    "max_pool": (
        _max_pool,
        {"kernel": list, "stride": list, "padding": list, "dilation": list, "ceil_mode": bool},
    ),
    "avg_pool": (
        _avg_pool,
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


def _check_function(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, **_FUNCTIONS[step.kind][1])
    for name, value in attributes.items():
        if isinstance(value, list) and not (
            len(value) == 2 and all(type(v) is int or v is None for v in value)
        ):
            raise ValueError(f"{name} must be 2 numbers, got {value}")
    expect(registers, "floats")
    expect_tensors(tensors, {})
    return (Register("floats", registers[0].size),)


def _bind_function(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), attributes = step.inputs, step.outputs, step.attributes
    apply = _FUNCTIONS[step.kind][0]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[x], attributes)

    return run


_COLOURED = {"grey": (grey, 1), "local_binary_patterns": (local_binary_patterns, COLOURS)}
"""Functions of red, green and blue, and the channels they give."""


def _check_coloured(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, "floats")
    expect_tensors(tensors, {})
    if registers[0].size not in (COLOURS, None):
        raise ValueError(f"the input must have {COLOURS} channels, got {registers[0].size}")
    return (Register("floats", _COLOURED[step.kind][1]),)


def _bind_coloured(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), apply = step.inputs, step.outputs, _COLOURED[step.kind][0]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[x])

    return run


def _check_flatten(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = expect_attributes(step, size=(int, type(None)))["size"]
    expect(registers, "floats")
    expect_tensors(tensors, {})
    return (Register("floats", size),)


def _bind_flatten(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        rows = v[x].flatten(1)
        if size is not None and rows.size(1) != size:
            raise ValueError(f"the layer behind it takes {size} features, gets {rows.size(1)}")
        v[out] = rows

    return run


def _check_shortcut(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, size=int, out=int, stride=list)
    expect(registers, "floats")
    size, out = positive("size", attributes["size"]), attributes["out"]
    if out < size or registers[0].size not in (size, None):
        raise ValueError(f"{registers[0].size} channels cannot become {out}")
    if len(attributes["stride"]) != 2 or not all(s >= 1 for s in attributes["stride"]):
        raise ValueError(f"stride must be 2 numbers above 0, got {attributes['stride']}")
    expect_tensors(tensors, {})
    return (Register("floats", out),)


def _bind_shortcut(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    stride, channels = a["stride"], a["out"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = channel_shortcut(v[x], stride, channels)

    return run


def _check_cat(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, *["floats"] * max(1, len(registers)))
    expect_tensors(tensors, {})
    sizes = [register.size for register in registers]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    return (Register("floats", total),)


def _bind_cat(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    inputs, (out,) = step.inputs, step.outputs

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = torch.cat([v[i] for i in inputs], dim=1)

    return run


def _check_conv(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    a = expect_attributes(
        step, size=int, out=int, stride=list, padding=(list, str), dilation=list, groups=int
    )
    expect(registers, "floats")
    if registers[0].size not in (a["size"], None):
        raise ValueError(f"the input must have {a['size']} channels, got {registers[0].size}")
    own = dict(tensors)
    weight = own.pop("weight")
    shape = [a["out"], a["size"] // positive("groups", a["groups"])]
    if weight.dtype != torch.float32 or list(weight.shape[:2]) != shape or weight.dim() != 4:
        raise ValueError(
            f"weight must be float32 {[*shape, 'kh', 'kw']}, got {weight.dtype} "
            f"{list(weight.shape)}"
        )
    expect_tensors(own, {"bias": a["out"]})
    return (Register("floats", a["out"]),)


def _bind_conv(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), a = step.inputs, step.outputs, step.attributes
    weight, bias = tensors["weight"], tensors.get("bias")
    padding = a["padding"] if isinstance(a["padding"], str) else tuple(a["padding"])
    numbers: Any = (tuple(a["stride"]), padding, tuple(a["dilation"]), a["groups"])

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = functional.conv2d(v[x], weight, bias, *numbers)

    return run


KINDS = (
    *(StepKind(name, _check_function, _bind_function) for name in _FUNCTIONS),
    *(StepKind(name, _check_coloured, _bind_coloured) for name in _COLOURED),
    StepKind("flatten", _check_flatten, _bind_flatten),
    StepKind("shortcut", _check_shortcut, _bind_shortcut),
    StepKind("cat_channels", _check_cat, _bind_cat),
    StepKind("float_conv", _check_conv, _bind_conv),
)
