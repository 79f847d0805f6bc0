"""Contenders of the whole-model benchmark: each peer and each network of ours by every executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.cases import Contender, WrongResultError, reason_of, same_call
from bench.models.ours import EXECUTORS, Frozen, make_call
from bench.models.peers import Peer
from bench.tasks import NodeTask
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.timing import Clock
from bitgnn.ops.buffers import no_buffer_cache

OURS, UNFROZEN = "bitgnn", "bitgnn unfrozen"


def is_like(contender: Contender, **wanted: str) -> bool:
    return all(contender.details[name] == value for name, value in wanted.items())


def fastest(contenders: Iterable[Contender], **wanted: str) -> Contender | None:
    """The fastest measured contender with these details."""
    found = [c for c in contenders if c.median is not None and is_like(c, **wanted)]
    return min(found, key=lambda c: c.median or 0.0, default=None)


def _contender(family: str, form: str, features: str, executor: str) -> Contender:
    """One that is not made yet."""
    details = {"family": family, "form": form, "features": features, "executor": executor}
    name = f"{family} {form}, {features}, {executor}"
    return Contender(name, family == OURS, lambda: print, details={**details, "memory": None})


def peer_contenders(peer: Peer, task: NodeTask, clock: Clock) -> list[Contender]:
    """A peer with every way to run it on the device: eager, and on CUDA replayed as a graph."""
    executors = EXECUTORS[clock.device]
    found = [_contender(peer.family, peer.name, "floats", executor) for executor in executors]
    failure = peer.missing
    if peer.make is not None:
        try:
            call, kept = peer.make()
            _check_shape(call(), task)
            memory = memory_of(call, kept, clock)
        except Exception as error:
            clock.recover()
            failure = reason_of(error)
    for contender in found:
        contender.failure = failure
        if failure is None:
            contender.make, contender.details["memory"] = same_call(call), memory
            contender.prepare(clock, captured=is_like(contender, executor="cuda_graph"))
    return found


def unfrozen_call(network: Frozen, task: NodeTask) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    """Our own layers before freezing: binary values computed in floats."""

    @torch.inference_mode()
    def call() -> Tensor:
        scores: Tensor = network.emulated(task.x, network.graph)
        return scores

    return call, (network.emulated, task.x, network.graph)


def our_contenders(
    form: str, features: str, network: Frozen, task: NodeTask, clock: Clock, is_right: bool
) -> list[Contender]:
    """A frozen network with each executor; all must give the same bits."""
    x, graph = network.inputs[features]
    eager = partial(network.model, x, graph)
    expected = eager()
    memory = memory_of(eager, (network.model, graph, x), clock)

    def make(contender: Contender) -> Callable[[], Tensor]:
        if not is_right:
            raise WrongResultError
        executor = contender.details["executor"]
        call = make_call(network.model, executor, x, graph)
        scores = call()
        _check_shape(scores, task)
        if not torch.equal(scores, expected):
            raise WrongResultError
        # A captured graph cannot be captured again: inside of one stand the calls it consists of.
        return call if executor == "eager" else eager

    found = []
    for executor in EXECUTORS[clock.device]:
        contender = _contender(OURS, form, features, executor)
        contender.details["memory"] = memory
        contender.make = partial(make, contender)
        contender.prepare(clock, captured=executor != "eager")
        found.append(contender)
    return found


def _check_shape(scores: Tensor, task: NodeTask) -> None:
    expected = (task.num_nodes, task.num_classes)
    if tuple(scores.shape) != expected:
        raise ValueError(f"scores must be {list(expected)}, got {list(scores.shape)}")


def memory_of(call: Callable[[], Any], kept: tuple[Any, ...], clock: Clock) -> dict[str, int]:
    """Of a call that ran before: caches and layouts are part of what is stored."""
    stored = stored_bytes(*kept)
    if clock.device == "cuda":
        peak = cuda_peak_allocation(call)
    else:
        with no_buffer_cache():  # results kept for reuse would not be seen
            peak = peak_allocation(call)
    return {"stored": stored, "peak_allocation": peak, "total": stored + peak}
