"""Search: scores letters, times their plans briefly, and measures the promising ones."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bitgnn.convert import Plan
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.measure.timing import FORWARD_SECONDS as REPEAT_SECONDS
from bitgnn.measure.timing import ROUNDS, WARM_UPS, Timing, glance, measure_in_turns
from bitgnn.tune.objective import Budget, Goal, Measures, pareto_front
from bitgnn.tune.space import Accuracy, Space
from bitgnn.tune.study import Trial, TrialStore, attributes_of, fastest, letters_key

if TYPE_CHECKING:
    import optuna

MOST_CHOICES = 512
"""Up to so many letter choices every one is scored; beyond, a sampler proposes as many."""
CHOICES_AT_ONCE = 8
"""Letter choices between looks at what other processes have added to a file."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, modulo 1, lie far apart for any numbers that are near each other."""
PROPOSALS = 4
"""Proposals of the sampler per choice wanted: it may come back to letters that are known."""
MEASURED_SHARE = 0.2
"""Part of the space that may be measured in turns."""
PLANS_AT_ONCE = 12
"""Plans measured in the same turns."""
OPTIMISM = 0.85
"""What a plan may take at best, as a multiple of its brief timing."""
FRONT_PLANS = 16
"""Plans measured for the Pareto front alone."""
TITLES = {"letters": "letters scored, plans timed briefly", "measure": "plans measured"}
EXPLORED, MEASURED_BY = 0.75, 0.9
"""Parts of the budget that exploring, and measuring behind it, may use up."""


@dataclass
class Search:
    """The search of one workload: :meth:`explore`, then :meth:`measure`.

    ``seed`` is that of the sampler; ``progress`` is called with a stage's name, what is done of it,
    and all of it.
    """

    space: Space
    accuracy: Accuracy
    store: TrialStore
    goal: Goal
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    progress: Callable[[str, int, int], Any] = lambda stage, done, total: None
    by_letters: dict[str, list[Trial]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Plans by letters, looked at or not."""
    failed: dict[Plan, str] = field(default_factory=dict)
    """Plans that cannot run, with the reason."""
    timings: list[Timing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = self.space.workload.device
        self._refresh()

    @property
    def trials(self) -> list[Trial]:
        """Every trial so far."""
        return [trial for plans in self.by_letters.values() for trial in plans]

    @property
    def measured(self) -> list[Trial]:
        """Trials whose whole forwards were measured."""
        return [trial for trial in self.trials if trial.timing is not None]

    @property
    def num_plans(self) -> int:
        """Plans in the space, extrapolated where not every choice was looked at."""
        if not self.by_letters:
            return 0
        return round(sum(self.sizes.values()) * self.space.num_choices / len(self.sizes))

    def explore(self) -> bool:
        """Score letters and time their plans briefly, until all are known or the time is up.

        Gives whether nothing was left out for lack of time.
        """
        wanted = min(self.space.num_choices, MOST_CHOICES)
        is_exhaustive = self.space.num_choices <= MOST_CHOICES
        for letters, asked in self._all_choices() if is_exhaustive else self._proposed(wanted):
            self.progress("letters", min(len(self.by_letters), wanted), wanted)
            if self.by_letters and not self.budget.fits("letters", EXPLORED):
                if asked is not None:
                    self.store.drop(asked)
                return False
            before = self.budget.spent
            self._explore(letters, asked)
            self.budget.did("letters", self.budget.spent - before)
        self.progress("letters", wanted, wanted)
        return True

    def measure(self) -> bool:
        """Measure plans in turns: those whose brief timings are best first, then the Pareto front.

        A plan is measured as long as it may be better than the best plan measured. Gives whether
        nothing was left out for lack of time.
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

    def _refresh(self) -> None:
        """Take new trials from the store, of this and other processes."""
        plans_by_letters, measured = self.store.news()
        for key, (plans, size) in plans_by_letters.items():
            self.by_letters.setdefault(key, plans)
            self.sizes[key] = size
        for trial in measured:
            self._put(trial)

    def _put(self, trial: Trial) -> None:
        plans = self.by_letters.get(letters_key(trial.plan.letters), [])
        for place, other in enumerate(plans):
            if other.plan == trial.plan:
                plans[place] = replace(other, timing=trial.timing)

    def _all_choices(self) -> Iterator[tuple[dict[str, str], Any]]:
        """Every unknown choice; processes that share a file begin at different ones.

        The model's own letters come first, which lose least: there may be time for no others.
        """
        own = own_letters(self.space.workload.model)
        choices = [letters for letters in self.space.choices if letters != own]
        begin = int(os.getpid() * GOLDEN % 1 * len(choices)) if self.store.path else 0
        first = [own] if own in self.space.choices else []
        waiting = first + choices[begin:] + choices[:begin]
        while waiting:
            self._refresh()
            waiting = [
                letters for letters in waiting if letters_key(letters) not in self.by_letters
            ]
            yield from ((letters, None) for letters in waiting[:CHOICES_AT_ONCE])
            waiting = waiting[CHOICES_AT_ONCE:]

    def _proposed(self, wanted: int) -> Iterator[tuple[dict[str, str], Any]]:
        """The model's own letters, then what a sampler proposes: the same for the same trials."""
        study = self.store.study
        from optuna.samplers import TPESampler

        own = own_letters(self.space.workload.model)
        if own in self.space.choices and letters_key(own) not in self.by_letters:
            layers = self.space.layers
            study.enqueue_trial({self._parameter(layer, own)[0]: own[layer] for layer in layers})
        for _ in range(PROPOSALS * wanted):
            if len(self.by_letters) >= wanted:
                return
            trial = study.ask()
            # What it draws depends on the seed, the trial's number and the trials before it.
            study.sampler = TPESampler(seed=self.seed + trial.number, multivariate=False)
            letters: dict[str, str] = {}
            for layer in self.space.layers:
                letters[layer] = trial.suggest_categorical(*self._parameter(layer, letters))
            known = self.by_letters.get(letters_key(letters))
            if known is None:
                yield letters, trial
            else:
                self._tell(trial, known)
            self._refresh()

    def _parameter(self, layer: str, chosen: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        """The sampler's name for the letters of a layer behind others, and what they may be."""
        options = self.space.options(layer, chosen)
        firsts = "".join(sorted({letters[0] for letters in options}))
        return f"{layer} after {firsts}", options

    def _tell(self, trial: optuna.Trial, plans: Sequence[Trial]) -> None:
        best, values = fastest(plans)
        for limit in self.goal.constraints:
            excess = limit.value(best.measures, self.goal.reference) - limit.limit
            trial.set_constraint(str(limit), excess)
        size = self.sizes[letters_key(best.plan.letters)]
        for name, value in attributes_of("letters", plans, size).items():
            trial.set_user_attr(name, value)
        self.store.study.tell(trial, values)

    def _worthwhile(self, plans: list[Plan]) -> list[Plan]:
        """Plans of some letters to try; only one if the letters seem to miss the limit."""
        first = plans[0]
        try:
            accurate = Measures(self.accuracy.of(first).validation, 0.0, 0.0)
        except (RuntimeError, ValueError):
            return plans
        limits = [limit for limit in self.goal.constraints if limit.what == "accuracy drop"]
        if all(limit.is_met(accurate, self.goal.reference) for limit in limits):
            return plans
        return [plan for plan in plans if plan.order == first.order]

    def _explore(self, letters: Mapping[str, str], asked: Any) -> None:
        """Score and time all plans of some letters, and keep them."""
        plans: list[Trial] = []
        every = self.space.plans(letters)
        key = letters_key(letters)
        self.sizes[key] = len(every)
        for plan in self._worthwhile(every) if every else []:
            try:
                score = self.accuracy.of(plan)
                candidate = self.space.make(plan)
                memory = float(candidate.memory.peak)
                seconds = glance(candidate.run, self.device)
                widen = self.space.workload.widen
                plans.append(Trial(plan, score, memory, seconds, widen=widen))
            except (RuntimeError, ValueError) as error:
                self.failed[plan] = _first_line(error)
        if plans:
            self.by_letters[key] = plans
        if asked is None and plans:
            self.store.add("letters", plans, len(every))
        elif asked is not None and plans:
            self._tell(asked, plans)
        elif asked is not None:
            self.store.drop(asked)

    def _optimistic(self, trial: Trial) -> Measures:
        """Optimistic bound on a plan's measurements."""
        if trial.timing is not None:
            return trial.measures
        return replace(trial.measures, latency=OPTIMISM * trial.estimate)

    def _open(self) -> list[Trial]:
        """Plans that can be measured and have not been."""
        return [t for t in self.trials if t.timing is None and t.plan not in self.failed]

    def _contenders(self) -> list[Trial]:
        """Plans not measured that may be better than the best one measured, best first."""

        def rank(measures: Measures) -> tuple[float, ...]:
            return measures.rank(self.goal.objective)

        kept = [t.measures for t in self.measured if self.goal.meets(t.measures)]
        best = min(map(rank, kept), default=(math.inf,))
        ranked = [(self._optimistic(trial), trial) for trial in self._open()]
        ranked = [(m, t) for m, t in ranked if self.goal.meets(m) and rank(m) < best]
        return [trial for _, trial in sorted(ranked, key=lambda entry: rank(entry[0]))]

    def _front(self) -> list[Trial]:
        """Plans not measured that would be on the Pareto front, spread over it."""
        trials = [t for t in self.trials if t.plan not in self.failed]
        front = [trials[place] for place in pareto_front([self._optimistic(t) for t in trials])]
        return [trial for trial in front if trial.timing is None]

    def _affordable(self, batch: list[Trial]) -> list[Trial]:
        """The plans that fit in the time; the very first one always does."""
        left = self.budget.left_until(MEASURED_BY)
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
                run = self.space.make(trial.plan).run
                run()
            except (RuntimeError, ValueError) as error:
                self.failed[trial.plan] = _first_line(error)
            else:
                ready.append(trial)
                runs.append(run)
        if not runs:
            return
        timings = measure_in_turns(runs, self.device, seconds=self.budget.seconds_left)
        self.timings += timings
        done = [replace(t, timing=timing) for t, timing in zip(ready, timings, strict=True)]
        for trial in done:
            self._put(trial)
        for trial in done:
            self.store.add("measured", [trial])


def _first_line(error: Exception) -> str:
    """Kind and beginning of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@contextmanager
def stage_bars(progress: bool, width: str) -> Iterator[Callable[[str, int, int], Any]]:
    """A bar for each stage, never drawn while something is timed; gives the search's progress."""
    if not progress:
        yield lambda stage, done, total: None
        return
    # Drawn where an update asks for it: a thread would draw while something is timed.
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), auto_refresh=False,
    )  # fmt: skip
    tasks: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(f"{width} {TITLES[stage]}", total=total)
        bars.update(tasks[stage], completed=done, total=total, refresh=True)

    with bars:
        yield show
