"""Search: measures the plans that could be best in turns, and few others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bitgnn.measure.timing import FORWARD_SECONDS as REPEAT_SECONDS
from bitgnn.measure.timing import ROUNDS, WARM_UPS, Timing, measure_in_turns
from bitgnn.tune.explore import Explorer, first_line
from bitgnn.tune.objective import Measures, Objective, pareto_front
from bitgnn.tune.trial import Trial, merged

MEASURED_SHARE = 0.2
"""Part of the space that may be measured in turns."""
PLANS_AT_ONCE = 12
"""Plans measured in the same turns."""
OPTIMISM = 0.85
"""What a plan may take at best, as a multiple of its brief timing."""
FRONT_PLANS = 16
"""Plans measured for the Pareto front alone."""
MEASURED_BY = 0.9
"""Part of the budget that measuring and what ran before it may use up."""


@dataclass
class Search(Explorer):
    """The search of one workload: :meth:`explore`, then :meth:`measure`.

    Attributes:
        objective: what the best plan is best at.
        timings: everything that was measured, other forwards included.
    """

    objective: Objective = "latency"
    timings: list[Timing] = field(default_factory=list)

    def measure(self) -> bool:
        """Measure plans in turns: those whose brief timings are best first.

        A plan is measured as long as it may be better than the best plan measured; then the Pareto
        front.

        Returns:
            Whether nothing was left out for lack of time.
        """
        most = max(1, int(MEASURED_SHARE * self.num_plans))
        front = FRONT_PLANS if self.store.has_front else 0
        while len(self.measured) < most:
            batch = self._contenders()[:PLANS_AT_ONCE]
            if not batch and front < FRONT_PLANS:
                batch = self._front()[: min(PLANS_AT_ONCE, FRONT_PLANS - front)]
                front += len(batch)
            if not batch:
                break
            batch = self._affordable(batch[: most - len(self.measured)])
            if not batch:
                return False
            self._measure(batch)
            self.progress("measure", len(self.measured), most)
        self.store.add_front()
        self.progress("measure", most, most)
        return True

    def _optimistic(self, trial: Trial) -> Measures:
        """What a plan may measure at best."""
        if trial.timing is not None:
            return trial.measures
        return replace(trial.measures, latency=OPTIMISM * trial.estimate)

    def _contenders(self) -> list[Trial]:
        """Plans not measured that may be better than the best one measured, best first."""
        kept = [t.measures for t in self.measured if self.meets(t.measures)]
        best = min((m.rank(self.objective) for m in kept), default=(math.inf,))
        ranked = [(self._optimistic(trial), trial) for trial in self._open()]
        ranked = [
            (found, trial)
            for found, trial in ranked
            if self.meets(found) and found.rank(self.objective) < best
        ]
        ranked.sort(key=lambda entry: entry[0].rank(self.objective))
        return [trial for _, trial in ranked]

    def _front(self) -> list[Trial]:
        """Plans not measured that would be on the Pareto front, spread over it."""
        trials = [t for t in self.trials if t.plan not in self.failed]
        front = [trials[place] for place in pareto_front([self._optimistic(t) for t in trials])]
        return [trial for trial in front if trial.timing is None]

    def _open(self) -> list[Trial]:
        return [t for t in self.trials if t.timing is None and t.plan not in self.failed]

    def _affordable(self, batch: list[Trial]) -> list[Trial]:
        """As many as fit in the time; the first one of all does in any case."""
        left = self.budget.until(MEASURED_BY) - self.budget.spent
        kept: list[Trial] = []
        for trial in batch:
            once = max(trial.estimate, REPEAT_SECONDS[self.device.type])
            left -= WARM_UPS * trial.estimate + (ROUNDS + 1) * once
            if left < 0 and (kept or self.measured):
                break
            kept.append(trial)
        return kept

    def _measure(self, batch: Sequence[Trial]) -> None:
        """Measure plans in turns."""
        ready, runs = [], []
        for trial in batch:
            try:
                run = self.space.candidates.make(trial.plan).run
                run()
            except (RuntimeError, ValueError) as error:
                self.failed[trial.plan] = first_line(error)
            else:
                ready.append(trial)
                runs.append(run)
        if not runs:
            return
        seconds = max(0.0, self.budget.left) if math.isfinite(self.budget.seconds) else None
        timings = measure_in_turns(runs, self.device, seconds=seconds)
        self.timings += timings
        done = [merged(t, timing) for t, timing in zip(ready, timings, strict=True)]
        for trial in done:
            self._put(trial)
        self.store.add_measured(done)
