"""Timing: every repeat is kept, contenders take turns, statistics follow from the repeats."""

import time

import pytest

from bitgnn.measure.timing import Timing, compare, measure


def test_statistics_follow_from_the_repeats():
    timing = Timing((1.0, 2.0, 3.0, 4.0, 10.0))
    assert timing.median == 3.0
    assert timing.minimum == 1.0
    assert timing.quantile(0.25) == 2.0
    assert timing.to_dict()["seconds"] == [1.0, 2.0, 3.0, 4.0, 10.0]


@pytest.mark.parametrize(
    ("seconds", "noisy"),
    [((1.0,) * 10, False), ((1.0,) * 8 + (1.1,) * 2, False), ((1.0,) * 5 + (2.0,) * 5, True)],
)
def test_noise_is_seen_in_the_spread(seconds, noisy):
    assert Timing(seconds).noisy is noisy


def test_measure_takes_as_long_as_the_function():
    # Longer than a repeat must be at least, so that one call makes one repeat.
    timing = measure(lambda: time.sleep(0.015), warmup=1, repeats=7)
    assert len(timing.seconds) == 7
    assert timing.calls == 1
    assert timing.minimum >= 0.015


def test_short_functions_are_called_many_times_a_repeat():
    calls = []
    timing = measure(lambda: calls.append(None), warmup=1, repeats=7)
    assert timing.calls > 10
    # One warm-up call and, for each repeat, one untimed call and the timed ones.
    assert len(calls) == 1 + 7 * (1 + timing.calls)


def test_contenders_take_turns():
    order = []

    def contender(name):
        def run():
            order.append(name)
            time.sleep(0.015)

        return run

    times = compare({name: contender(name) for name in "ab"}, warmup=1, repeats=7)
    assert list(times) == ["a", "b"]
    assert "".join(order) == "ab" + "aabb" * 7


def test_cold_repeats_are_single_calls():
    calls = []
    timing = measure(lambda: calls.append(None), warmup=2, repeats=8, cold=True)
    assert timing.cold
    assert timing.calls == 1
    assert len(calls) == 2 + 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeats": 6}, "repeats must be at least 7, got 6"),
        ({"warmup": 0}, "warmup must be at least 1, got 0"),
    ],
)
def test_too_few_repeats_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(lambda: None, **arguments)


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="functions is empty"):
        compare({})
