"""The example that binarize() is given: how a forward takes it, and one run on it."""

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
from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.looks_up import LooksUp

Example: TypeAlias = "Tensor | BaseData | tuple[Any, ...] | list[Any] | dict[str, Any]"
KINDS = (Tensor, BaseData, tuple, list, dict)
CACHES = ("_cached_edge_index", "_cached_adj_t")
"""Where PyG's layers keep the graph of their first call."""


def is_example(value: Any) -> bool:
    """Whether a value is what a model takes, and no precision or configuration."""
    return isinstance(value, KINDS)


def run_example(model: nn.Module, example: Any) -> None:
    """Call a model once, so that its layers look up their input, find their role and start scales.

    It runs in evaluation with gradients recorded and none computed. Modes, buffers, cached graphs
    and the state of torch's random numbers are what they were; what the layers found stays.
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
    with _unchanged(model), evaluating(model), torch.enable_grad():
        for module in model.modules():
            if isinstance(module, ActivationQuantizer) and not module.is_set:
                module.train()  # the example starts its scale
        try:
            model(*args, **kwargs)
        except Exception as error:
            raise ValueError(
                f"binarize: example must be what the forward of {kind} takes, which raised "
                f"{type(error).__name__}: {error}"
            ) from error


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


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Random numbers, buffers and caches as they were; what was looked up stays."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    found = [module for module in model.modules() if not isinstance(module, InputBits)]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in found
        for name, buffer in module._buffers.items()
        if isinstance(buffer, Tensor) and name != "role_code"
    ]
    caches = [(m, name, getattr(m, name)) for m in found for name in CACHES if hasattr(m, name)]
    with torch.random.fork_rng(devices=[device.index for device in devices]):
        try:
            yield
        finally:
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    buffer.copy_(value)
                    module._buffers[name] = buffer
            for module, name, cached in caches:
                setattr(module, name, cached)
            for module in model.modules():
                if isinstance(module, LooksUp):
                    module.forget_constant_bits()
