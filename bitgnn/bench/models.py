"""The whole-model benchmark: one model on one graph, every contender in the same rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.bench.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.bench.models_floor import Rates, aggregations, floor
from bitgnn.bench.models_goals import goals, reached
from bitgnn.bench.models_ours import (
    FORMS,
    Frozen,
    check,
    executor_names,
    freeze_network,
    make_executor,
    predicted_memory,
)
from bitgnn.bench.models_peers import Peer, peers
from bitgnn.bench.models_tasks import NodeTask
from bitgnn.bench.models_timing import (
    LONG_SECONDS,
    Call,
    CaptureError,
    Clock,
    Ready,
    prepare,
    rounds,
)
from bitgnn.bench.timing import Timing
from bitgnn.ops.buffers import no_buffer_cache

__all__ = ["OURS", "PYG", "Contender", "Settings", "best", "run_case"]

OURS, PYG = "bitgnn", "PyG"
SCREENED_RATIO = 4.0
"""A peer this much slower than the fastest one is called once instead of in every round."""
SMALL_BYTES = 2**26
"""Features of graphs that are also measured with cold caches."""
REASON_LENGTH = 240


@dataclass(frozen=True)
class Settings:
    """How cases are measured.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``.
        repeats: rounds.
        rates: of the machine, None where they could not be measured.
    """

    device: str
    repeats: int
    rates: Rates | None = None


@dataclass
class Contender:
    """One way to run a model, and what was found about it.

    Attributes:
        family: ``"bitgnn"``, ``"PyG"`` or ``"Bi-GCN emulated"``.
        form: ``"bin"`` or ``"full"`` of ours, else form of the graph and arithmetic.
        features: as :class:`~bitgnn.bench.models_ours.Frozen` names them.
        executor: ``"eager"``, ``"cuda_graph"`` or ``"cooperative"``.
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
    return min(found, key=_median, default=None)


def _median(contender: Contender) -> float:
    assert contender.timing is not None
    return contender.timing.median


def run_case(
    kind: str,
    graph: str,
    task: NodeTask,
    settings: Settings,
    progress: Callable[[str], Any] = lambda name: None,
) -> dict[str, Any]:
    """Builds, checks and times every contender for one model on one graph.

    What cannot be built, captured or run is recorded with its reason; a frozen network that
    differs from the network it was frozen from gets no times.

    Args:
        kind: one of :data:`bitgnn.bench.models_tasks.MODELS`.
        graph: key of the graph.
        task: graph and features on the device.
        settings: device, rounds and rates.
        progress: gets the name of each contender as it is built.

    Returns:
        A JSON-ready record: the graph, every contender with all repeats, and for each form of ours
        the best executor beside PyG's best, the floor and the goals.
    """
    start = time.perf_counter()
    clock = Clock(settings.device)
    contenders: list[Contender] = []
    for peer in peers(kind, task):
        progress(f"{peer.family} {peer.name}")
        contenders += _peer_contenders(peer, task, clock)
    networks: dict[str, Frozen] = {}
    checks: dict[str, dict[str, Any]] = {}
    for form in FORMS:
        progress(f"{OURS} {form}")
        networks[form] = network = freeze_network(kind, form, task)
        checks[form] = {name: check(network, name, task) for name in network.inputs}
        contenders += _emulation(form, network, task, clock)
        for features in network.inputs:
            wrong = None if checks[form][features]["passed"] else "gives a wrong result"
            contenders += _our_contenders(form, features, network, task, clock, wrong)
    built = time.perf_counter() - start
    progress("rounds")
    _time(contenders, task, clock, settings.repeats)
    record = {
        "graph": graph,
        "graph_name": task.name,
        "model": kind,
        "nodes": task.num_nodes,
        "edges": task.num_edges,
        "features": task.x.size(1),
        "hidden": task.hidden_channels(kind),
        "classes": task.num_classes,
        "checked": all(c["passed"] for found in checks.values() for c in found.values()),
        "checks": checks,
        "ours": [
            _summary(kind, graph, form, features, networks[form], task, contenders, settings)
            for form in FORMS
            for features in networks[form].inputs
        ],
        "contenders": [contender.to_dict() for contender in contenders],
    }
    del contenders, networks
    gc.collect()
    if settings.device == "cuda":
        torch.cuda.empty_cache()
    record["build_seconds"] = built
    record["wall_seconds"] = time.perf_counter() - start
    return record


def _peer_contenders(peer: Peer, task: NodeTask, clock: Clock) -> list[Contender]:
    executors = ("eager", "cuda_graph") if clock.device == "cuda" else ("eager",)
    found = [Contender(peer.family, peer.name, "floats", executor) for executor in executors]
    if peer.make is None:
        return [_failed(contender, peer.missing or "") for contender in found]
    try:
        call, kept = peer.make()
        memory = _memory(call, kept, clock)
        _check_shape(call(), task)
    except Exception as error:
        _recover(clock)
        return [_failed(contender, _reason(error)) for contender in found]
    for contender in found:
        contender.memory = memory
        captured = contender.executor == "cuda_graph"
        _prepare(contender, call, clock, captured=captured)
        if captured and contender.ready is not None:
            contender.launched = _one_by_one(contender.ready, clock)
    return found


def _emulation(form: str, network: Frozen, task: NodeTask, clock: Clock) -> list[Contender]:
    """Our own layers before freezing: binary values computed in floats."""

    @torch.inference_mode()
    def call() -> Tensor:
        scores: Tensor = network.emulated(task.x, network.graph)
        return scores

    kept = (network.emulated, task.x, network.graph)
    peer = Peer("Bi-GCN emulated", f"unfrozen bitgnn {form}", lambda: (call, kept))
    return _peer_contenders(peer, task, clock)


def _our_contenders(
    form: str, features: str, network: Frozen, task: NodeTask, clock: Clock, wrong: str | None
) -> list[Contender]:
    x, graph = network.inputs[features]
    eager = partial(network.model, x, graph)
    memory = _memory(eager, (network.model, graph, x), clock)
    found = []
    for name in executor_names(clock.device):
        contender = Contender(OURS, form, features, name, memory=memory)
        found.append(contender)
        if wrong is not None:
            _failed(contender, wrong)
            continue
        try:
            call = partial(make_executor(network.model, name), x, graph)
            _check_shape(call(), task)
        except Exception as error:
            _recover(clock)
            _failed(contender, _reason(error))
            continue
        # A captured graph cannot be captured again: inside of one stand the calls it consists of.
        inside = eager if name == "cuda_graph" else call
        _prepare(contender, inside, clock, captured=name != "eager")
        if name != "eager" and contender.ready is not None:
            contender.launched = _one_by_one(prepare(Call(call), clock), clock)
    return found


def _prepare(
    contender: Contender, call: Callable[[], Tensor], clock: Clock, *, captured: bool
) -> None:
    try:
        contender.ready = prepare(Call(call, captured), clock)
        contender.in_graph = captured
    except CaptureError as error:
        _recover(clock)
        if contender.executor == "cooperative":  # one launch anyway
            contender.ready = prepare(Call(call), clock)
        else:
            _failed(contender, _reason(error))
    except Exception as error:
        _recover(clock)
        _failed(contender, _reason(error))


def _one_by_one(ready: Ready, clock: Clock) -> Ready | None:
    """The call with a launch of its own each time; None where that is no part of the time."""
    return None if ready.seconds > LONG_SECONDS else prepare(Call(ready.once), clock)


def _failed(contender: Contender, reason: str) -> Contender:
    contender.failure = reason
    return contender


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]


def _recover(clock: Clock) -> None:
    gc.collect()
    if clock.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _check_shape(scores: Tensor, task: NodeTask) -> None:
    expected = (task.num_nodes, task.num_classes)
    if tuple(scores.shape) != expected:
        raise ValueError(f"scores must be {list(expected)}, got {list(scores.shape)}")


def _memory(call: Callable[[], Any], kept: tuple[Any, ...], clock: Clock) -> dict[str, int]:
    call()  # caches and layouts are part of what is stored
    stored = stored_bytes(*kept)
    if clock.device == "cuda":
        peak = cuda_peak_allocation(call)
    else:
        with no_buffer_cache():  # results kept for reuse would not be seen
            peak = peak_allocation(call)
    return {"stored": stored, "peak_allocation": peak, "total": stored + peak}


def _time(contenders: list[Contender], task: NodeTask, clock: Clock, repeats: int) -> None:
    """Times everything in the same rounds, but peers far behind the fastest one."""
    running = [c for c in contenders if c.ready is not None]
    estimates = [c.ready.seconds for c in running if c.family == PYG and c.ready is not None]
    limit = max(LONG_SECONDS, SCREENED_RATIO * min(estimates, default=0.0))
    timed = {}
    for contender in running:
        assert contender.ready is not None
        if contender.family != OURS and contender.ready.seconds > limit:
            contender.timing = Timing((contender.ready.seconds,))
        else:
            timed[contender.name] = contender
    ready = {name: c.ready for name, c in timed.items() if c.ready is not None}
    launched = {f"{name}, launched": c.launched for name, c in timed.items() if c.launched}
    times = rounds({**ready, **launched}, clock, repeats)
    for name, contender in timed.items():
        contender.timing = times[name]
        contender.launched_timing = times.get(f"{name}, launched")
    if task.x.nbytes > SMALL_BYTES:
        return
    peer = best(contenders, family=PYG)
    chosen = [c for c in timed.values() if c is peer or (c.family == OURS and c.in_graph)]
    if clock.device == "cpu":
        chosen = [c for c in timed.values() if c is peer or c.family == OURS]
    cold = rounds({c.name: ready[c.name] for c in chosen}, clock, repeats, cold=True)
    for contender in chosen:
        contender.cold_timing = cold[contender.name]


def _summary(
    kind: str,
    graph: str,
    form: str,
    features: str,
    network: Frozen,
    task: NodeTask,
    contenders: list[Contender],
    settings: Settings,
) -> dict[str, Any]:
    """The best executor of one form of ours beside PyG's best, the floor and the goals."""
    x, adjacency = network.inputs[features]
    ours = best(contenders, family=OURS, form=form, features=features)
    peer = best(contenders, family=PYG)
    seconds = None if ours is None else _median(ours)
    peer_seconds = None if peer is None else _median(peer)
    memory = next(c.memory for c in contenders if c.family == OURS and c.form == form
                  and c.features == features)  # fmt: skip
    lowest = None
    if settings.rates is not None:
        widths = [task.x.size(1), task.hidden_channels(kind), task.num_classes]
        if kind == "GraphSAINT":  # the classes come from a linear map behind both layers
            widths[2] = widths[1]
        found = aggregations(network.model, widths, task.num_nodes, adjacency)
        weights = sum(buffer.nbytes for buffer in network.model.buffers())
        scores = task.num_nodes * task.num_classes * task.x.element_size()
        lowest = floor(x.nbytes, weights, scores, found, settings.rates)
    total = None if memory is None else float(memory["total"])
    return {
        "form": form,
        "features": features,
        "executor": None if ours is None else ours.executor,
        "seconds": seconds,
        "peer": None if peer is None else f"{peer.form}, {peer.executor}",
        "peer_seconds": peer_seconds,
        "ratio": peer_seconds / seconds if seconds and peer_seconds else None,
        "floor": None if lowest is None else lowest.to_dict(),
        "times_the_floor": seconds / lowest.seconds if seconds and lowest else None,
        "memory": memory,
        "predicted_memory": predicted_memory(network, features),
        "goals": [
            goal.to_dict(features, reached(goal, seconds, peer_seconds, total))
            for goal in goals(settings.device, kind, graph, form, features)
        ],
    }
