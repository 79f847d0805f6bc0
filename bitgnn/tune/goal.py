"""Goal of a tuning: an objective and the limits that candidates must keep."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Objective = Literal["latency", "memory", "accuracy"]
"""Measure in which the best candidate is best, among those that keep every limit."""
Quantity = Literal["latency", "memory", "accuracy drop"]

_UNITS = {
    "latency": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    "memory": {
        "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    },
    "accuracy drop": {"%": 0.01, "points": 0.01},
}  # fmt: skip
_LIMIT = re.compile(
    r"\s*(?P<quantity>latency|memory|accuracy\s+drop)\s*<=\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*"
    r"(?P<unit>[a-zµ%]+)\s*",
    re.IGNORECASE,
)
DIGITS = 9
"""Of differences of accuracy: 79.8 % less 78.8 % is one point, whatever floats make of it."""


@dataclass(frozen=True)
class Measures:
    """Validation score, seconds of a forward, and bytes at its peak."""

    accuracy: float
    latency: float
    memory: float

    @property
    def costs(self) -> tuple[float, float, float]:
        """All of them, the lower the better; a score of NaN is the worst."""
        loss = math.inf if math.isnan(self.accuracy) else -self.accuracy
        return loss, self.latency, self.memory

    def dominates(self, other: Measures) -> bool:
        """True if it is nowhere worse than another, and somewhere better."""
        pairs = list(zip(self.costs, other.costs, strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    def rank(self, objective: Objective) -> tuple[float, ...]:
        """Sort key, best first: by the objective, then by the other measures."""
        drop, latency, memory = self.costs
        return {
            "latency": (latency, drop, memory),
            "memory": (memory, drop, latency),
            "accuracy": (drop, latency, memory),
        }[objective]


def pareto_front(points: Sequence[Measures]) -> list[int]:
    """Places of the points that no other one dominates, lowest latency first.

    Of equal points the first one is kept.
    """
    front: list[int] = []
    for place in sorted(range(len(points)), key=lambda i: (points[i].rank("latency"), i)):
        point = points[place]
        if not any(points[kept] == point or points[kept].dominates(point) for kept in front):
            front.append(place)
    return front


@dataclass(frozen=True)
class Constraint:
    """An upper limit: seconds, bytes, or loss of score against the float model as a share."""

    quantity: Quantity
    limit: float

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read ``"latency <= 2 ms"``, ``"memory <= 10 MB"`` or ``"accuracy drop <= 1%"``.

        Units are s, ms, us, ns; B, KB, MB, GB, KiB, MiB, GiB; and % (percentage points).
        """
        match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
        quantity = " ".join(match["quantity"].lower().split()) if match else ""
        factor = _UNITS[quantity].get(match["unit"].lower()) if match else None
        if match is None or factor is None:
            forms = "'latency <= 2 ms', 'memory <= 10 MB' or 'accuracy drop <= 1%'"
            raise ValueError(f"tune: constraints must have the form {forms}, got {text!r}")
        return cls(quantity, round(float(match["number"]) * factor, 12))  # type: ignore[arg-type]

    def value(self, measures: Measures, reference: float) -> float:
        """The limited quantity; losses count from the score ``reference``."""
        if self.quantity == "accuracy drop":
            return round(reference - measures.accuracy, DIGITS)
        return measures.latency if self.quantity == "latency" else measures.memory

    def excess(self, measures: Measures, reference: float) -> float:
        """Excess over the limit as a share of it; at most 0 if it is kept, infinite for NaN."""
        value = self.value(measures, reference)
        unit = self.limit or 0.01 * max(abs(reference), 1.0)
        return math.inf if math.isnan(value) else (value - self.limit) / unit

    def show(self, value: float) -> str:
        """A value of this quantity in readable units."""
        if self.quantity == "accuracy drop":
            return f"{100 * value:.2f}%"
        units = ("s", "ms", "us", "ns") if self.quantity == "latency" else ("GB", "MB", "KB", "B")
        scales = [(unit, _UNITS[self.quantity][unit.lower()]) for unit in units]
        unit, scale = next((pair for pair in scales if abs(value) >= pair[1]), scales[-1])
        return f"{value / scale:.3g} {unit}"

    def __str__(self) -> str:
        return f"{self.quantity} <= {self.show(self.limit)}"


@dataclass(frozen=True)
class Goal:
    """Objective and limits; losses of accuracy count from the score ``reference``."""

    objective: Objective
    constraints: tuple[Constraint, ...]
    reference: float = math.nan

    @classmethod
    def read(cls, objective: str, limits: str | Iterable[str]) -> Goal:
        """Read objective and limits as a user writes them; a single limit needs no list."""
        if objective not in get_args(Objective):
            raise ValueError(
                f"tune: objective must be one of {list(get_args(Objective))}, got {objective!r}"
            )
        several = [limits] if isinstance(limits, str) else limits
        return cls(objective, tuple(map(Constraint.parse, several)))  # type: ignore[arg-type]

    def missed(self, measures: Measures) -> tuple[Constraint, ...]:
        """The limits that are not kept."""
        return tuple(c for c in self.constraints if c.excess(measures, self.reference) > 0)

    def preference(self, measures: Measures) -> tuple[float, ...]:
        """Sort key, best first: within every limit, then by the least excess."""
        excess = [limit.excess(measures, self.reference) for limit in self.constraints]
        return max([0.0, *excess]), *measures.rank(self.objective)
