"""A case of the benchmark of binary networks: ours and its peers in the same timed rounds."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from bench.cases import Goal
from bench.models.contenders import WRONG, reason_of
from bench.networks.kernels import profile_call
from bench.report import format_reached
from bitgnn.measure.clock import CaptureError, Clock, Ready
from bitgnn.measure.report import format_ratio, format_seconds
from bitgnn.measure.timing import Timing

LATENCY_IMAGES = 8

FLOAT16 = "cuDNN fp16"

CONV_GOALS: Mapping[int, tuple[Goal, ...]] = {
    128: (Goal("ratio", 4.0, FLOAT16),),
    640: (Goal("seconds", 78e-6), Goal("ratio", 8.0, FLOAT16)),
    2048: (Goal("ratio", 9.0, FLOAT16),),
}
"""Bits in and out, 3x3, 16 images of 64x64, by channels."""

NETWORK_GOALS: Mapping[str, tuple[float, float]] = {
    "mlp": (8e-6, 80e6),
    "vgg": (35e-6, 1e6),
    "resnet14": (55e-6, 1.6e6),
    "alexnet": (75e-6, 250e3),
    "vgg16": (260e-6, 40e3),
    "resnet18": (85e-6, 290e3),
}
"""Seconds of 8 images, and images a second of a large batch, on an H200."""
TIMES_FASTER = 3.0
"""Than the same structure compiled in fp16, in latency and in throughput."""

CPU_LAYER_GOALS: Mapping[str, tuple[Goal, ...]] = {"128 to 128, 3x3, 56x56": (Goal("ratio", 10.0),)}
CPU_NETWORK_GOALS: Mapping[str, tuple[Goal, ...]] = {"resnet18": (Goal("ratio", 6.0),)}
"""Times faster than torch in fp32 on two cores."""


class WrongResultError(RuntimeError):
    """An entry gives a wrong result: it gets no times."""


def graph_clock(device: str) -> Clock:
    """A clock whose repeats on CUDA hold some twenty calls of a network or more of a layer."""
    return Clock(device, 4e-3 if device == "cuda" else None)


@dataclass(frozen=True)
class Entry:
    """One way to compute what a case asks for.

    Attributes:
        name: what it is.
        ours: whether it is this package's.
        make: builds and checks it; the call to be timed.
        ranked: whether it counts for the ratio: else it is there to be read beside the others.
    """

    name: str
    ours: bool
    make: Callable[[], Callable[[], Any]]
    ranked: bool = True


@dataclass(frozen=True)
class BnnCase:
    """One comparison.

    Attributes:
        group: heading it belongs to.
        name: what is measured, with its shape.
        entries: makes operands and entries; called when the case's turn comes.
        goals: figures to reach.
        work: images of a call, for a rate.
        cold: measure single calls with emptied caches too.
        launched: measure calls that Python launches one by one too.
        profiled: record the kernels of ours on CUDA.
        details: anything else worth keeping with the numbers.
    """

    group: str
    name: str
    entries: Callable[[], Iterable[Entry]]
    goals: tuple[Goal, ...] = ()
    work: float | None = None
    cold: bool = False
    launched: bool = False
    profiled: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other cases."""
        return self.group, self.name


@dataclass
class _Found:
    """What was found about one entry."""

    entry: Entry
    ready: Ready | None = None
    in_graph: bool = False
    failure: str | None = None
    seconds_to_make: float = 0.0
    times: dict[str, Timing] = field(default_factory=dict)
    kernels: list[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        kinds = ("timing", "cold", "launched")
        return {
            "name": self.entry.name,
            "ours": self.entry.ours,
            "ranked": self.entry.ranked,
            "in_graph": self.in_graph,
            "failure": self.failure,
            "seconds_to_make": self.seconds_to_make,
            **{k: self.times[k].to_dict() if k in self.times else None for k in kinds},
            "kernels": self.kernels,
        }


def run_case(
    case: BnnCase,
    clock: Clock,
    repeats: int,
    progress: Callable[[str], Any] = lambda name: None,
) -> dict[str, Any]:
    """Builds, checks and times the entries of a case; one that fails is recorded with its reason.

    On CUDA each repeat is the replay of one graph of many calls where they can be captured.

    Returns:
        A JSON-ready record with all repeats of all entries, the fastest of ours, of the peers, and
        for each goal the part that was reached, 1 or more where all of it was.
    """
    start = time.perf_counter()
    found: list[_Found] = []
    with torch.no_grad():
        for entry in case.entries():
            progress(entry.name)
            found.append(_made(entry, clock))
        progress("rounds")
        _time(case, found, clock, repeats)
        _profile(case, found, clock)
    contenders = [entry.to_dict() for entry in found]
    del found
    clock.recover()
    gc.collect()
    return summary(case, contenders) | {"wall_seconds": time.perf_counter() - start}


def _made(entry: Entry, clock: Clock) -> _Found:
    start = time.perf_counter()
    found = _Found(entry)
    try:
        call = entry.make()
        on_cuda = clock.device == "cuda"
        try:
            found.ready = clock.prepare(call, captured=on_cuda)
            found.in_graph = on_cuda
        except CaptureError:
            clock.recover()
            found.ready = clock.prepare(call)
    except torch.AcceleratorError:
        raise
    except WrongResultError:
        found.failure = WRONG
    except Exception as error:  # the other entries are worth having
        clock.recover()
        found.failure = reason_of(error)
    found.seconds_to_make = time.perf_counter() - start
    return found


def _time(case: BnnCase, found: list[_Found], clock: Clock, repeats: int) -> None:
    """Times every entry that runs in the same rounds."""
    running = {entry.entry.name: entry for entry in found if entry.ready is not None}
    ready = {name: entry.ready for name, entry in running.items() if entry.ready is not None}
    if not ready:
        return
    kinds = {"timing": (ready, False)}
    if case.cold:
        kinds["cold"] = (ready, True)
    if case.launched:
        kinds["launched"] = ({n: clock.prepare(r.once) for n, r in ready.items()}, False)
    for kind, (calls, cold) in kinds.items():
        times, failed = clock.rounds(calls, repeats, cold=cold)
        for name, timing in times.items():
            running[name].times[kind] = timing
        for name, error in failed.items():
            running[name].failure = reason_of(error)


def _profile(case: BnnCase, found: list[_Found], clock: Clock) -> None:
    """Adds the kernels of each entry of ours; without them where the profiler cannot tell."""
    if not case.profiled or clock.device != "cuda":
        return
    for entry in found:
        if entry.entry.ours and entry.ready is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                entry.kernels = profile_call(entry.ready.once)


def best(contenders: Iterable[Mapping[str, Any]], *, ours: bool) -> Mapping[str, Any] | None:
    """The fastest measured contender of ours, or of the others, None without any."""
    measured = [
        c for c in contenders if c["ours"] == ours and c["ranked"] and c["timing"] is not None
    ]
    return min(measured, key=lambda c: c["timing"]["median"], default=None)


def summary(case: BnnCase, contenders: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a case from those of its contenders."""
    ours, peer = best(contenders, ours=True), best(contenders, ours=False)
    seconds = None if ours is None else ours["timing"]["median"]
    peer_seconds = None if peer is None else peer["timing"]["median"]
    ratio = peer_seconds / seconds if seconds and peer_seconds else None
    rate = case.work / seconds if seconds and case.work is not None else None
    return {
        "group": case.group,
        "name": case.name,
        "work": case.work,
        "seconds": seconds,
        "form": None if ours is None else ours["name"],
        "peer": None if peer is None else peer["name"],
        "peer_seconds": peer_seconds,
        "ratio": ratio,
        "checked": all(c["failure"] != WRONG for c in contenders),
        "goals": [
            {
                "kind": goal.kind,
                "value": goal.value,
                "baseline": goal.baseline,
                "reached": goal.reached(seconds, _seconds_of(goal, contenders, peer), rate),
            }
            for goal in case.goals
        ],
        "contenders": contenders,
        **case.details,
    }


def _seconds_of(
    goal: Goal, contenders: Iterable[Mapping[str, Any]], peer: Mapping[str, Any] | None
) -> float | None:
    """Of the peer that a goal names, else of the fastest one."""
    named = [c for c in contenders if c["name"] == goal.baseline]
    chosen = next(iter(named), None) if goal.baseline is not None else peer
    if chosen is None or chosen["timing"] is None:
        return None
    seconds: float = chosen["timing"]["median"]
    return seconds


def describe(result: Mapping[str, Any]) -> str:
    """One line of a record for the terminal: every contender, the ratio, what was reached."""
    parts = []
    for c in result["contenders"]:
        if c["timing"] is None:
            parts.append(f"{c['name']}: {c['failure']}")
        else:
            parts.append(f"{c['name']} {format_seconds(c['timing']['median'])}")
    if result["ratio"] is not None:
        parts.append(format_ratio(result["ratio"]))
    shares = [goal["reached"] for goal in result["goals"] if goal["reached"]]
    parts += [f"{format_reached(share)} of the goal" for share in shares]
    return (
        f"{result['group']}: {result['name']}: {'; '.join(parts)} ({result['wall_seconds']:.1f} s)"
    )
