"""CostModel: latency of a plan as the sum of its calls' times, without running it as a whole."""

from __future__ import annotations

import statistics
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bitgnn.inference.program import Step
from bitgnn.tune.calls import call_signature, most_neighbours, time_calls
from bitgnn.tune.candidate import Candidate
from bitgnn.tune.measure import latency
from bitgnn.tune.timings import CallTime, TimingCache, canonical

__all__ = ["CostModel", "Estimate", "Part"]

OWN_COSTS = 3
"""Forwards from which an executor's own cost is taken."""
PASSES = {"cpu": 2, "cuda": 1}
"""Visits of each forward, whose mean is a call's time; others share a CPU, not a GPU."""


@dataclass(frozen=True)
class Part:
    """What one call adds to a forward.

    Attributes:
        name: layers and steps of the call.
        seconds: time on the device.
    """

    name: str
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """Expected latency of a candidate.

    Attributes:
        seconds: from the call of its executor until the result is there.
        parts: what each operator call takes of that, launches left out.
    """

    seconds: float
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        parts = ", ".join(f"{part.name} {part.seconds * 1e6:.0f} µs" for part in self.parts)
        return f"{self.seconds * 1e6:.0f} µs ({parts})"


class CostModel:
    """Adds up times of operator calls, each distinct one measured once on the graph it is for.

    On the CPU a forward takes as long as its calls. On CUDA the eager executor is host and device
    in a pipeline: a kernel begins when it has been queued and the one before it is done. The others
    launch once and then take as long as all kernels. What an executor costs by itself is measured
    on a few forwards, the fastest ones, of which it is most.

    The whole forwards that a search measures do not scale estimates: these are of its fastest plans
    alone, whose relative errors are not those of the others.

    Args:
        cache: times known already, and where new ones go.
        device: the device that is timed.
    """

    def __init__(self, cache: TimingCache, device: torch.device | str) -> None:
        self.cache = cache
        self.device = torch.device(device)
        self.num_timed = 0
        self._neighbours: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._own_costs: dict[str, list[float]] = defaultdict(list)

    def prepare(
        self, candidates: Sequence[Candidate], progress: Callable[[], Any] = lambda: None
    ) -> None:
        """Time every call of these candidates that is not known, each distinct one once.

        Forwards that hold unknown calls are visited several times in turns, so that a machine that
        changes its pace meets all calls alike.

        Args:
            candidates: whose estimates will be asked for.
            progress: called after each visit.
        """
        taken: dict[str, list[CallTime]] = {}
        signatures: dict[str, dict[str, Any]] = {}
        visits: list[tuple[Candidate, list[str]]] = []
        for candidate in candidates:
            found = [(canonical(call), call) for call in self._calls(candidate)]
            unknown = {k: c for k, c in found if k not in taken and self.cache.get(c) is None}
            if unknown:
                signatures.update(unknown)
                taken.update({key: [] for key in unknown})
                visits.append((candidate, [key if key in unknown else "" for key, _ in found]))
        for _ in range(PASSES[self.device.type]):
            for candidate, keys in visits:
                calls = candidate.frozen.repeatable_calls(candidate.x, candidate.graph)
                times = time_calls([call for _, call in calls], list(map(bool, keys)), self.device)
                for key, taken_time in zip(keys, times, strict=True):
                    if taken_time is not None:
                        taken[key].append(taken_time)
                progress()
        for key, times_of_call in taken.items():
            seconds = statistics.median(t.seconds for t in times_of_call)
            host = statistics.median(t.host for t in times_of_call)
            self.cache.put(signatures[key], CallTime(seconds, host))
        self.num_timed += len(taken)
        self.cache.save()
        for executor in dict.fromkeys(candidate.executor for candidate in candidates):
            missing = OWN_COSTS - len(self._own_costs[executor])
            if missing > 0:
                own = [candidate for candidate in candidates if candidate.executor == executor]
                for candidate in sorted(own, key=self.base)[:missing]:
                    self._learn_own_cost(candidate)

    def estimate(self, candidate: Candidate) -> Estimate:
        """Expected latency of a candidate; calls that are not known yet are timed first."""
        times = self._known(candidate)
        names = [_name(group) for group in candidate.frozen.groups(candidate.x)]
        parts = tuple(Part(n, t.seconds) for n, t in zip(names, times, strict=True))
        own = self._own_costs[candidate.executor] or [0.0]
        base = self._base(candidate.executor, times)
        return Estimate(max(base, base + statistics.median(own)), parts)

    def base(self, candidate: Candidate) -> float:
        """The sum of a candidate's calls as its executor runs them, its own cost left out."""
        return self._base(candidate.executor, self._known(candidate))

    def _learn_own_cost(self, candidate: Candidate) -> None:
        """What an executor costs by itself shows in a forward with it."""
        try:
            seconds = latency(candidate.run, self.device)
        except (RuntimeError, ValueError):
            return  # it takes no such model or graph
        self._own_costs[candidate.executor].append(seconds - self.base(candidate))

    def _base(self, executor: str, times: Sequence[CallTime]) -> float:
        """Time of the calls as the executor runs them, without what it costs by itself."""
        if self.device.type == "cuda" and executor == "eager":
            return _pipelined(times)
        return sum(call.seconds for call in times)

    def _known(self, candidate: Candidate) -> list[CallTime]:
        """Times of the candidate's calls, measured first where they are not there."""
        times = self._times(candidate)
        if times is None:
            self.prepare([candidate])
            times = self._times(candidate)
            assert times is not None
        return times

    def _times(self, candidate: Candidate) -> list[CallTime] | None:
        found = [self.cache.get(call) for call in self._calls(candidate)]
        known = [time for time in found if time is not None]
        return known if len(known) == len(found) else None

    def _calls(self, candidate: Candidate) -> list[dict[str, Any]]:
        frozen, x, graph = candidate.frozen, candidate.x, candidate.graph
        neighbours = self._most_neighbours(graph)
        return [
            call_signature(frozen, group, x, graph, candidate.plan.method, neighbours)
            for group in frozen.groups(x)
        ]

    def _most_neighbours(self, graph: Any) -> int:
        """Found once for each graph, which is not kept for it."""
        if graph is None:
            return 0
        known, most = self._neighbours.get(id(graph), (None, 0))
        if known is None or known() is not graph:
            most = most_neighbours(graph)
            self._neighbours[id(graph)] = (weakref.ref(graph), most)
        return most


def _pipelined(times: Sequence[CallTime]) -> float:
    """End of the last kernel where each begins once it is queued and the one before is done."""
    queued = end = 0.0
    for call in times:
        queued += call.host
        end = max(queued, end) + call.seconds
    return end


def _name(group: Sequence[Step]) -> str:
    layers = dict.fromkeys(step.layer for step in group)
    return f"{'+'.join(layers)} {'>'.join(step.kind for step in group)}"
