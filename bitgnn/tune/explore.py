"""Explorer: goes through letters, scores them, and times each of their plans briefly."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bitgnn.convert import Plan
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.measure.timing import glance
from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.budget import Budget
from bitgnn.tune.objective import Constraint, Measures
from bitgnn.tune.space import Space
from bitgnn.tune.study import TrialStore
from bitgnn.tune.trial import Trial, best_of, letters_key, values_of

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import TPESampler

MOST_CHOICES = 512
"""Up to so many letter choices every one is scored; beyond, a sampler proposes as many."""
CHOICES_AT_ONCE = 8
"""Letter choices between looks at what other processes have added to a file."""
EXPLORED = 0.75
"""Part of the budget that exploring and what ran before it may use up."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Multiples of it, modulo 1, lie far apart for any numbers that are near each other."""
PROPOSALS = 4
"""Proposals of the sampler per choice wanted: it may come back to letters that are known."""


def _ignore(stage: str, done: int, total: int) -> None:
    """Nobody wants to know."""


@dataclass
class Explorer:
    """What is known of the plans of one workload.

    Attributes:
        space: of the plans.
        accuracy: scores letters.
        store: where finished trials go.
        reference: validation score that the loss of accuracy is counted from.
        constraints: what it must keep.
        budget: time there is.
        seed: of the sampler.
        progress: called with a stage's name, what is done of it, and all of it.
        by_letters: trials by letters.
        sizes: plans by letters, looked at or not.
        failed: plans that cannot run, with the reason.
    """

    space: Space
    accuracy: Accuracy
    store: TrialStore
    reference: float
    constraints: Sequence[Constraint] = ()
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    progress: Callable[[str, int, int], Any] = _ignore
    by_letters: dict[str, list[Trial]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    failed: dict[Plan, str] = field(default_factory=dict)

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
    def is_exhaustive(self) -> bool:
        """Whether every choice of letters is scored."""
        return self.space.num_choices <= MOST_CHOICES

    @property
    def num_plans(self) -> int:
        """Plans in the space, extrapolated where not every choice was looked at."""
        if not self.by_letters:
            return 0
        return round(sum(self.sizes.values()) * self.space.num_choices / len(self.sizes))

    def meets(self, measures: Measures) -> bool:
        """Whether every limit is kept."""
        return all(limit.is_met(measures, self.reference) for limit in self.constraints)

    def explore(self) -> bool:
        """Score letters and time their plans briefly, until all are known or the time is up.

        Returns:
            Whether nothing was left out for lack of time.
        """
        wanted = min(self.space.num_choices, MOST_CHOICES)
        for letters, asked in self._all_choices() if self.is_exhaustive else self._proposed(wanted):
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

    def _refresh(self) -> None:
        """Take what is in the store, of this and other processes."""
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
        """Every choice that is not known, from another beginning in each process of a file.

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
        own = own_letters(self.space.workload.model)
        if own in self.space.choices and letters_key(own) not in self.by_letters:
            self.store.study.enqueue_trial(
                {self._parameter(layer, own)[0]: own[layer] for layer in self.space.layers}
            )
        for _ in range(PROPOSALS * wanted):
            if len(self.by_letters) >= wanted:
                return
            trial = self.store.study.ask()
            self.store.study.sampler = self._sampler(trial.number)
            letters = self._letters(trial)
            known = self.by_letters.get(letters_key(letters))
            if known is None:
                yield letters, trial
            else:
                self._tell(trial, known)
            self._refresh()

    def _sampler(self, number: int) -> TPESampler:
        """What it draws depends on the seed, the trial's number and the trials before it."""
        from optuna.samplers import TPESampler

        return TPESampler(seed=self.seed + number, multivariate=False)

    def _letters(self, trial: optuna.Trial) -> dict[str, str]:
        chosen: dict[str, str] = {}
        for layer in self.space.layers:
            chosen[layer] = trial.suggest_categorical(*self._parameter(layer, chosen))
        return chosen

    def _parameter(self, layer: str, chosen: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        """The sampler's name for the letters of a layer behind others, and what they may be."""
        options = self.space.options(layer, chosen)
        firsts = "".join(sorted({letters[0] for letters in options}))
        return f"{layer} after {firsts}", options

    def _tell(self, trial: optuna.Trial, plans: Sequence[Trial]) -> None:
        best = best_of(plans)
        for limit in self.constraints:
            excess = limit.value(best.measures, self.reference) - limit.limit
            trial.set_constraint(str(limit), excess)
        trial.set_user_attr("kind", "letters")
        trial.set_user_attr("size", self.sizes[letters_key(best.plan.letters)])
        trial.set_user_attr("plans", [plan.to_dict() for plan in plans])
        self.store.study.tell(trial, values_of(best))

    def _worthwhile(self, plans: list[Plan]) -> list[Plan]:
        """Plans of some letters that are looked at: one of letters that seem to miss the limit."""
        first = plans[0]
        try:
            accurate = Measures(self.accuracy.of(first).validation, 0.0, 0.0)
        except (RuntimeError, ValueError):
            return plans
        limits = [limit for limit in self.constraints if limit.what == "accuracy drop"]
        if all(limit.is_met(accurate, self.reference) for limit in limits):
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
                candidate = self.space.candidates.make(plan)
                memory = float(candidate.memory.peak)
                seconds = glance(candidate.run, self.device)
                widen = self.space.workload.widen
                plans.append(Trial(plan, score, memory, seconds, widen=widen))
            except (RuntimeError, ValueError) as error:
                self.failed[plan] = first_line(error)
        if plans:
            self.by_letters[key] = plans
        if asked is None and plans:
            self.store.add_letters(plans, len(every))
        elif asked is not None and plans:
            self._tell(asked, plans)
        elif asked is not None:
            self.store.drop(asked)


def first_line(error: Exception) -> str:
    """Kind and beginning of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
