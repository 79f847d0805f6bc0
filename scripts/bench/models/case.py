"""The whole-model benchmark: one model on one graph, every contender in the same rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import torch

from bench.cases import WRONG, Contender, Record, time_in_turns
from bench.models.contenders import (
    OURS,
    UNFROZEN,
    fastest,
    is_like,
    our_contenders,
    peer_contenders,
    unfrozen_call,
)
from bench.models.floor import Rates, aggregations, floor
from bench.models.goals import goals
from bench.models.networks import pyg_model
from bench.models.ours import EXECUTORS, FORMS, Frozen, check, freeze_network
from bench.models.peers import PYG, Peer, peers
from bench.models.waits import add_calls
from bench.tasks import NodeTask
from bitgnn.measure.memory import stored_bytes
from bitgnn.measure.report import format_ratio, format_seconds
from bitgnn.measure.timing import LONG_SECONDS, Clock, Timing

SCREENED_RATIO = 2.0
"""A peer this much slower than the fastest one is called once instead of in every round."""
SMALL_BYTES = 2**26
"""Features of graphs that are also measured with cold caches."""


@dataclass(frozen=True)
class Networks:
    """How networks of ours are made and judged.

    Attributes:
        forms: names of what is made.
        freeze: a network of a kind and form for a task, frozen.
        check: compares a frozen network, with features in a form, with the trained one.
        takes: tells if a peer is measured with them.
        unfrozen: True if the networks before freezing are measured, too.
    """

    forms: tuple[str, ...]
    freeze: Callable[[str, str, NodeTask], Frozen]
    check: Callable[[Frozen, str, NodeTask], Record]
    takes: Callable[[Peer], bool] = bool
    unfrozen: bool = True


PAPERS = Networks(FORMS, freeze_network, check)


@dataclass(frozen=True)
class ModelCase:
    """A model on a graph.

    Attributes:
        kind: name of the model.
        graph: key of the graph.
        load: the graph.
        rates: of the machine, None where they could not be measured.
        networks: how ours are made and judged.
        threads: of torch on a CPU, None for those that it has.
    """

    kind: str
    graph: str
    load: Callable[[], NodeTask]
    rates: Rates | None = None
    networks: Networks = PAPERS
    threads: int | None = None

    group = "models"

    @property
    def name(self) -> str:
        """Model and graph, and the threads where they are chosen."""
        threads = "" if self.threads is None else f", threads: {self.threads}"
        return f"{self.kind} on {self.graph}{threads}"

    def run(self, clock: Clock, repeats: int) -> Record:
        """Builds, checks and times every contender.

        What cannot be built, captured or run is recorded with its reason; a frozen network that
        differs from the network it was frozen from gets no times.
        """
        with _threads(self.threads) as all_threads:
            return self._run(clock, repeats, all_threads)

    def _run(self, clock: Clock, repeats: int, all_threads: int) -> Record:
        task, start = self.load(), time.perf_counter()
        freeze = self.networks.freeze
        with _threads(all_threads):  # it may train
            networks = {form: freeze(self.kind, form, task) for form in self.networks.forms}
        contenders: list[Contender] = []
        for peer in filter(self.networks.takes, peers(self.kind, task)):
            contenders += peer_contenders(peer, task, clock)
        checks: dict[str, Record] = {}
        for form, network in networks.items():
            checks[form] = {
                name: self.networks.check(network, name, task) for name in network.inputs
            }
            if self.networks.unfrozen:
                unfrozen = Peer(UNFROZEN, form, partial(unfrozen_call, network, task))
                contenders += peer_contenders(unfrozen, task, clock)
            for name in network.inputs:
                is_right = checks[form][name]["passed"]
                contenders += our_contenders(form, name, network, task, clock, is_right)
        built = time.perf_counter() - start
        _time(contenders, task, clock, repeats)
        ours = [
            self._summary(form, name, network, task, contenders, clock.device)
            for form, network in networks.items()
            for name in network.inputs
        ]
        executors = EXECUTORS[clock.device]
        best = {name: fastest(contenders, family=PYG, executor=name) for name in executors}
        record = {
            "graph": self.graph,
            "graph_name": task.name,
            "model": self.kind,
            "nodes": task.num_nodes,
            "edges": task.num_edges,
            "features": task.x.size(1),
            "hidden": task.hidden_channels(self.kind),
            "classes": task.num_classes,
            "threads": torch.get_num_threads(),
            "checked": all(contender.failure != WRONG for contender in contenders),
            "checks": checks,
            "training": {form: network.training for form, network in networks.items()},
            "ours": ours,
            "peer_weight_bytes": sum(p.nbytes for p in pyg_model(self.kind, task).parameters()),
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
        """The best executor of one form of ours against PyG's best, the floor and the goals."""
        x, adjacency = network.inputs[features]
        of_form = [c for c in contenders if is_like(c, family=OURS, form=form, features=features)]
        ours, peer = fastest(of_form), fastest(contenders, family=PYG)
        seconds = None if ours is None else ours.median
        peer_seconds = None if peer is None else peer.median
        memory = of_form[0].details["memory"]
        feature_bytes = stored_bytes(x)
        lowest = None
        if self.rates is not None:
            widths = [task.x.size(1), task.hidden_channels(self.kind), task.num_classes]
            if self.kind == "GraphSAINT":  # the classes come from a linear map behind both layers
                widths[2] = widths[1]
            found = aggregations(network.model, widths, task.num_nodes, adjacency)
            weights = sum(buffer.nbytes for buffer in network.model.buffers())
            scores = task.num_nodes * task.num_classes * task.x.element_size()
            lowest = floor(feature_bytes, weights, scores, found, self.rates)
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
            "weight_bytes": network.model.nbytes,
            "feature_bytes": feature_bytes,
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
                if self.networks is PAPERS
            ],
        }


@contextmanager
def _threads(number: int | None) -> Iterator[int]:
    """Torch's threads inside; None leaves them as they are. Gives those outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def _time(contenders: list[Contender], task: NodeTask, clock: Clock, repeats: int) -> None:
    """Times everything in the same rounds, except peers far slower than the fastest one."""
    estimates = {c.name: c.ready.seconds for c in contenders if c.ready is not None}
    of_pyg = [
        estimates[c.name] for c in contenders if c.name in estimates and is_like(c, family=PYG)
    ]
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
    peer = fastest(contenders, family=PYG)
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
