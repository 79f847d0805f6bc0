"""What a tuner looks for: an objective, and limits of latency, memory and loss of accuracy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Objective = Literal["latency", "memory", "accuracy"]
"""What the recommended plan is best at, among those that keep every limit."""

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BYTES = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
}  # fmt: skip
DIGITS = 9
"""Of differences of accuracy: 79.8 % less 78.8 % is one point, whatever floats make of it."""
_SHARES = {"%": 0.01, "points": 0.01}
_UNITS = {"latency": _SECONDS, "memory": _BYTES, "accuracy drop": _SHARES}
_LIMIT = re.compile(
    r"\s*(?P<what>latency|memory|accuracy\s+drop)\s*<=\s*(?P<number>\d+(\.\d*)?|\.\d+)"
    r"\s*(?P<unit>[a-zµ%]+)\s*",
    re.IGNORECASE,
)


class ObjectiveError(ValueError):
    """An objective or a limit that cannot be read, or that no plan can meet."""


@dataclass(frozen=True)
class Measures:
    """What a plan costs and keeps.

    Attributes:
        accuracy: score on the validation nodes, from 0 to 1.
        latency: seconds of a forward.
        memory: bytes at the peak of a forward, graph, features and weights included.
    """

    accuracy: float
    latency: float
    memory: float

    def dominates(self, other: Measures) -> bool:
        """Whether it is nowhere worse than another, and somewhere better."""
        mine, others = self._costs, other._costs
        pairs = list(zip(mine, others, strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    def rank(self, objective: Objective) -> tuple[float, ...]:
        """Sorts the best in front: by the objective, then by what is left."""
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

        Args:
            text: quantity, ``<=``, number and unit: s, ms, us, ns; B, KB, MB, GB, KiB, MiB, GiB;
                % (percentage points).

        Raises:
            ObjectiveError: it does not have this form.
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
        """What is limited, of a plan, ``reference`` being the score to compare with."""
        if self.what == "accuracy drop":
            return round(reference - measures.accuracy, DIGITS)
        return measures.latency if self.what == "latency" else measures.memory

    def is_met(self, measures: Measures, reference: float) -> bool:
        """Whether a plan keeps the limit; a score that is not a number never does."""
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


def read_limits(limits: str | Constraint | Iterable[str | Constraint]) -> tuple[Constraint, ...]:
    """Limits as :meth:`Constraint.parse` reads them; a single one needs no list.

    Raises:
        ObjectiveError: one cannot be read.
    """
    several = [limits] if isinstance(limits, str | Constraint) else limits
    return tuple(Constraint.parse(limit) for limit in several)


def check_objective(objective: str) -> Objective:
    """The objective, if there is one of this name.

    Raises:
        ObjectiveError: there is none.
    """
    if objective not in get_args(Objective):
        raise ObjectiveError(
            f"objective must be one of {list(get_args(Objective))}, got {objective!r}"
        )
    return objective  # type: ignore[return-value]


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


def preference(
    point: Measures, constraints: Sequence[Constraint], reference: float, objective: Objective
) -> tuple[float, ...]:
    """Sorts the best in front: points that keep every limit, then those that miss them by least."""
    excess = [_excess(limit, limit.value(point, reference), reference) for limit in constraints]
    return max([0.0, *excess]), *point.rank(objective)


def explain_unmet(
    points: Iterable[Measures], constraints: Sequence[Constraint], reference: float
) -> str:
    """Which limits no plan keeps, and by how much the nearest one misses them.

    Returns:
        Of every limit that cannot be kept alone, the nearest value. Where each can be kept alone:
        the limit that a plan which keeps the others misses by the smallest share, or what the
        plan that comes nearest to all of them misses.
    """
    found = list(points)
    if not found:
        return "no plan is left to choose from"
    missed = []
    for limit in constraints:
        nearest = min(limit.value(point, reference) for point in found)
        if not nearest <= limit.limit:
            missed.append(f"{limit} cannot be met: the nearest plan {_miss(limit, nearest)}")
    if missed:
        return "; ".join(missed)
    together = []
    for limit in constraints:
        others = [other for other in constraints if other is not limit]
        kept = [p for p in found if all(other.is_met(p, reference) for other in others)]
        if kept:
            nearest = min(limit.value(point, reference) for point in kept)
            together.append((_excess(limit, nearest, reference), limit, others, nearest))
    if together:
        _, limit, others, nearest = min(together, key=lambda entry: entry[0])
        kept_too = " and ".join(map(str, others))
        return (
            f"{limit} cannot be met together with {kept_too}: the nearest plan that keeps "
            f"the latter {_miss(limit, nearest)}"
        )
    values = [[limit.value(point, reference) for limit in constraints] for point in found]
    nearest_values = min(
        values,
        key=lambda of_point: max(
            _excess(limit, value, reference)
            for limit, value in zip(constraints, of_point, strict=True)
        ),
    )
    misses = [
        f"{limit}: it {_miss(limit, value)}"
        for limit, value in zip(constraints, nearest_values, strict=True)
        if not value <= limit.limit
    ]
    return "the limits cannot be met together; the nearest plan misses " + "; ".join(misses)


def _miss(limit: Constraint, value: float) -> str:
    return f"has {limit.show(value)}, {limit.show(value - limit.limit)} too much"


def _excess(limit: Constraint, value: float, reference: float) -> float:
    """By what share of itself a limit is missed; below 0 where it is kept."""
    unit = limit.limit or 0.01 * max(abs(reference), 1.0)
    return math.inf if math.isnan(value) else (value - limit.limit) / unit
