"""A frozen model run call by call, to look into it or to time single calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from bitgnn.bits import BitAdjacency, BitImages, BitTensor
from bitgnn.inference.bound_program import Features, Inputs
from bitgnn.inference.costs import result_of
from bitgnn.inference.executable import Instruction, run_code
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.program import Call


def groups(model: FrozenModel, x: Features) -> tuple[tuple[Call, ...], ...]:
    """Calls of the program that each call of a forward on features in this form does."""
    return tuple(group for group, _ in model._start(x)[0].units)


@torch.inference_mode()
def repeatable_calls(
    model: FrozenModel, x: Features, adjacency: Graph | Any = None
) -> list[tuple[tuple[Call, ...], Callable[[], None]]]:
    """Run call by call as a forward does, and keep each one ready to be repeated alone.

    Args:
        model: a frozen model with a program.
        x: features as the model takes them.
        adjacency: the graph as the model takes it.

    Returns:
        For each of the :func:`groups`: its calls of the program, and a function that does them once
        more on the same values; run that in inference mode.
    """
    model._start(x)  # checks the form
    executable, values, graphs = model._start(x, model._adjacencies(adjacency, x.shape[0]))
    return [(group, _ready(code, values, graphs)) for group, code in executable.units]


@torch.inference_mode()
def steps(
    model: FrozenModel, x: Inputs, adjacency: Graph | Any = None
) -> list[tuple[Call, Callable[[], None], Any]]:
    """Run the program call by call, none of them fused, and keep each call's result.

    Args:
        model: a frozen model with a program.
        x: features as the model takes them; the calls of packing are left out for packed ones.
        adjacency: the graph as the model takes it.

    Returns:
        For each call: the call, a function that runs it once more alone, and its result: a
        ``BitTensor`` or ``BitImages`` where it holds bits, else the tensor (of 8-bit rows the
        codes).
    """
    model._start(x)  # checks the form
    compiled, given = model._compiled_for(x)
    alone = model._compiled(compiled.calls, compiled.inputs, compiled.output, fuses=False)
    graphs = model._adjacencies(adjacency, x.shape[0])
    graphs = (*graphs, x) if isinstance(x, BitAdjacency) else graphs
    executable = alone.on(x, graphs)
    values, found = executable.values(given), []
    for (call,), code in executable.units:
        again = _ready(code, values, graphs)
        register = result_of(model, call)
        form, size = model.registers[register]
        result = values[register]
        if size is not None and form == "bits":
            result = BitTensor._trusted(result, size)
        elif size is not None and form == "image_bits":
            result = BitImages(result, size)
        found.append((call, again, result))
    return found


def _ready(
    code: Sequence[Instruction], values: list[Any], graphs: Sequence[Any]
) -> Callable[[], None]:
    """Run instructions once; the result runs them once more on the same values."""
    again = partial(run_code, code, values, graphs, frees=False)
    again()
    return again
