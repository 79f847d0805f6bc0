"""summary(): a table of a model's layers: bits, bytes, share of 1-bit operations, latency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from bitgnn.bits import BitAdjacency, BitImages
from bitgnn.convert.configs import GraphConfig, ImageConfig
from bitgnn.convert.handlers import handler, handles, scheme_of
from bitgnn.convert.layerwise import packed_copy
from bitgnn.convert.network.lower import lower_model
from bitgnn.convert.network.select import select_steps
from bitgnn.convert.network.trace import evaluating, trace_model
from bitgnn.convert.summary_table import LayerSummary, Summary
from bitgnn.inference.bound_program import Features
from bitgnn.inference.call_by_call import steps as steps_of
from bitgnn.inference.costs import (
    FIXED,
    INT8_PRODUCTS,
    StepCost,
    call_cost,
    image_call_cost,
    result_of,
    weights_of,
)
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.program import PACKING, Call

REPEATS = 15
FLOAT_BITS = 32
FIXED_BITS = 16
INT8_BITS = 8
BITS_OF_FORMS = {"bits": 1, "image_bits": 1, "planes": 1, "codes": INT8_BITS, "sums": 16}
"""Of one value in a register; residual sums hold 16 bits, or 32 where their bound is wider."""


@torch.no_grad()
def summary(model: nn.Module, data: Any = None, *, repeats: int = REPEATS) -> Summary:
    """Table of a model's layers: binary share, bytes and speed.

    Args:
        model: a model of supported layers, of graphs or of images, that torch.fx can trace,
            trained or not, or a frozen one; unchanged.
        data: a PyG ``Data`` with ``x`` and ``edge_index``, or what the model takes: ``(x,
            edge_index)`` or ``(x, edge_index, edge_weight)``, or ``x`` alone for a model without
            a graph, such as images; None for models of BWTA layers and for forwards that have no
            trace. With it every layer is timed;
            for a frozen model also results of ``pack_features`` and ``prepare_graph``.
        repeats: timed calls of each layer; the median counts.

    Returns:
        The summary; ``print`` shows it as a table. Without ``data`` the share of 1-bit operations
        is that of the dense products alone.

    Raises:
        TypeError: ``model`` is not a module.
        ValueError: the model cannot be traced, or ``data`` or ``repeats`` do not fit.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"summary: model must be a torch.nn.Module, got {type(model).__name__}")
    if repeats < 1:
        raise ValueError(f"summary: repeats must be at least 1, got {repeats}")
    summarise = handler("summary", scheme_of(model))
    found: Summary = summarise(model, data, repeats)
    return found


@handles("summary", ImageConfig)
def _of_images(model: nn.Module, data: Any, repeats: int) -> Summary:
    def costs_of(frozen: FrozenModel, found: Sequence[Any], x: Any, graph: Any) -> list[StepCost]:
        return [image_call_cost(frozen, call, result) for call, _, result in found]

    return _of_program(model, data, repeats, costs_of, None)


@handles("summary", GraphConfig)
def _of_graphs(model: nn.Module, data: Any, repeats: int) -> Summary:
    def costs_of(frozen: FrozenModel, found: Sequence[Any], x: Any, graph: Any) -> list[StepCost]:
        graphs = graph.adjacencies if isinstance(graph, PreparedGraph) else (graph,)
        return [call_cost(frozen, call, x.shape[0], graphs) for call, _, _ in found]

    if isinstance(model, FrozenModel) and not model.is_program:
        return _of_layers(model, data)
    return _of_program(model, data, repeats, costs_of, _product_costs)


def _of_program(
    model: nn.Module,
    data: Any,
    repeats: int,
    costs_of: Callable[..., list[StepCost]],
    costs_without_data: Callable[[FrozenModel], dict[str, StepCost]] | None,
) -> Summary:
    """Summary of a model that is a program, or becomes one."""
    is_frozen = isinstance(model, FrozenModel)
    if isinstance(model, FrozenModel):
        frozen = model
    else:
        try:
            frozen = select_steps(lower_model(model, trace_model(model), packed_copy))
        except ValueError as error:
            raise ValueError(f"summary: {str(error).removeprefix('freeze: ')}") from error
    costs: dict[str, StepCost] = {}
    measured: dict[str, float] = {}
    notes = []
    if data is not None:
        inputs = _inputs(data)
        x, *graph = inputs
        prepared: Any = None
        if graph:
            prepared, *weight = graph
            if not isinstance(prepared, BitAdjacency | PreparedGraph):
                prepared = frozen.prepare_graph(prepared, x.shape[0], *weight)
        steps = steps_of(frozen, x, prepared)
        found = costs_of(frozen, steps, x, prepared)
        for (step, call, _), cost in zip(steps, found, strict=True):
            costs[step.layer] = costs.get(step.layer, StepCost()) + cost
            if is_frozen:
                with torch.inference_mode():
                    seconds = _median_seconds(call, x.device, repeats)
                measured[step.layer] = measured.get(step.layer, 0.0) + seconds
        if not is_frozen:
            measured = _time_modules(model, inputs, {step.layer for step, _, _ in steps}, repeats)
    elif costs_without_data is None:  # operations on images depend on their size
        notes.append("1-bit ops: give images")
    else:
        costs = costs_without_data(frozen)
        notes.append("1-bit ops: of the dense products; give data for the whole")
    if not is_frozen:
        notes.append("bits and packed bytes are those of the frozen form")
    notes += [f"{name}: full precision, {why}" for name, why in frozen.report.floats.items()]
    layers = _layers(frozen, costs, measured)
    share = sum(costs.values(), StepCost()).one_bit_share
    return Summary(type(model).__name__, layers, share, tuple(notes))


def _product_costs(frozen: FrozenModel) -> dict[str, StepCost]:
    """Operations of the dense products of a row, by layer."""
    costs: dict[str, StepCost] = {}
    for call in frozen.program.calls:
        if weights_of(frozen, call):
            costs[call.layer] = costs.get(call.layer, StepCost()) + call_cost(frozen, call, 1, ())
    return costs


def _of_layers(model: FrozenModel, data: Any) -> Summary:
    """Packed layers of a model that keeps the user's own forward."""
    if data is not None:
        raise ValueError("summary: data must be None for a forward of the user's own, got some")
    rows: list[LayerSummary] = []
    whole = StepCost()
    for name, layer in model.layers.items():
        costs = _product_costs(layer.frozen)
        whole = sum(costs.values(), whole)
        found = _layers(layer.frozen, costs, {})
        rows += [
            replace(row, name=name if len(found) == 1 else f"{name}.{row.name}") for row in found
        ]
    notes = ["packed layers alone; 1-bit ops: of the dense products"]
    notes += [f"{name}: full precision, {why}" for name, why in model.report.floats.items()]
    return Summary(type(model.model).__name__, tuple(rows), whole.one_bit_share, tuple(notes))


def _inputs(data: Any) -> tuple[Any, ...]:
    """Features and graph from any form in which they are given."""
    if isinstance(data, Features | BitImages):
        return (data,)
    if hasattr(data, "x") and hasattr(data, "edge_index"):
        return (data.x, data.edge_index)
    if isinstance(data, Sequence) and len(data) in (1, 2, 3):
        return tuple(data)
    raise ValueError(
        "summary: data must be a Data object, (x, edge_index), (x, edge_index, edge_weight) or x, "
        f"got {type(data).__name__}"
    )


def _now(device: torch.device) -> float:
    """The clock, once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _median_seconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of a call, behind one untimed call."""
    found = []
    for _ in range(repeats + 1):
        start = _now(device)
        call()
        found.append(_now(device) - start)
    return statistics.median(found[1:])


def _time_modules(
    model: nn.Module, inputs: tuple[Any, ...], names: Collection[str], repeats: int
) -> dict[str, float]:
    """Median time inside each module in evaluation, by hooks."""
    found: dict[str, list[float]] = {}
    starts: dict[str, float] = {}
    device = inputs[0].device

    def before(name: str, *_: Any) -> None:
        starts[name] = _now(device)

    def after(name: str, *_: Any) -> None:
        found.setdefault(name, []).append(_now(device) - starts[name])

    modules = [(name, module) for name, module in model.named_modules() if name in names]
    handles = [module.register_forward_pre_hook(partial(before, n)) for n, module in modules]
    handles += [module.register_forward_hook(partial(after, n)) for n, module in modules]
    try:
        with evaluating(model):
            for _ in range(repeats + 1):
                model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return {name: statistics.median(times[1:] or times) for name, times in found.items()}


def _layers(
    frozen: FrozenModel,
    costs: Mapping[str, StepCost],
    measured: Mapping[str, float],
) -> tuple[LayerSummary, ...]:
    by_layer: dict[str, list[Call]] = {}
    for call in frozen.program.calls:
        by_layer.setdefault(call.layer, []).append(call)
    letters = frozen.report.letters
    layers = []
    for name, calls in by_layer.items():
        cost = costs.get(name, StepCost())
        layers.append(
            LayerSummary(
                name,
                letters.get(name, ""),
                *_bits(frozen, calls),
                sum(_float_bytes(frozen, call) for call in calls),
                sum(frozen.get_buffer(n).nbytes for call in calls for n in call.tensors.values()),
                cost.one_bit_share,
                measured.get(name),
            )
        )
    return tuple(layers)


def _bits(
    frozen: FrozenModel, calls: Sequence[Call]
) -> tuple[int | None, int | None, int | None, int]:
    """Bits of activation, weight, aggregation and output of a layer as frozen."""

    def width(register: int) -> int:
        return BITS_OF_FORMS.get(frozen.registers[register].form, FLOAT_BITS)

    products = [call for call in calls if weights_of(frozen, call)]
    sums = [call for call in calls if call.kind.startswith("bspmm_")]
    activation = weight = aggregation = None
    if products:
        is_fixed = products[0].kind in FIXED
        activation = FIXED_BITS if is_fixed else width(products[0].inputs[0])
        weight = FLOAT_BITS if products[0].kind in ("linear", "conv2d") else 1
        weight = INT8_BITS if products[0].kind in INT8_PRODUCTS else weight
    if sums:
        aggregation = width(sums[0].inputs[0])
    return activation, weight, aggregation, width(result_of(frozen, calls[-1]))


def _float_bytes(frozen: FrozenModel, call: Call) -> int:
    """Bytes of a call's weights in a float32 model."""
    weights = FLOAT_BITS // 8 * weights_of(frozen, call)
    if weights:
        names = [buffer for name, buffer in call.tensors.items() if name == "bias"]
        return weights + sum(frozen.get_buffer(name).nbytes for name in names)
    if call.kind in (*PACKING, "bitwise_xor", "pool_bits"):
        return 0
    return sum(frozen.get_buffer(name).nbytes for name in call.tensors.values())
