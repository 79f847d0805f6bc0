"""Comparisons of a benchmark: a case, its contenders timed in the same rounds, and its record."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bench.kernels import profile_call
from bench.report import format_reached
from bitgnn.measure.report import format_ratio, format_seconds
from bitgnn.measure.timing import CaptureError, Clock, Ready, Timing

Record = dict[str, Any]
WRONG = "gives a wrong result"
REASON_LENGTH = 240
KINDS = ("timing", "cold")
"""Times of a contender: caches warm, and caches emptied."""


class WrongResultError(RuntimeError):
    """A contender gives a wrong result: it gets no times."""


@dataclass(frozen=True)
class Goal:
    """A figure to reach.

    Attributes:
        kind: ``"seconds"`` or ``"bytes"`` (at most), ``"ratio"`` (times faster than ``baseline``,
            at least) or ``"rate"`` (work a second, at least).
        value: the figure.
        baseline: of a ratio; None takes the fastest one.
    """

    kind: str
    value: float
    baseline: str | None = None

    def reached(
        self,
        seconds: float | None,
        peer_seconds: float | None = None,
        *,
        rate: float | None = None,
        size: float | None = None,
    ) -> float | None:
        """The part that was reached, 1 or more where all of it was; None where not measured."""
        if self.kind == "rate":
            return None if rate is None else rate / self.value
        found = size if self.kind == "bytes" else seconds
        if found is None:
            return None
        if self.kind == "ratio":
            return None if peer_seconds is None else peer_seconds / found / self.value
        return self.value / found


@dataclass
class Contender:
    """One way to compute what a case asks for, and what was found about it.

    Attributes:
        name: what it is.
        ours: whether it is this package's.
        make: builds and checks it; the call to be timed.
        ranked: True if it counts for the ratio; else it is only shown with the others.
        details: further entries of its record.
        ready: the call, inside of a CUDA graph where it can be captured.
        in_graph: whether ``ready`` is a CUDA graph.
        failure: why it was not measured.
        times: by :data:`KINDS`.
    """

    name: str
    ours: bool
    make: Callable[[], Callable[[], Any]]
    ranked: bool = True
    details: dict[str, Any] = field(default_factory=dict)
    ready: Ready | None = None
    in_graph: bool = False
    failure: str | None = None
    times: dict[str, Timing] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        """Median seconds; None where it was not measured."""
        timing = self.times.get("timing")
        return None if timing is None else timing.median

    def prepare(self, clock: Clock, *, captured: bool | None = None) -> None:
        """Makes the call and makes it ready, or notes why it cannot be.

        ``captured`` is whether inside of a CUDA graph; None where that is possible.
        """
        try:
            call = self.make()
            try:
                self.in_graph = clock.device == "cuda" if captured is None else captured
                self.ready = clock.prepare(call, captured=self.in_graph)
            except CaptureError:
                if captured is not None:
                    raise
                clock.recover()
                self.in_graph = False
                self.ready = clock.prepare(call)
        except WrongResultError:
            self.failure = WRONG
        except Exception as error:  # the other contenders are worth having
            clock.recover()
            self.in_graph = False
            self.failure = reason_of(error)

    def record(self) -> Record:
        """Plain values for JSON."""
        times = {kind: self.times.get(kind) for kind in KINDS}
        return {
            "name": self.name,
            "in_graph": self.in_graph,
            "failure": self.failure,
            **{kind: None if t is None else t.to_dict() for kind, t in times.items()},
            **self.details,
        }


def same_call(call: Callable[[], Any]) -> Callable[[], Callable[[], Any]]:
    """How a :class:`Contender` makes a call that needs no making."""
    return lambda: call


def reason_of(error: Exception) -> str:
    """Kind and first line of an exception."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON_LENGTH]


def time_in_turns(
    contenders: Iterable[Contender], clock: Clock, repeats: int, kind: str = "timing"
) -> None:
    """Times every contender that is ready in the same rounds."""
    running = {c.name: c for c in contenders if c.ready is not None and c.failure is None}
    ready = {c.name: c.ready for c in running.values() if c.ready is not None}
    times, failed = clock.rounds(ready, repeats, cold=kind == "cold")
    for name, timing in times.items():
        running[name].times[kind] = timing
    for name, error in failed.items():
        running[name].failure = reason_of(error)


@dataclass(frozen=True)
class Skipped:
    """A comparison that could not be made here, and why."""

    group: str
    name: str
    reason: str


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        group: heading it belongs to.
        name: what is measured, with its shape.
        contenders: makes operands and contenders; called when the case's turn comes.
        goals: figures to reach.
        work: operations, bytes, edges or images of a call, for a rate.
        kinds: times to take besides those with warm caches.
        profiled: record the kernels of ours on CUDA.
        details: anything else worth keeping with the numbers.
    """

    group: str
    name: str
    contenders: Callable[[], Iterable[Contender]]
    goals: Sequence[Goal] = ()
    work: float | None = None
    kinds: Sequence[str] = ()
    profiled: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def run(self, clock: Clock, repeats: int) -> Record:
        """Makes, checks and times the contenders; one that fails is recorded with its reason.

        On CUDA each repeat is the replay of one graph of many calls where they can be captured.
        """
        start = time.perf_counter()
        found = self.measure(clock, repeats)
        for contender in found:
            contender.details |= {"ours": contender.ours, "ranked": contender.ranked}
        contenders = [contender.record() for contender in found]
        result = self.summary(found)
        del found
        clock.recover()
        gc.collect()
        return {**result, "contenders": contenders, "wall_seconds": time.perf_counter() - start}

    @torch.no_grad()
    def measure(self, clock: Clock, repeats: int) -> list[Contender]:
        """The contenders with their times."""
        found = []
        for contender in self.contenders():
            begin = time.perf_counter()
            contender.prepare(clock)
            seconds = time.perf_counter() - begin
            contender.details |= {"seconds_to_make": seconds, "kernels": None}
            found.append(contender)
        for kind in ("timing", *self.kinds):
            time_in_turns(found, clock, repeats, kind)
        for contender in found:
            if self.profiled and clock.device == "cuda" and contender.ours and contender.ready:
                # Without kernels where the profiler cannot tell.
                with contextlib.suppress(RuntimeError, ValueError):
                    contender.details["kernels"] = profile_call(contender.ready.once)
        return found

    def summary(self, contenders: Sequence[Contender]) -> Record:
        """The record of the case without those of its contenders."""
        ours, peer = fastest(contenders, ours=True), fastest(contenders, ours=False)
        seconds, peer_seconds = (None if c is None else c.median for c in (ours, peer))
        rate = self.work / seconds if seconds and self.work is not None else None
        medians = {c.name: c.median for c in contenders}
        return {
            "work": self.work,
            "seconds": seconds,
            "form": None if ours is None else ours.name,
            "peer": None if peer is None else peer.name,
            "peer_seconds": peer_seconds,
            "ratio": peer_seconds / seconds if seconds and peer_seconds else None,
            "checked": all(c.failure != WRONG for c in contenders),
            "goals": [
                {
                    **vars(goal),
                    "reached": goal.reached(
                        seconds,
                        medians.get(goal.baseline) if goal.baseline else peer_seconds,
                        rate=rate,
                    ),
                }
                for goal in self.goals
            ],
            **self.details,
        }


def fastest(contenders: Iterable[Contender], *, ours: bool) -> Contender | None:
    """The fastest measured contender of ours, or of the others, None without any."""
    found = [c for c in contenders if c.ours == ours and c.ranked and c.median is not None]
    return min(found, key=lambda c: c.median or 0.0, default=None)


def is_wrong(result: Mapping[str, Any]) -> bool:
    """True if a contender of a case gave a wrong result."""
    contenders = result.get("contenders", ())
    return any(isinstance(c, dict) and c["failure"] == WRONG for c in contenders)


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
    return f"{result['group']}: {result['name']}: {'; '.join(parts)}"
