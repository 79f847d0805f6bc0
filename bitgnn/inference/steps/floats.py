"""Steps in full precision: the functions a checkpoint may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.inference.step import Apply, Register, Step, StepCheck, StepKind, Tensors
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


def _check_function(check: StepCheck) -> tuple[Register, ...]:
    function = FUNCTIONS[check.kind]
    check.has(**function.attributes)
    check.reads(("floats", None))
    size = check.registers[0].size
    check.vectors(size, *function.tensors, required=function.required)
    return (Register("floats", size),)


def _make_function(step: Step, tensors: Tensors) -> Apply:
    apply, attributes = FUNCTIONS[step.kind].apply, step.attributes
    return lambda x: apply(x, tensors, attributes)


def _check_linear(check: StepCheck) -> tuple[Register, ...]:
    size, out = check.sizes("size", "out")
    check.reads(("floats", size))
    check.tensor("weight", torch.float32, out, size)
    check.vectors(out, "bias")
    return (Register("floats", out),)


def _make_linear(step: Step, tensors: Tensors) -> Apply:
    weight, bias = tensors["weight"], tensors.get("bias")
    return lambda x: functional.linear(x, weight, bias)


def _check_joined(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(*[("floats", None)] * max(1, len(check.registers)))
    check.vectors(None)
    sizes = [register.size for register in check.registers]
    known = [size for size in sizes if size is not None]
    if check.kind.startswith("cat"):
        return (Register("floats", sum(known) if len(known) == len(sizes) else None),)
    if len(sizes) != 2 or len(set(known)) > 1:
        raise ValueError(f"inputs must be two of one size, got {sizes}")
    return (Register("floats", known[0] if known else None),)


def _make_joined(step: Step, tensors: Tensors) -> Apply:
    operations: dict[str, Apply] = {
        "cat": lambda *parts: torch.cat(parts, dim=-1),
        "cat_channels": lambda *parts: torch.cat(parts, dim=1),
        "add": torch.add,
        "mul": torch.mul,
        "maximum": torch.maximum,
    }
    return operations[step.kind]


def _check_scale_rows(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("floats", None), ("scale", None))
    check.vectors(None)
    return (check.registers[0],)


def _make_scale_rows(step: Step, tensors: Tensors) -> Apply:
    return lambda x, scale: scale.unsqueeze(1) * x


def _check_classes(check: StepCheck) -> tuple[Register, ...]:
    check.has()
    check.reads(("floats", None))
    check.vectors(None)
    return (Register("classes", check.registers[0].size),)


def _make_classes(step: Step, tensors: Tensors) -> Apply:
    """int64 ``[N]``: the first of the largest scores of each node, or its first NaN."""
    return lambda x: torch.argmax(x, dim=-1)


_JOINED = ("cat", "cat_channels", "add", "mul", "maximum")
KINDS = (
    StepKind("scale_rows", _check_scale_rows, _make_scale_rows),
    *(StepKind(name, _check_function, _make_function) for name in FUNCTIONS),
    StepKind("linear", _check_linear, _make_linear),
    *(StepKind(name, _check_joined, _make_joined) for name in _JOINED),
    StepKind("classes", _check_classes, _make_classes),
)
