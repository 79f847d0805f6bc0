"""The example input of binarize(): how a forward takes it, and one run on it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from bitgnn.convert.network.trace import Arguments, evaluating, has_forward, trace_model
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.inference.own_call import Argument, OwnCall
from bitgnn.nn.bwta_linear import ActivationQuantizer
from bitgnn.nn.inputs.looks_up import LooksUp
from bitgnn.nn.roles.settling import follow, settle

Example: TypeAlias = "Tensor | BaseData | tuple[Any, ...] | list[Any] | dict[str, Any]"
KINDS = (Tensor, BaseData, tuple, list, dict)


def is_example(value: Any) -> bool:
    """True if a value is an input of a model, not a precision or configuration."""
    return isinstance(value, KINDS)


def run_example(model: nn.Module, example: Any) -> None:
    """Call a model once, so that layers see their input, find their role and start scales.

    It runs in evaluation with gradients recorded and none computed. Modes, other buffers, cached
    graphs and the state of torch's random numbers are what they were.
    """
    if not is_example(example):
        raise TypeError(
            "binarize: example must be a Data object, a tensor, a tuple or a mapping of what the "
            f"forward takes, got {type(example).__name__}"
        )
    kind = type(model).__name__
    if not has_forward(model):
        raise ValueError(
            f"binarize: example must be None for {kind}, which has no forward; its first training "
            "batch does what an example would"
        )
    args, kwargs = _call_of(model, example)

    def call() -> None:
        with _settling(model):
            model(*args, **kwargs)

    try:
        reads = follow(model, call)
    except Exception as error:
        raise ValueError(
            f"binarize: example must be what the forward of {kind} takes, which raised "
            f"{type(error).__name__}: {error}"
        ) from error
    settle(reads)


@contextmanager
def _settling(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, except for layers and scales that learn from the example."""
    with evaluating(model), torch.enable_grad():
        for module in model.modules():
            if isinstance(module, LooksUp):
                # Its statistics and norms, too: a scale starts from what they make of the batch.
                module.train()
            if isinstance(module, ActivationQuantizer) and not module.is_set:
                module.train()  # the example starts its scale
        yield


def _call_of(model: nn.Module, example: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the forward in order, and by name."""
    if isinstance(example, Tensor):
        return [example], {}
    if isinstance(example, Mapping):
        return [], dict(example)
    if isinstance(example, tuple | list):
        return list(example), {}
    try:
        arguments = Arguments(trace_model(model)).arguments
    except NotTraced:
        arguments = _declared(model, example)
    try:
        return OwnCall(arguments).of_data(example)
    except AttributeError as error:
        raise ValueError(
            f"binarize: example must have {error}, which the forward of {type(model).__name__} "
            f"takes, got {example}; a tuple or a mapping of arguments serves as well"
        ) from error


def _declared(model: nn.Module, data: BaseData) -> list[Argument]:
    """Arguments by the signature, where there is no trace: a single one takes the data."""
    parameters = [
        parameter
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    needed = [p for p in parameters if p.default is p.empty]
    if len(needed) == 1 and getattr(data, needed[0].name, None) is None:
        return [Argument("x", "features", in_data=True)]
    return [
        Argument(p.name, "input", "refuse" if p.default is p.empty else "none") for p in parameters
    ]
