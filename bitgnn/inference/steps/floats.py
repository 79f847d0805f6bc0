"""Steps in full precision: the functions a checkpoint may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.nn.standardize import NodeStandardize
from bitgnn.quantize import sgn

__all__ = ["FUNCTIONS", "KINDS", "FloatFunction", "is_monotone", "is_sign_preserving"]

_STANDARDIZE = NodeStandardize()

Tensors = Mapping[str, Tensor]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class FloatFunction:
    """A function of one float matrix, computed as PyTorch computes it in the trained model.

    Attributes:
        apply: takes the matrix, the tensors and the attributes.
        tensors: names of its vectors ``[channels]``.
        required: those of them that must be there.
        attributes: types of its attributes by name.
        is_monotone: acts on each channel alone and never changes direction inside one.
        keeps_sign: whether the attributes make ``sgn(f(v)) == sgn(v)``.
        is_nowhere_negative: whether the attributes make every result 0 or more.
    """

    apply: Callable[[Tensor, Tensors, Attributes], Tensor]
    tensors: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    attributes: Mapping[str, type] = field(default_factory=dict)
    is_monotone: bool = False
    keeps_sign: Callable[[Attributes], bool] = lambda attributes: False
    is_nowhere_negative: Callable[[Attributes], bool] = lambda attributes: False


def _always(attributes: Attributes) -> bool:
    return True


def _batch_norm(x: Tensor, t: Tensors, a: Attributes) -> Tensor:
    weight, bias = t.get("weight"), t.get("bias")
    return functional.batch_norm(x, t["mean"], t["var"], weight, bias, False, 0.0, a["eps"])


def _layer_norm(x: Tensor, t: Tensors, a: Attributes) -> Tensor:
    return functional.layer_norm(x, (x.size(1),), t.get("weight"), t.get("bias"), a["eps"])


def _of_channels(x: Tensor, vector: Tensor) -> Tensor:
    """A vector of the channels of images or the features of rows, to be broadcast."""
    return vector if x.dim() == 2 else vector.view(-1, 1, 1)


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
    "sign": FloatFunction(lambda x, t, a: sgn(x), is_monotone=True, keeps_sign=_always),
    "hardtanh": FloatFunction(
        lambda x, t, a: functional.hardtanh(x, a["low"], a["high"]),
        attributes={"low": float, "high": float},
        is_monotone=True,
        keeps_sign=lambda a: a["low"] < 0 <= a["high"],
        is_nowhere_negative=lambda a: a["low"] >= 0,
    ),
    "relu": FloatFunction(
        lambda x, t, a: functional.relu(x), is_monotone=True, is_nowhere_negative=_always
    ),
    "tanh": FloatFunction(lambda x, t, a: torch.tanh(x), is_monotone=True, keeps_sign=_always),
    "sigmoid": FloatFunction(
        lambda x, t, a: torch.sigmoid(x), is_monotone=True, is_nowhere_negative=_always
    ),
    "elu": FloatFunction(
        lambda x, t, a: functional.elu(x, a["alpha"]),
        attributes={"alpha": float},
        is_monotone=True,
        keeps_sign=lambda a: a["alpha"] > 0,
    ),
    "leaky_relu": FloatFunction(
        lambda x, t, a: functional.leaky_relu(x, a["slope"]),
        attributes={"slope": float},
        is_monotone=True,
        keeps_sign=lambda a: a["slope"] > 0,
    ),
    "gelu": FloatFunction(
        lambda x, t, a: functional.gelu(x, approximate=a["approximate"]),
        attributes={"approximate": str},
    ),
    "silu": FloatFunction(lambda x, t, a: functional.silu(x)),
    "scale": FloatFunction(
        lambda x, t, a: x * a["factor"],
        attributes={"factor": float},
        is_monotone=True,
        keeps_sign=lambda a: a["factor"] > 0,
    ),
    "shift": FloatFunction(
        lambda x, t, a: x + a["term"], attributes={"term": float}, is_monotone=True
    ),
    "gain": FloatFunction(
        lambda x, t, a: x * _of_channels(x, t["gain"]), ("gain",), ("gain",), is_monotone=True
    ),
    "divisor": FloatFunction(
        lambda x, t, a: x / _of_channels(x, t["divisor"]),
        ("divisor",),
        ("divisor",),
        is_monotone=True,
    ),
    "bias": FloatFunction(
        lambda x, t, a: x + _of_channels(x, t["bias"]), ("bias",), ("bias",), is_monotone=True
    ),
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


def _check_function(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    function = FUNCTIONS[step.kind]
    expect(registers, "floats")
    expect_attributes(step, **function.attributes)
    size = registers[0].size
    expect_tensors(tensors, dict.fromkeys(function.tensors, size), None, function.required)
    return (Register("floats", size),)


def _bind_function(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), attributes = step.inputs, step.outputs, step.attributes
    apply = FUNCTIONS[step.kind].apply

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[x], tensors, attributes)

    return run


def _check_linear(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    attributes = expect_attributes(step, size=int, out=int)
    size, out = positive("size", attributes["size"]), positive("out", attributes["out"])
    expect(registers, "floats")
    if registers[0].size not in (size, None):
        raise ValueError(f"the input must have {size} features, got {registers[0].size}")
    own = dict(tensors)
    weight = own.pop("weight")
    if weight.dtype != torch.float32 or list(weight.shape) != [out, size]:
        raise ValueError(
            f"weight must be float32 [{out}, {size}], got {weight.dtype} {list(weight.shape)}"
        )
    expect_tensors(own, {"bias": out})
    return (Register("floats", out),)


def _bind_linear(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,) = step.inputs, step.outputs
    weight, bias = tensors["weight"], tensors.get("bias")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = functional.linear(v[x], weight, bias)

    return run


def _check_joined(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, *["floats"] * max(1, len(registers)))
    expect_tensors(tensors, {})
    sizes = [register.size for register in registers]
    if step.kind == "cat":
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        return (Register("floats", total),)
    if len(sizes) != 2 or len({size for size in sizes if size is not None}) > 1:
        raise ValueError(f"inputs must be two of one size, got {sizes}")
    return (Register("floats", sizes[0] if sizes[0] is not None else sizes[1]),)


def _bind_joined(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    inputs, (out,) = step.inputs, step.outputs

    def cat(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = torch.cat([v[i] for i in inputs], dim=-1)

    def combine(operation: Callable[..., Tensor], v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = operation(v[inputs[0]], v[inputs[1]])

    operations: dict[str, Callable[..., Tensor]] = {
        "add": torch.add,
        "mul": torch.mul,
        "maximum": torch.maximum,
    }
    return cat if step.kind == "cat" else partial(combine, operations[step.kind])


def _check_scale_rows(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    expect_attributes(step)
    expect(registers, "floats", "scale")
    expect_tensors(tensors, {})
    return (registers[0],)


def _bind_scale_rows(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x, scale), (out,) = step.inputs, step.outputs

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = v[scale].unsqueeze(1) * v[x]

    return run


KINDS = (
    StepKind("scale_rows", _check_scale_rows, _bind_scale_rows),
    *(StepKind(name, _check_function, _bind_function) for name in FUNCTIONS),
    StepKind("linear", _check_linear, _bind_linear),
    *(StepKind(name, _check_joined, _bind_joined) for name in ("cat", "add", "mul", "maximum")),
)
