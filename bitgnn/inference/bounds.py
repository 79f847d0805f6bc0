"""Bounds on the memory and time that a file may ask for, checked before anything is made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from bitgnn.bits.tensor import WORD_BITS
from bitgnn.inference.program import Program
from bitgnn.inference.step import Register, Step

LARGEST = 1 << 26
"""Largest number among the arguments of a model or module."""
REPEATS, MOST_REPEATS = ("K", "num_layers"), 1 << 10
"""Arguments of modules that say how often something is done, and their largest number."""
WEIGHTS_A_BYTE = 8
PARAMETERS_A_TENSOR, MORE_PARAMETERS = 16, 64
"""A module may have so many parameters for each tensor of its file, and so many more."""
JOINS = ("cat", "cat_channels", "concat")
SHORTCUT, CALL = "shortcut", "call"
COPIES = 8
"""How often a join may hold each feature that was given, made or is taken by a product."""
GROWTH = 256
"""Pixels by which the steps of a model may make images higher or wider, all together."""
WINDOW, LARGEST_SIDE = ("kernel", "stride", "padding", "dilation"), 1 << 16
"""Attributes of windows that slide over images, and their largest number."""


@contextlib.contextmanager
def parameters_on_meta(tensors: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Modules made inside have parameters without memory; buffers have theirs.

    A ``ValueError`` where they are larger than ``tensors``, those of the file that describes them;
    None for modules of any size.
    """
    owner, numbers, count = threading.get_ident(), 0, 0
    held = (tensors or {}).values()
    most_numbers = WEIGHTS_A_BYTE * sum(tensor.nbytes for tensor in held)
    most = PARAMETERS_A_TENSOR * len(held) + MORE_PARAMETERS

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        nonlocal numbers, count
        if parameter is None or threading.get_ident() != owner:
            return None
        numbers, count = numbers + parameter.numel(), count + 1
        if tensors is not None and (numbers > most_numbers or count > most):
            raise ValueError("the model is larger than its tensors")
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(on_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()


def check_arguments(value: Any, name: str = "") -> None:
    """Refuse numbers beyond all bounds among arguments, also inside lists and mappings."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            check_arguments(part, str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            check_arguments(part, name)
    elif isinstance(value, int):
        most = MOST_REPEATS if name in REPEATS else LARGEST
        if abs(value) > most:
            raise ValueError(f"{name} must be at most {most}, got {value}")


def check_program(
    program: Program, registers: Mapping[int, Register], tensors: Mapping[str, Tensor]
) -> None:
    """Refuse steps whose results outgrow the features and weights they are made of, by number."""
    given = program.in_channels or 1
    makers = [step for step in program.steps if step.tensors or step.kind == CALL]
    made = sum(registers[r].size or given for step in makers for r in step.outputs)
    most = COPIES * (given + made + max(map(_row, tensors.values()), default=0))
    widths, growth = {0: given}, 0
    for number, step in enumerate(program.steps):
        try:
            width = _width(step, widths, registers)
            growth += _growth(step, tensors)
            if width > most:
                raise ValueError(f"{width} features are more than weights allow, {most}")
            if growth > GROWTH:
                raise ValueError(f"images become more than {GROWTH} pixels larger")
        except (ValueError, TypeError) as error:
            raise ValueError(f"step {number} ({step.kind}): {error}") from error
        widths.update(dict.fromkeys(step.outputs, width))


def _row(weight: Tensor) -> int:
    """Features that a weight takes, if it is one: packed ones have 32 in a word."""
    row = weight[:1].numel() if weight.dim() > 1 else 0
    return row * (1 if weight.is_floating_point() else WORD_BITS)


def _width(step: Step, widths: Mapping[int, int], registers: Mapping[int, Register]) -> int:
    """Features, or channels of images, of what a step writes: a flattened pixel counts as one."""
    read = [widths[register] for register in step.inputs]
    if step.kind in JOINS:
        return sum(read)
    if step.kind in (CALL, SHORTCUT) or step.tensors:
        return max(registers[output].size or max(read, default=1) for output in step.outputs)
    return max(read, default=1)


def _growth(step: Step, tensors: Mapping[str, Tensor]) -> int:
    """Pixels by which a step makes images higher or wider at most."""
    a = step.attributes
    if step.kind == "adaptive_avg_pool":
        return max(side or 0 for side in a["output"])
    vectors = [a[name] for name in WINDOW if isinstance(a.get(name), list)]
    if any(abs(number or 0) > LARGEST_SIDE for vector in vectors for number in vector):
        raise ValueError(f"numbers of windows must be at most {LARGEST_SIDE}, got {vectors}")
    padding = a.get("padding")
    if not isinstance(padding, list):
        return 0
    if "kernel" in a:
        kernel = a["kernel"]
    else:
        first = 2 if step.kind == "float_conv" else 1
        kernel = tensors[step.tensors["weight"]].shape[first : first + 2]
    sides = (sum(padding[:2]), sum(padding[2:])) if len(padding) > 2 else [2 * p for p in padding]
    spacings = a.get("dilation", (1, 1))
    found = zip(sides, spacings, kernel, strict=True)
    return max(0, *(side - spacing * (reach - 1) for side, spacing, reach in found))
