"""The contenders of the whole-model benchmark: built, checked, captured; failures with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.models.ours import Frozen, make_executor
from bench.models.peers import Peer
from bench.tasks import NodeTask
from bitgnn.measure.clock import LONG_SECONDS, CaptureError, Clock, Ready
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.timing import Timing
from bitgnn.ops.buffers import no_buffer_cache

OURS, UNFROZEN = "bitgnn", "bitgnn unfrozen"
WRONG = "gives a wrong result"
REASON_LENGTH = 240


@dataclass
class Contender:
    """One way to run a model, and what was found about it.

    Attributes:
        family: ``"bitgnn"``, ``"bitgnn unfrozen"``, ``"PyG"`` or ``"Bi-GCN emulated"``.
        form: ``"bin"`` or ``"full"`` of ours, frozen or not, else form of the graph and arithmetic.
        features: as :class:`~bench.models.ours.Frozen` names them.
        executor: ``"eager"`` or ``"cuda_graph"``.
        ready: the call, inside of a CUDA graph where it can be captured.
        launched: the same with a launch for each call from Python, None for eager ones.
        in_graph: whether ``ready`` is a CUDA graph.
        memory: bytes stored, allocated beyond that, and their sum.
        failure: why it was not measured.
    """

    family: str
    form: str
    features: str
    executor: str
    ready: Ready | None = None
    launched: Ready | None = None
    in_graph: bool = False
    memory: dict[str, int] | None = None
    failure: str | None = None
    timing: Timing | None = None
    launched_timing: Timing | None = None
    cold_timing: Timing | None = None

    @property
    def name(self) -> str:
        """What tells it from the others of a case."""
        return f"{self.family} {self.form}, {self.features}, {self.executor}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        times = {
            "timing": self.timing,
            "launched": self.launched_timing,
            "cold": self.cold_timing,
        }
        return {
            "name": self.name,
            "family": self.family,
            "form": self.form,
            "features": self.features,
            "executor": self.executor,
            "in_graph": self.in_graph,
            "memory": self.memory,
            "failure": self.failure,
            **{name: None if t is None else t.to_dict() for name, t in times.items()},
        }


def best(contenders: Iterable[Contender], **wanted: str) -> Contender | None:
    """The fastest measured contender with these attributes."""
    found = [
        contender
        for contender in contenders
        if contender.timing is not None
        and all(getattr(contender, name) == value for name, value in wanted.items())
    ]
    return min(found, key=median, default=None)


def median(contender: Contender) -> float:
    """Median seconds of a measured contender."""
    assert contender.timing is not None
    return contender.timing.median


def peer_contenders(peer: Peer, task: NodeTask, clock: Clock) -> list[Contender]:
    """A peer with every way to run it on the device: eager, and on CUDA replayed as a graph."""
    executors = ("eager", "cuda_graph") if clock.device == "cuda" else ("eager",)
    found = [Contender(peer.family, peer.name, "floats", executor) for executor in executors]
    if peer.make is None:
        return [_failed(contender, peer.missing or "") for contender in found]
    try:
        call, kept = peer.make()
        _check_shape(call(), task)
        memory = _memory(call, kept, clock)
    except Exception as error:
        clock.recover()
        return [_failed(contender, reason_of(error)) for contender in found]
    for contender in found:
        contender.memory = memory
        captured = contender.executor == "cuda_graph"
        _make_ready(contender, call, clock, captured=captured)
        if captured and contender.ready is not None:
            contender.launched = _one_by_one(contender.ready, clock)
    return found


def emulation_contenders(
    form: str, network: Frozen, task: NodeTask, clock: Clock
) -> list[Contender]:
    """Our own layers before freezing: binary values computed in floats."""

    @torch.inference_mode()
    def call() -> Tensor:
        scores: Tensor = network.emulated(task.x, network.graph)
        return scores

    kept = (network.emulated, task.x, network.graph)
    peer = Peer(UNFROZEN, form, lambda: (call, kept))
    return peer_contenders(peer, task, clock)


def our_contenders(
    form: str,
    features: str,
    network: Frozen,
    task: NodeTask,
    clock: Clock,
    executors: Sequence[str],
    right: bool,
) -> list[Contender]:
    """A frozen network with each executor; all must give the same bits."""
    x, graph = network.inputs[features]
    eager = partial(network.model, x, graph)
    expected = eager()
    memory = _memory(eager, (network.model, graph, x), clock)
    found = []
    for name in executors:
        contender = Contender(OURS, form, features, name, memory=memory)
        found.append(contender)
        if not right:
            _failed(contender, WRONG)
            continue
        try:
            call = partial(make_executor(network.model, name), x, graph)
            scores = call()
            _check_shape(scores, task)
        except Exception as error:
            clock.recover()
            _failed(contender, reason_of(error))
            continue
        if not torch.equal(scores, expected):
            _failed(contender, WRONG)
            continue
        # A captured graph cannot be captured again: inside of one stand the calls it consists of.
        inside = eager if name == "cuda_graph" else call
        _make_ready(contender, inside, clock, captured=name != "eager")
        if name != "eager" and contender.ready is not None:
            contender.launched = _one_by_one(clock.prepare(call), clock)
    return found


def _make_ready(
    contender: Contender, call: Callable[[], Tensor], clock: Clock, *, captured: bool
) -> None:
    try:
        contender.ready = clock.prepare(call, captured=captured)
        contender.in_graph = captured
    except CaptureError as error:
        clock.recover()
        _failed(contender, reason_of(error))
    except Exception as error:
        clock.recover()
        _failed(contender, reason_of(error))


def _one_by_one(ready: Ready, clock: Clock) -> Ready | None:
    """The call with a launch of its own each time; None where that is no part of the time."""
    if ready.seconds > LONG_SECONDS:
        return None
    return replace(clock.prepare(ready.once), fn=ready.fn)


def _failed(contender: Contender, reason: str) -> Contender:
    contender.failure = reason
    return contender


def reason_of(error: Exception) -> str:
    """Kind and first line of an exception."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]


def _check_shape(scores: Tensor, task: NodeTask) -> None:
    expected = (task.num_nodes, task.num_classes)
    if tuple(scores.shape) != expected:
        raise ValueError(f"scores must be {list(expected)}, got {list(scores.shape)}")


def _memory(call: Callable[[], Any], kept: tuple[Any, ...], clock: Clock) -> dict[str, int]:
    """Of a call that ran before: caches and layouts are part of what is stored."""
    stored = stored_bytes(*kept)
    if clock.device == "cuda":
        peak = cuda_peak_allocation(call)
    else:
        with no_buffer_cache():  # results kept for reuse would not be seen
            peak = peak_allocation(call)
    return {"stored": stored, "peak_allocation": peak, "total": stored + peak}
