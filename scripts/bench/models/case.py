"""The whole-model benchmark: one model on one graph, every contender in the same rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.models.contenders import (
    OURS,
    WRONG,
    Contender,
    best,
    emulation_contenders,
    median,
    our_contenders,
    peer_contenders,
    reason_of,
)
from bench.models.floor import Rates, aggregations, floor
from bench.models.goals import goals, reached
from bench.models.ours import (
    EXECUTORS,
    FORMS,
    Frozen,
    check,
    freeze_network,
    predicted_memory,
)
from bench.models.peers import PYG, peers
from bench.tasks import NodeTask
from bitgnn.measure.clock import LONG_SECONDS, Clock
from bitgnn.measure.timing import Timing

SCREENED_RATIO = 2.0
"""A peer this much slower than the fastest one is called once instead of in every round."""
SMALL_BYTES = 2**26
"""Features of graphs that are also measured with cold caches."""


@dataclass(frozen=True)
class Settings:
    """How cases are measured.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``.
        repeats: rounds.
        rates: of the machine, None where they could not be measured.
        executors: names of the executors of ours; None for all there are on the device.
    """

    device: str
    repeats: int
    rates: Rates | None = None
    executors: tuple[str, ...] | None = None


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

    Returns:
        A JSON-ready record: the graph, every contender with all repeats, and for each form of ours
        the best executor beside PyG's best, the floor and the goals.
    """
    start = time.perf_counter()
    clock = Clock(settings.device)
    names = settings.executors or EXECUTORS[settings.device]
    contenders: list[Contender] = []
    for peer in peers(kind, task):
        progress(f"{peer.family} {peer.name}")
        contenders += peer_contenders(peer, task, clock)
    networks: dict[str, Frozen] = {}
    checks: dict[str, dict[str, Any]] = {}
    for form in FORMS:
        progress(f"{OURS} {form}")
        networks[form] = network = freeze_network(kind, form, task)
        checks[form] = {name: check(network, name, task) for name in network.inputs}
        contenders += emulation_contenders(form, network, task, clock)
        for features in network.inputs:
            right = checks[form][features]["passed"]
            contenders += our_contenders(form, features, network, task, clock, names, right)
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
        "checked": all(contender.failure != WRONG for contender in contenders),
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
    times, failed = clock.rounds({**ready, **launched}, repeats)
    for name, contender in timed.items():
        contender.timing = times.get(name)
        contender.launched_timing = times.get(f"{name}, launched")
        if name in failed:
            contender.failure = reason_of(failed[name])
    if task.x.nbytes > SMALL_BYTES:
        return
    peer = best(contenders, family=PYG)
    wanted = [c for c in timed.values() if c is peer or c.family == OURS]
    if clock.device == "cuda":
        wanted = [c for c in wanted if c.in_graph]
    chosen = {c.name: c for c in wanted if c.timing is not None}
    cold, _ = clock.rounds({name: ready[name] for name in chosen}, repeats, cold=True)
    for name, timing in cold.items():
        chosen[name].cold_timing = timing


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
    seconds = None if ours is None else median(ours)
    peer_seconds = None if peer is None else median(peer)
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
