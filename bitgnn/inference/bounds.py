"""Bounds on the memory and time that a file may ask for, checked before anything is made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.bits.tensor import WORD_BITS
from bitgnn.inference.program import CALL, Program

LARGEST = 1 << 26
"""Largest number among the arguments of a model or module."""
REPEATS, MOST_REPEATS = ("K", "num_layers"), 1 << 10
"""Arguments of modules that say how often something is done, and their largest number."""
WEIGHTS_A_BYTE = 8
PARAMETERS_A_TENSOR, MORE_PARAMETERS = 16, 64
"""A module may have so many parameters for each tensor of its file, and so many more."""
JOINS = ("cat", "concat_bbb")
COPIES = 8
"""How often a join may hold each feature that was given, made or is taken by a product."""


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
        if is_uninitialized_parameter(
            parameter
        ):  # without a width, which that of the file gives it
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


def check_program(program: Program, tensors: Mapping[str, Tensor]) -> None:
    """Refuse calls whose results outgrow the features and weights they are made of, by number."""
    registers = program.registers
    given = max(max(registers[n].size or 0 for n in range(program.inputs)), 1)
    makers = [call for call in program.calls if call.tensors or call.operator == CALL]
    made = sum(registers[r].size or given for call in makers for r in call.outputs)
    most = COPIES * (given + made + max(map(_row, tensors.values()), default=0))
    widths = dict.fromkeys(range(program.inputs), given)
    for number, call in enumerate(program.calls):
        read = [widths[register] for register in call.inputs]
        grown = sum(read) if call.kind in JOINS else max(read, default=1)
        widths |= {register: registers[register].size or grown for register in call.outputs}
        width = max(widths[register] for register in call.outputs)
        if width > most:
            raise ValueError(
                f"call {number} ({call.kind}): {width} features are more than weights allow, {most}"
            )


def _row(weight: Tensor) -> int:
    """Features that a weight takes, if it is one: packed ones have 32 in a word."""
    row = weight[:1].numel() if weight.dim() > 1 else 0
    return row * (1 if weight.is_floating_point() else WORD_BITS)
