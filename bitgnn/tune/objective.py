"""A user's goal for the tuner: an objective, limits that plans must keep, and a budget of time."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Objective = Literal["latency", "memory", "accuracy"]
"""What the recommended plan is best at, among those that keep every limit."""

_UNITS = {
    "latency": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    "memory": {
        "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    },
    "accuracy drop": {"%": 0.01, "points": 0.01},
}  # fmt: skip
_BUDGETS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER = r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*"
_LIMIT = re.compile(
    rf"\s*(?P<what>latency|memory|accuracy\s+drop)\s*<=\s*{_NUMBER}(?P<unit>[a-zµ%]+)\s*",
    re.IGNORECASE,
)
_TIME = re.compile(rf"\s*{_NUMBER}(?P<unit>[a-z]*)\s*", re.IGNORECASE)
DIGITS = 9
"""Of differences of accuracy: 79.8 % less 78.8 % is one point, whatever floats make of it."""
PROCESS_FILE = Path("/proc/self/stat")
BEGIN_FIELD = 19
"""Place of the begin of the process behind its name, in ticks since the system began."""
SMOOTHING = 0.5
"""Weight of the last piece of work in the expectation of the next one of its kind."""


class ObjectiveError(ValueError):
    """An objective or a limit that cannot be read, or that no plan can meet."""


@dataclass(frozen=True)
class Measures:
    """Measurements of a plan.

    Attributes:
        accuracy: score on the validation nodes, from 0 to 1.
        latency: seconds of a forward.
        memory: bytes at the peak of a forward, graph, features and weights included.
    """

    accuracy: float
    latency: float
    memory: float

    def dominates(self, other: Measures) -> bool:
        """True if it is nowhere worse than another, and somewhere better."""
        pairs = list(zip(self._costs, other._costs, strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    def rank(self, objective: Objective) -> tuple[float, ...]:
        """Sort key, best first: by the objective, then by the other measures."""
        drop, latency, memory = self._costs
        orders = {
            "latency": (latency, drop, memory),
            "memory": (memory, drop, latency),
            "accuracy": (drop, latency, memory),
        }
        return orders[objective]

    @property
    def _costs(self) -> tuple[float, float, float]:
        return -self.accuracy, self.latency, self.memory


@dataclass(frozen=True)
class Constraint:
    """An upper limit.

    Attributes:
        what: ``"latency"`` in seconds, ``"memory"`` in bytes, or ``"accuracy drop"``, the loss of
            validation score against the reference, as a share: 0.01 for one percentage point.
        limit: largest value that is allowed.
    """

    what: Literal["latency", "memory", "accuracy drop"]
    limit: float

    def __post_init__(self) -> None:
        if self.what not in _UNITS:
            raise ObjectiveError(
                f"constraint: what must be one of {list(_UNITS)}, got {self.what!r}"
            )
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise ObjectiveError(
                f"constraint: the limit of {self.what} must be finite and at least 0, "
                f"got {self.limit}"
            )

    @classmethod
    def parse(cls, text: str | Constraint) -> Constraint:
        """Read ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or ``"accuracy drop <= 1%"``.

        Units are s, ms, us, ns; B, KB, MB, GB, KiB, MiB, GiB; and % (percentage points).
        """
        if isinstance(text, Constraint):
            return text
        match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
        what = " ".join(match["what"].lower().split()) if match else ""
        factor = _UNITS[what].get(match["unit"].lower()) if match else None
        if match is None or factor is None:
            forms = "'latency <= 2 ms', 'memory <= 10 MB' or 'accuracy drop <= 1%'"
            raise ObjectiveError(f"constraint must have the form {forms}, got {text!r}")
        limit = float(match["number"]) * factor
        if what == "accuracy drop":
            limit = round(limit, DIGITS)
        return cls(what, limit)  # type: ignore[arg-type]

    def value(self, measures: Measures, reference: float) -> float:
        """The limited quantity of a plan; losses count from the score ``reference``."""
        if self.what == "accuracy drop":
            return round(reference - measures.accuracy, DIGITS)
        return measures.latency if self.what == "latency" else measures.memory

    def is_met(self, measures: Measures, reference: float) -> bool:
        """True if a plan keeps the limit; a NaN score never does."""
        return self.value(measures, reference) <= self.limit

    def show(self, value: float) -> str:
        """A value of this quantity in readable units."""
        if self.what == "accuracy drop":
            return f"{100 * value:.2f}%"
        units = ("s", "ms", "us", "ns") if self.what == "latency" else ("GB", "MB", "KB", "B")
        scales = [(unit, _UNITS[self.what][unit.lower()]) for unit in units]
        unit, scale = next((pair for pair in scales if abs(value) >= pair[1]), scales[-1])
        return f"{value / scale:.3g} {unit}"

    def __str__(self) -> str:
        return f"{self.what} <= {self.show(self.limit)}"


@dataclass(frozen=True)
class Goal:
    """Objective and limits of plans; losses of accuracy count from the score ``reference``."""

    objective: Objective
    constraints: tuple[Constraint, ...]
    reference: float = math.nan

    @classmethod
    def read(cls, objective: str, limits: str | Constraint | Iterable[str | Constraint]) -> Goal:
        """Read objective and limits as a user writes them; a single limit needs no list."""
        several = [limits] if isinstance(limits, str | Constraint) else limits
        constraints = tuple(Constraint.parse(limit) for limit in several)
        if objective not in get_args(Objective):
            raise ObjectiveError(
                f"objective must be one of {list(get_args(Objective))}, got {objective!r}"
            )
        return cls(objective, constraints)  # type: ignore[arg-type]

    def meets(self, measures: Measures) -> bool:
        """True if every limit is kept."""
        return all(limit.is_met(measures, self.reference) for limit in self.constraints)

    def preference(self, measures: Measures) -> tuple[float, ...]:
        """Sort key, best first: plans that keep every limit, then those that miss by least."""
        excess = [self._excess(limit, measures) for limit in self.constraints]
        return max([0.0, *excess]), *measures.rank(self.objective)

    def explain_unmet(self, points: Iterable[Measures]) -> str:
        """Name the limits that no plan keeps, and by how much the nearest one misses them.

        Of every limit that cannot be kept alone, the nearest value. Where each can be kept alone:
        the limit that a plan which keeps the others misses by the smallest share, or what the plan
        that comes nearest to all of them misses.
        """
        found = list(points)
        if not found:
            return "no plan is left to choose from"
        missed = []
        for limit in self.constraints:
            nearest = self._nearest(limit, found)
            if not limit.is_met(nearest, self.reference):
                missed.append(
                    f"{limit} cannot be met: the nearest plan {self._miss(limit, nearest)}"
                )
        if missed:
            return "; ".join(missed)
        together = []
        for limit in self.constraints:
            others = tuple(other for other in self.constraints if other is not limit)
            kept = [p for p in found if Goal(self.objective, others, self.reference).meets(p)]
            if kept:
                together.append((limit, others, self._nearest(limit, kept)))
        if together:
            limit, others, nearest = min(together, key=lambda entry: self._excess(*entry[::2]))
            return (
                f"{limit} cannot be met together with {' and '.join(map(str, others))}: the "
                f"nearest plan that keeps the latter {self._miss(limit, nearest)}"
            )
        nearest = min(
            found, key=lambda p: max(self._excess(limit, p) for limit in self.constraints)
        )
        misses = [
            f"{limit}: it {self._miss(limit, nearest)}"
            for limit in self.constraints
            if not limit.is_met(nearest, self.reference)
        ]
        return "the limits cannot be met together; the nearest plan misses " + "; ".join(misses)

    def _nearest(self, limit: Constraint, points: Sequence[Measures]) -> Measures:
        return min(points, key=lambda point: limit.value(point, self.reference))

    def _miss(self, limit: Constraint, measures: Measures) -> str:
        value = limit.value(measures, self.reference)
        return f"has {limit.show(value)}, {limit.show(value - limit.limit)} too much"

    def _excess(self, limit: Constraint, measures: Measures) -> float:
        """Relative excess over a limit; below 0 if the limit is kept."""
        value = limit.value(measures, self.reference)
        unit = limit.limit or 0.01 * max(abs(self.reference), 1.0)
        return math.inf if math.isnan(value) else (value - limit.limit) / unit


def pareto_front(points: Sequence[Measures]) -> list[int]:
    """Places of the points that no other one dominates, best latency first.

    Of points that are equal in everything the first one is kept.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i].rank("latency"), i))
    front: list[int] = []
    for place in order:
        point = points[place]
        if not any(points[kept] == point or points[kept].dominates(point) for kept in front):
            front.append(place)
    return front


def parse_seconds(text: str | float) -> float:
    """Read ``"60s"``, ``"5 min"``, ``"1h"`` or a number of seconds above 0."""
    match = _TIME.fullmatch(str(text))
    factor = _BUDGETS.get(match["unit"].lower() or "s") if match else None
    if match is None or factor is None or float(match["number"]) * factor <= 0:
        raise ObjectiveError(f"budget must be a time such as '60s' or '5 min', got {text!r}")
    return float(match["number"]) * factor


def age_of_process() -> float:
    """Seconds since this process began; 0 if the system does not tell."""
    try:
        fields = PROCESS_FILE.read_text().rpartition(")")[2].split()
        began = int(fields[BEGIN_FIELD]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0


class Budget:
    """A time limit in seconds, ``spent`` of them used already; None is no limit.

    It expects of a piece of work what those of its kind took so far.
    """

    def __init__(
        self,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: float = 0.0,
    ) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._clock = clock
        self._begin = clock() - spent
        self._expected: dict[str, float] = {}

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds left; below 0 if the limit is exceeded."""
        return self.seconds - self.spent

    @property
    def seconds_left(self) -> float | None:
        """Seconds left, at least 0; None without a limit."""
        return None if math.isinf(self.seconds) else max(0.0, self.left)

    def left_until(self, share: float) -> float:
        """Seconds until a share of it is used up."""
        return share * self.seconds - self.spent

    def part(self, share: float, parts: int = 1) -> Budget:
        """One of some equal parts of what is left until a share is used up."""
        return Budget(max(0.0, self.left_until(share) / parts), self._clock)

    def fits(self, kind: str, share: float = 1.0) -> bool:
        """True if another piece of work of a kind should end before a share is used up.

        The first one of its kind fits as long as any time is left.
        """
        return self._expected.get(kind, 0.0) < self.left_until(share)

    def did(self, kind: str, seconds: float) -> None:
        """Record the duration of a piece of work."""
        before = self._expected.get(kind, seconds)
        self._expected[kind] = SMOOTHING * seconds + (1 - SMOOTHING) * before
