"""Trial: one plan of a search and what is known of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitgnn.convert import Plan
from bitgnn.measure.timing import Timing
from bitgnn.tune.accuracy import Score
from bitgnn.tune.objective import Measures


@dataclass(frozen=True)
class Trial:
    """One plan and what is known of it.

    Attributes:
        plan: the plan.
        score: of its letters, without training.
        memory: bytes at the peak of a forward.
        estimate: seconds of a forward, timed briefly.
        timing: of whole forwards; None where none was measured.
        widen: multiple of the hidden channels that the model has.
    """

    plan: Plan
    score: Score
    memory: float
    estimate: float
    timing: Timing | None = None
    widen: float = 1.0

    @property
    def latency(self) -> float:
        """Measured seconds where there are any, else the estimate."""
        return self.estimate if self.timing is None else self.timing.median

    @property
    def measures(self) -> Measures:
        """What limits and objectives ask for."""
        return Measures(self.score.validation, self.latency, self.memory)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that :meth:`from_dict` reads."""
        return {
            "plan": self.plan.to_dict(),
            "validation": self.score.validation,
            "test": self.score.test,
            "memory": self.memory,
            "estimate": self.estimate,
            "timing": None if self.timing is None else self.timing.to_dict(),
            "widen": self.widen,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Trial:
        """Read what :meth:`to_dict` gave.

        Raises:
            KeyError: an entry is missing.
            TypeError: an entry is no number.
            ValueError: the plan is none, or a number is none that a trial gives.
        """
        score = Score(content["validation"], content["test"])
        memory, estimate, timing = content["memory"], content["estimate"], content["timing"]
        if timing is not None:
            timing = Timing(tuple(timing["seconds"]), timing["calls_per_repeat"])
        shares = [score.validation, *([] if score.test is None else [score.test])]
        widen = content["widen"]
        amounts = [
            memory,
            estimate,
            widen,
            *(() if timing is None else (*timing.seconds, timing.calls)),
        ]
        if (
            not all(0 <= share <= 1 for share in shares)
            or not all(0 <= amount < math.inf for amount in amounts)
            or (timing is not None and not timing.seconds)
        ):
            raise ValueError(f"no trial gives {shares} and {amounts}")
        return cls(Plan.from_dict(content["plan"]), score, memory, estimate, timing, widen)


def letters_key(letters: Mapping[str, str]) -> str:
    """One text for equal letters."""
    return json.dumps(dict(letters), sort_keys=True)


def best_of(plans: Sequence[Trial]) -> Trial:
    """The fastest of some plans."""
    return min(plans, key=lambda trial: trial.latency)


def values_of(trial: Trial) -> list[float]:
    """What the study's directions are of."""
    return [trial.score.validation, trial.latency, trial.memory]


def merged(trial: Trial, timing: Timing) -> Trial:
    """A trial with further repeats."""
    if trial.timing is None:
        return replace(trial, timing=timing)
    return replace(trial, timing=Timing(trial.timing.seconds + timing.seconds, timing.calls))
