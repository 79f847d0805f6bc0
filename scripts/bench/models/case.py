"""The whole-model benchmark: one model on one graph, every contender in the same rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.cases import (
    WRONG,
    Contender,
    Record,
    WrongResultError,
    reason_of,
    same_call,
    time_in_turns,
)
from bench.models.floor import Rates, aggregations, floor
from bench.models.goals import goals
from bench.models.ours import EXECUTORS, FORMS, Frozen, check, freeze_network, make_executor
from bench.models.peers import PYG, Peer, peers
from bench.models.waits import add_calls
from bench.tasks import NodeTask
from bitgnn.inference import frozen_memory
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.report import format_ratio, format_seconds
from bitgnn.measure.timing import LONG_SECONDS, Clock, Timing
from bitgnn.ops.buffers import no_buffer_cache

OURS, UNFROZEN = "bitgnn", "bitgnn unfrozen"
SCREENED_RATIO = 2.0
"""A peer this much slower than the fastest one is called once instead of in every round."""
SMALL_BYTES = 2**26
"""Features of graphs that are also measured with cold caches."""


@dataclass(frozen=True)
class ModelCase:
    """A model on a graph.

    Attributes:
        kind: name of the model.
        graph: key of the graph.
        load: the graph.
        rates: of the machine, None where they could not be measured.
    """

    kind: str
    graph: str
    load: Callable[[], NodeTask]
    rates: Rates | None = None

    group = "models"

    @property
    def name(self) -> str:
        """Model and graph."""
        return f"{self.kind} on {self.graph}"

    def run(self, clock: Clock, repeats: int) -> Record:
        """Builds, checks and times every contender.

        What cannot be built, captured or run is recorded with its reason; a frozen network that
        differs from the network it was frozen from gets no times.
        """
        task, start = self.load(), time.perf_counter()
        contenders: list[Contender] = []
        for peer in peers(self.kind, task):
            contenders += _peer_contenders(peer, task, clock)
        networks = {form: freeze_network(self.kind, form, task) for form in FORMS}
        checks: dict[str, dict[str, Any]] = {}
        for form, network in networks.items():
            checks[form] = {name: check(network, name, task) for name in network.inputs}
            unfrozen = Peer(UNFROZEN, form, partial(_unfrozen, network, task))
            contenders += _peer_contenders(unfrozen, task, clock)
            for name in network.inputs:
                is_right = checks[form][name]["passed"]
                contenders += _our_contenders(form, name, network, task, clock, is_right)
        built = time.perf_counter() - start
        _time(contenders, task, clock, repeats)
        ours = [
            self._summary(form, name, network, task, contenders, clock.device)
            for form, network in networks.items()
            for name in network.inputs
        ]
        executors = EXECUTORS[clock.device]
        best = {name: _fastest(contenders, family=PYG, executor=name) for name in executors}
        record = {
            "graph": self.graph,
            "graph_name": task.name,
            "model": self.kind,
            "nodes": task.num_nodes,
            "edges": task.num_edges,
            "features": task.x.size(1),
            "hidden": task.hidden_channels(self.kind),
            "classes": task.num_classes,
            "checked": all(contender.failure != WRONG for contender in contenders),
            "checks": checks,
            "ours": ours,
            "peer_calls": add_calls(ours, networks, best, clock),
            "contenders": [contender.record() for contender in contenders],
        }
        del contenders, networks, network, best
        gc.collect()
        clock.recover()
        return {**record, "build_seconds": built, "wall_seconds": time.perf_counter() - start}

    def _summary(
        self,
        form: str,
        features: str,
        network: Frozen,
        task: NodeTask,
        contenders: list[Contender],
        device: str,
    ) -> Record:
        """The best executor of one form of ours beside PyG's best, the floor and the goals."""
        x, adjacency = network.inputs[features]
        of_form = [c for c in contenders if _is(c, family=OURS, form=form, features=features)]
        ours, peer = _fastest(of_form), _fastest(contenders, family=PYG)
        seconds = None if ours is None else ours.median
        peer_seconds = None if peer is None else peer.median
        memory = of_form[0].details["memory"]
        lowest = None
        if self.rates is not None:
            widths = [task.x.size(1), task.hidden_channels(self.kind), task.num_classes]
            if self.kind == "GraphSAINT":  # the classes come from a linear map behind both layers
                widths[2] = widths[1]
            found = aggregations(network.model, widths, task.num_nodes, adjacency)
            weights = sum(buffer.nbytes for buffer in network.model.buffers())
            scores = task.num_nodes * task.num_classes * task.x.element_size()
            lowest = floor(x.nbytes, weights, scores, found, self.rates)
        return {
            "form": form,
            "features": features,
            "executor": None if ours is None else ours.details["executor"],
            "seconds": seconds,
            "peer": None if peer is None else "{form}, {executor}".format(**peer.details),
            "peer_seconds": peer_seconds,
            "ratio": peer_seconds / seconds if seconds and peer_seconds else None,
            "floor": None if lowest is None else asdict(lowest),
            "times_the_floor": seconds / lowest.seconds if seconds and lowest else None,
            "memory": memory,
            "predicted_memory": frozen_memory(network.model, x, adjacency).to_dict(),
            "goals": [
                {
                    "kind": goal.kind,
                    "value": goal.value,
                    "form": form,
                    "features": features,
                    "reached": goal.reached(
                        seconds, peer_seconds, size=None if memory is None else memory["total"]
                    ),
                }
                for goal in goals(device, self.kind, self.graph, form, features)
            ],
        }


def _is(contender: Contender, **wanted: str) -> bool:
    return all(contender.details[name] == value for name, value in wanted.items())


def _fastest(contenders: Iterable[Contender], **wanted: str) -> Contender | None:
    """The fastest measured contender with these details."""
    found = [c for c in contenders if c.median is not None and _is(c, **wanted)]
    return min(found, key=lambda c: c.median or 0.0, default=None)


def _contender(family: str, form: str, features: str, executor: str) -> Contender:
    """One that is not made yet."""
    details = {"family": family, "form": form, "features": features, "executor": executor}
    name = f"{family} {form}, {features}, {executor}"
    return Contender(name, family == OURS, lambda: print, details={**details, "memory": None})


def _peer_contenders(peer: Peer, task: NodeTask, clock: Clock) -> list[Contender]:
    """A peer with every way to run it on the device: eager, and on CUDA replayed as a graph."""
    executors = EXECUTORS[clock.device]
    found = [_contender(peer.family, peer.name, "floats", executor) for executor in executors]
    failure = peer.missing
    if peer.make is not None:
        try:
            call, kept = peer.make()
            _check_shape(call(), task)
            memory = _memory(call, kept, clock)
        except Exception as error:
            clock.recover()
            failure = reason_of(error)
    for contender in found:
        contender.failure = failure
        if failure is None:
            contender.make, contender.details["memory"] = same_call(call), memory
            contender.prepare(clock, captured=_is(contender, executor="cuda_graph"))
    return found


def _unfrozen(network: Frozen, task: NodeTask) -> tuple[Callable[[], Tensor], tuple[Any, ...]]:
    """Our own layers before freezing: binary values computed in floats."""

    @torch.inference_mode()
    def call() -> Tensor:
        scores: Tensor = network.emulated(task.x, network.graph)
        return scores

    return call, (network.emulated, task.x, network.graph)


def _our_contenders(
    form: str, features: str, network: Frozen, task: NodeTask, clock: Clock, is_right: bool
) -> list[Contender]:
    """A frozen network with each executor; all must give the same bits."""
    x, graph = network.inputs[features]
    eager = partial(network.model, x, graph)
    expected = eager()
    memory = _memory(eager, (network.model, graph, x), clock)

    def make(contender: Contender) -> Callable[[], Tensor]:
        if not is_right:
            raise WrongResultError
        executor = contender.details["executor"]
        call = partial(make_executor(network.model, executor), x, graph)
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


def _memory(call: Callable[[], Any], kept: tuple[Any, ...], clock: Clock) -> dict[str, int]:
    """Of a call that ran before: caches and layouts are part of what is stored."""
    stored = stored_bytes(*kept)
    if clock.device == "cuda":
        peak = cuda_peak_allocation(call)
    else:
        with no_buffer_cache():  # results kept for reuse would not be seen
            peak = peak_allocation(call)
    return {"stored": stored, "peak_allocation": peak, "total": stored + peak}


def _time(contenders: list[Contender], task: NodeTask, clock: Clock, repeats: int) -> None:
    """Times everything in the same rounds, but peers far behind the fastest one."""
    estimates = {c.name: c.ready.seconds for c in contenders if c.ready is not None}
    of_pyg = [estimates[c.name] for c in contenders if c.name in estimates and _is(c, family=PYG)]
    limit = max(LONG_SECONDS, SCREENED_RATIO * min(of_pyg, default=0.0))
    timed = []
    for contender in contenders:
        seconds = estimates.get(contender.name, 0.0)
        if not contender.ours and seconds > limit:
            contender.times["timing"] = Timing((seconds,))
        elif contender.ready is not None:
            timed.append(contender)
    time_in_turns(timed, clock, repeats)
    if task.x.nbytes > SMALL_BYTES:
        return
    peer = _fastest(contenders, family=PYG)
    on_cuda = clock.device == "cuda"
    cold = [c for c in timed if (c is peer or c.ours) and c.in_graph == on_cuda]
    time_in_turns(cold, clock, repeats, "cold")


def describe(result: Record) -> str:
    """One line of a case for the terminal."""
    parts = []
    for ours in result["ours"]:
        if ours["seconds"] is not None:
            ratio = "" if ours["ratio"] is None else f" {format_ratio(ours['ratio'])}"
            parts.append(
                f"{ours['form']} {ours['features']} {format_seconds(ours['seconds'])}{ratio}"
            )
    failed = sum(c["failure"] is not None for c in result["contenders"])
    return (
        f"{result['model']}, {result['graph_name']}: {'; '.join(parts)} "
        f"({failed} contenders not measured, {result['wall_seconds']:.1f} s)"
    )
