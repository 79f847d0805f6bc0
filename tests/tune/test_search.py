"""The last measurements of a search: what was measured in better times alone is measured again."""

import itertools
from types import SimpleNamespace

import torch

from bitgnn.convert import Plan
from bitgnn.measure import latency
from bitgnn.measure.timing import Timing
from bitgnn.tune.accuracy import Score
from bitgnn.tune.search import CHALLENGES, FINAL_ROUNDS, FINALISTS, ROUNDS, Search
from bitgnn.tune.trial import Trial, letters_key, merged

LETTERS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
ORDERS = ("transform_first", "aggregate_first")
WAYS = [
    (dict(zip("abc", order, strict=True)), features)
    for order in itertools.product(ORDERS, repeat=3)
    for features in ("floats", "packed")
]


class Drifting(Search):
    """Every plan was measured; the machine is slower by now."""

    def __init__(self, seconds, slower):
        nothing = SimpleNamespace(
            workload=SimpleNamespace(device=torch.device("cpu")), news=lambda: ({}, [])
        )
        super().__init__(nothing, nothing, nothing, counted_from=0.5)
        self.now = {}
        self.again = []
        for (order, features), took in zip(WAYS, seconds, strict=False):
            plan = Plan(LETTERS, order, features)
            self.now[plan] = slower * took
            before = Timing((took,) * ROUNDS)
            trial = Trial(plan, Score(0.5), 1.0, took, before)
            self.chains.setdefault(letters_key(LETTERS), []).append(trial)

    def _measure(self, batch, rounds, others=()):
        assert rounds == FINAL_ROUNDS
        for trial in batch:
            self.again.append(trial.plan)
            self._put(merged(trial, Timing((self.now[trial.plan],) * rounds)))
        return [Timing((1.0,)) for _ in others]


def best(search):
    return min(search.measured, key=lambda trial: trial.latency).plan


def test_a_slower_machine_does_not_favour_those_that_were_not_measured_again():
    seconds = [1.00 + 0.02 * n for n in range(10)]
    search = Drifting(seconds, slower=1.1)
    fastest = best(search)
    assert len(search.final([lambda: None])) == 1
    assert best(search) == fastest
    # Those that were better than the slowed down best one, and no others.
    assert len(search.again) == sum(took < 1.1 for took in seconds)


def test_on_a_steady_machine_the_finalists_are_all():
    search = Drifting([1.00 + 0.02 * n for n in range(10)], slower=1.0)
    search.final([])
    assert len(search.again) == FINALISTS


def test_it_ends_where_everything_has_become_much_slower():
    search = Drifting([1.0] * len(WAYS), slower=5.0)
    search.final([])
    assert len(search.again) == len(set(search.again)) <= FINALISTS * (1 + CHALLENGES)


def test_the_machine_is_judged_by_everything_that_was_measured(monkeypatch):
    monkeypatch.setattr(latency, "_load", lambda: 0.0)
    search = Drifting([1.0], slower=1.0)
    assert search.noise is None
    search.timings = [Timing((1.0, 2.0, 3.0)), *[Timing((1.0, 1.0, 1.0))] * 5]
    assert search.noise is None  # one of them may be chance
    search.timings = search.timings[:3]
    assert "1 of 3 timings spread" in search.noise
