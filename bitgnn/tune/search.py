"""Search: measures the plans that could be best in turns, and few others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bitgnn.measure.latency import REPEAT_SECONDS, ROUNDS, WARM_UPS, measure_in_turns, noise
from bitgnn.measure.timing import Timing
from bitgnn.tune.explore import Explorer, first_line
from bitgnn.tune.objective import Measures, Objective, pareto_front, preference
from bitgnn.tune.trial import Trial, letters_key, merged

__all__ = ["MEASURED_SHARE", "Search"]

MEASURED_SHARE = 0.2
"""Part of the space that may be measured in turns."""
PLANS_AT_ONCE = 12
"""Plans measured in the same turns."""
OPTIMISM = 0.85
"""What a plan may take at best, as a multiple of its brief timing."""
FRONT_PLANS = 16
"""Plans measured for the Pareto front alone."""
FINALISTS, FINAL_ROUNDS = 4, 15
"""Plans measured once more in the end, beside the baselines, and repeats of each."""
CHALLENGES = 3
"""How often others that are better than the finalists by then are measured once more as well."""
MEASURED_BY = 0.9
"""Part of the budget that measuring and what ran before it may use up."""


@dataclass
class Search(Explorer):
    """The search of one workload: :meth:`explore`, then :meth:`measure`, then :meth:`final`.

    Attributes:
        objective: what the best plan is best at.
        timings: everything that was measured, other forwards included.
    """

    objective: Objective = "latency"
    timings: list[Timing] = field(default_factory=list)

    @property
    def noise(self) -> str | None:
        """What to say of a machine that was not quiet; None of a quiet one."""
        return noise(self.timings)

    def measure(self) -> bool:
        """Measure plans in turns: those whose brief timings are best first.

        A plan is measured as long as it may be better than the best plan measured; then the Pareto
        front.

        Returns:
            Whether nothing was left out for lack of time.
        """
        most = max(1, int(MEASURED_SHARE * self.num_plans))
        front = 0
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
            self._measure(batch, ROUNDS)
            self.progress("measure", len(self.measured), most)
        self.progress("measure", most, most)
        return True

    def final(self, others: Sequence[Callable[[], Any]]) -> list[Timing]:
        """Measure the best plans again in turns with other forwards, such as baselines.

        Where the machine has become slower, plans that were measured in better times alone look
        better than the finalists then; they are measured again, too.

        Returns:
            Timings of the others.
        """
        finalists = self._best()[:FINALISTS]
        timings = self._measure(finalists, FINAL_ROUNDS, others)
        done = {trial.plan for trial in finalists}
        for _ in range(CHALLENGES):
            better: list[Trial] = []
            for trial in self._best():
                if trial.plan in done:
                    break
                better.append(trial)
            better = self._affordable(better[:FINALISTS], FINAL_ROUNDS) if better else []
            if not better:
                break
            self._measure(better, FINAL_ROUNDS)
            done |= {trial.plan for trial in better}
        return timings

    def _best(self) -> list[Trial]:
        """Measured plans that keep every limit, or come nearest where none does, best first."""
        able = [trial for trial in self.measured if trial.plan not in self.failed]
        kept = [trial for trial in able if self.meets(trial.measures)]
        return sorted(
            kept or able,
            key=lambda trial: preference(
                trial.measures, self.constraints, self.reference, self.objective
            ),
        )

    def finalists(self) -> list[Trial]:
        """The best measured plan of each of some letters, whatever their accuracy, best first."""
        limits = [limit for limit in self.constraints if limit.what != "accuracy drop"]
        found: dict[str, Trial] = {}
        for trial in sorted(self.measured, key=lambda t: t.measures.rank(self.objective)):
            if all(limit.is_met(trial.measures, self.reference) for limit in limits):
                found.setdefault(letters_key(trial.plan.letters), trial)
        return list(found.values())[:FINALISTS]

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

    def _affordable(self, batch: list[Trial], rounds: int = ROUNDS) -> list[Trial]:
        """As many as fit in the time; the first one of all does in any case."""
        left = self.budget.until(MEASURED_BY) - self.budget.spent
        kept: list[Trial] = []
        for trial in batch:
            left -= self._seconds(trial, rounds)
            if left < 0 and (kept or self.measured):
                break
            kept.append(trial)
        return kept

    def _seconds(self, trial: Trial, rounds: int) -> float:
        """How long measuring a plan takes."""
        once = max(trial.estimate, REPEAT_SECONDS[self.device.type])
        return WARM_UPS * trial.estimate + (rounds + 1) * once

    def _measure(
        self, batch: Sequence[Trial], rounds: int, others: Sequence[Callable[[], Any]] = ()
    ) -> list[Timing]:
        """Measure plans, and other forwards in turns with them, whose timings are given back."""
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
        if not runs and not others:
            return []
        seconds = max(0.0, self.budget.left) if math.isfinite(self.budget.seconds) else None
        timings = measure_in_turns([*runs, *others], self.device, rounds=rounds, seconds=seconds)
        self.timings += timings
        done = [merged(t, timing) for t, timing in zip(ready, timings, strict=False)]
        for trial in done:
            self._put(trial)
        self.store.add_measured(done)
        return timings[len(ready) :]
