"""Timing: every repeat is kept, contenders take turns, statistics follow from the repeats."""

import pytest
from fake_time import TICK

from bitgnn.measure.timing import REPEAT_SECONDS, WARM_UPS, Clock, Ready, Timing, compare


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


def timed(fn, **options):
    return compare({"fn": fn}, **options)["fn"]


def test_a_timing_is_as_long_as_the_function(fake_time):
    # Longer than a repeat must be at least, so that one call makes one repeat.
    timing = timed(lambda: fake_time.sleep(0.015), repeats=7)
    assert timing.calls == 1
    assert timing.seconds == pytest.approx([0.015 + TICK] * 7)


def test_short_functions_are_called_many_times_a_repeat(fake_time):
    calls = []
    timing = timed(lambda: calls.append(None), repeats=7)
    assert timing.calls == round(REPEAT_SECONDS["cpu"] / TICK)
    # In front of each repeat stands an untimed one.
    assert len(calls) == WARM_UPS + 7 * 2 * timing.calls


def test_contenders_take_turns(fake_time):
    order = []

    def contender(name):
        def run():
            order.append(name)
            fake_time.sleep(0.015)

        return run

    times = compare({name: contender(name) for name in "ab"}, repeats=7)
    assert list(times) == ["a", "b"]
    assert "".join(order) == "aaabbb" + "aabb" * 7


def test_cold_repeats_are_single_calls():
    calls = []
    timing = timed(lambda: calls.append(None), repeats=8, cold=True)
    assert timing.cold
    assert timing.calls == 1
    assert len(calls) == WARM_UPS + 8


def test_too_few_repeats_are_refused():
    with pytest.raises(ValueError, match="repeats must be at least 7, got 6"):
        timed(lambda: None, repeats=6)


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="functions is empty"):
        compare({})


def test_an_error_of_a_function_is_raised():
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 / 0)


def test_a_call_that_fails_in_a_round_leaves_the_others():
    calls = []

    def fragile():
        calls.append(None)
        if len(calls) > 3:
            raise RuntimeError("worn out")

    def ready(fn):
        return Ready(fn, fn, 1, 0.0, fn)

    found, failed = Clock("cpu").rounds({"a": ready(fragile), "b": ready(lambda: None)}, 7)
    assert list(found) == ["b"]
    assert len(found["b"].seconds) == 7
    assert str(failed["a"]) == "worn out"
    assert len(calls) == 4
