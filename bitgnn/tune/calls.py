"""The operator calls of a frozen model: what tells their times apart, and how each is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor, BlockedAdjacency
from bitgnn.inference import FrozenModel
from bitgnn.inference.frozen_model import Features
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.program import Step
from bitgnn.inference.steps.layouts import words_of
from bitgnn.measure.timing import Timing
from bitgnn.tune.clock import Call, CaptureError, Clock, prepare, rounds
from bitgnn.tune.timings import CallTime

__all__ = ["call_signature", "most_neighbours", "time_calls"]

LEAST_ROUNDS, MOST_ROUNDS = 2, 50
ROUND_SECONDS = 0.1
"""Rounds go on for about so long, between the least and the most of them."""
QUANTILE = 0.25
"""Of the rounds: others' work on the machine makes some of them slower, none of them faster."""
CUDA_ROUNDS = 5
HOST_CALLS = 20
"""Calls queued one after the other to see how long the host is busy with one."""
SIGNIFICANT = 2
"""Digits of the largest degree that count."""


def most_neighbours(adjacency: Any) -> int:
    """Largest number of neighbours of a node in a prepared graph, to two digits."""
    if isinstance(adjacency, PreparedGraph):
        return max([0, *map(most_neighbours, adjacency.adjacencies)])
    if isinstance(adjacency, BlockedAdjacency):
        blocks = adjacency.blocked()
        degrees = blocks.block_rowptr.diff().view(-1, max(1, adjacency.shape[0])).sum(0)
    else:
        degrees = adjacency.rowptr.diff()
    most = int(degrees.max()) if degrees.numel() else 0
    return int(float(f"{most:.{SIGNIFICANT - 1}e}"))


def call_signature(
    model: FrozenModel,
    group: Sequence[Step],
    x: Features,
    adjacency: Any,
    method: str | None,
    neighbours: int,
) -> dict[str, Any]:
    """What the time of a call depends on, as plain values.

    Args:
        model: the frozen model.
        group: the steps that the call does, of :meth:`~bitgnn.inference.FrozenModel.groups`.
        x: features as given to the model.
        adjacency: prepared graph, or None.
        method: how bits of a pattern in tiles are reconciled; None where there is none.
        neighbours: of :func:`most_neighbours`.
    """
    signature: dict[str, Any] = {
        "nodes": x.shape[0],
        "features": _form(x),
        "steps": [_step(model, step) for step in group],
    }
    graphs = adjacency.adjacencies if isinstance(adjacency, PreparedGraph) else (adjacency,)
    used = [step.graph for step in group if step.graph is not None]
    if used:
        number = used[0]
        # A call of the user's own reads the edges, which stand behind the adjacencies.
        graph = graphs[number] if number < len(graphs) else adjacency
        registers = {r for step in group for r in (*step.inputs, *step.outputs)}
        sizes = {
            held.size
            for held in (model.registers[r] for r in registers if r in model.registers)
            if held.form == "bits" and held.size is not None
        }
        layout = _layout(graph, sizes)
        signature["graph"] = {
            "layout": layout,
            "method": method if "frdc" in layout else None,
            "edges": graph.nnz,
            "neighbours": neighbours,
            "factors": [tensor is not None for tensor in graph.tensors],
        }
    return signature


def _form(x: Features) -> list[Any]:
    if isinstance(x, Tensor):
        return ["floats", str(x.dtype)]
    if isinstance(x, BitTensor):
        return ["bits", x.scale is not None]
    return ["pattern", x.nnz]


def _step(model: FrozenModel, step: Step) -> list[Any]:
    tensors = {
        name: [str(tensor.dtype), *tensor.shape]
        for name, tensor in ((n, model.get_buffer(b)) for n, b in step.tensors.items())
    }
    attributes = dict(step.attributes)
    if step.kind == "call":
        assert model.calls is not None
        call = model.calls[step.attributes["call"]]
        attributes = {"function": repr(call.function), "leaves": repr(call.leaves)}
    inputs = [list(model.registers[r]) for r in step.inputs if r in model.registers]
    return [step.kind, attributes, inputs, tensors]


def _layout(graph: Any, sizes: set[int]) -> list[str]:
    if isinstance(graph, BitAdjacency | BlockedAdjacency):
        return sorted({graph.planned_layout(words_of(size)) for size in sizes}) or ["pattern"]
    return [type(graph).__name__]


def time_calls(
    calls: Sequence[Callable[[], None]], wanted: Sequence[bool], device: torch.device
) -> list[CallTime | None]:
    """Times of some of the calls of one forward.

    On the CPU all calls run in turns, so that each finds the caches as a forward leaves them. On
    CUDA each is captured alone, so that launches are no part of its time.

    Args:
        calls: of :meth:`~bitgnn.inference.FrozenModel.repeatable_calls`, in order; each has run
            once.
        wanted: which of them to time.
        device: where they run.

    Returns:
        A time for each call that is wanted, None for the others.
    """
    with torch.inference_mode():
        if device.type == "cuda":
            with torch.cuda.device(device):
                return _time_on_cuda(calls, wanted)
        return _time_in_turns(calls, wanted)


def _time_in_turns(
    calls: Sequence[Callable[[], None]], wanted: Sequence[bool]
) -> list[CallTime | None]:
    seconds: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    while len(seconds[0]) < MOST_ROUNDS:
        if len(seconds[0]) >= LEAST_ROUNDS and time.perf_counter() - begin > ROUND_SECONDS:
            break
        before = time.perf_counter()
        for number, call in enumerate(calls):
            call()
            after = time.perf_counter()
            seconds[number].append(after - before)
            before = after
    typical = [Timing(tuple(taken)).quantile(QUANTILE) for taken in seconds]
    return [
        CallTime(taken, taken) if is_wanted else None
        for taken, is_wanted in zip(typical, wanted, strict=True)
    ]


def _time_on_cuda(
    calls: Sequence[Callable[[], None]], wanted: Sequence[bool]
) -> list[CallTime | None]:
    clock = Clock("cuda")
    names = [str(number) for number, is_wanted in enumerate(wanted) if is_wanted]
    ready = {}
    for name in names:
        call = calls[int(name)]
        call()
        try:
            ready[name] = prepare(Call(call, captured=True), clock)
        except CaptureError:
            ready[name] = prepare(Call(call), clock)
    times, failed = rounds(ready, clock, CUDA_ROUNDS)
    for error in failed.values():
        raise error
    hosts = {name: _host_seconds(calls[int(name)]) for name in names}
    return [
        CallTime(times[name].median, hosts[name]) if name in times else None
        for name in map(str, range(len(calls)))
    ]


def _host_seconds(call: Callable[[], None]) -> float:
    """Time the host needs to queue one call; at least the second of two goes."""
    best = float("inf")
    for _ in range(2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        best = min(best, (time.perf_counter() - begin) / HOST_CALLS)
    torch.cuda.synchronize()
    return best
