"""Timing: every repeat is kept, contenders take turns, statistics follow, noise is named."""

import pytest
import torch
from fake_time import TICK

from bitgnn.measure import timing
from bitgnn.measure.timing import (
    REPEAT_SECONDS,
    WARM_UPS,
    Clock,
    Ready,
    Timing,
    compare,
    measure_in_turns,
    noise,
)

CPU = torch.device("cpu")
STEADY, JUMPY = Timing((1.0, 1.0, 1.0)), Timing((1.0, 2.0, 3.0))


def test_statistics_follow_from_the_repeats():
    found = Timing((1.0, 2.0, 3.0, 4.0, 10.0))
    assert (found.median, found.minimum, found.quantile(0.25)) == (3.0, 1.0, 2.0)
    assert found.to_dict()["seconds"] == [1.0, 2.0, 3.0, 4.0, 10.0]
    for seconds, noisy in (
        ((1.0,) * 10, False),
        ((1.0,) * 8 + (1.1,) * 2, False),
        ((1.0,) * 5 + (2.0,) * 5, True),
    ):
        assert Timing(seconds).noisy is noisy


def timed(fn, **options):
    return compare({"fn": fn}, **options)["fn"]


def test_a_repeat_is_long_enough(fake_time):
    # Longer than a repeat must be at least, so that one call makes one repeat.
    found = timed(lambda: fake_time.sleep(0.015), repeats=7)
    assert found.calls == 1
    assert found.seconds == pytest.approx([0.015 + TICK] * 7)
    calls = []
    found = timed(lambda: calls.append(None), repeats=7)
    assert found.calls == round(REPEAT_SECONDS["cpu"] / TICK)
    # In front of each repeat stands an untimed one.
    assert len(calls) == WARM_UPS + 7 * 2 * found.calls
    calls.clear()
    clock = Clock("cpu")
    times, _ = clock.rounds({"": clock.prepare(lambda: calls.append(None))}, 8, cold=True)
    assert times[""].cold
    assert times[""].calls == 1
    assert len(calls) == WARM_UPS + 8


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


def test_mistakes_and_errors_are_raised():
    for arguments, options, message in (
        (({"a": print},), {"repeats": 6}, "repeats must be at least 7, got 6"),
        (({},), {}, "functions is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(*arguments, **options)
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        measure_in_turns([], CPU, rounds=0)
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measure_in_turns([lambda: 1 / 0], CPU)


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


def test_forwards_take_turns(fake_time):
    order, done = [], []
    runs = [lambda: order.append(1), lambda: order.append(2)]
    found = measure_in_turns(runs, CPU, rounds=3, progress=lambda: done.append(1))
    assert [one.seconds for one in found] == [pytest.approx([TICK] * 3)] * 2
    blocks = [a for a, b in zip(order, [*order[1:], None], strict=True) if a != b]
    assert blocks == [1, 2] * 4  # warmed up in turn, then three rounds
    assert len(done) == 6
    runs = [lambda: fake_time.sleep(0.5), lambda: fake_time.sleep(0.002)]
    slow, fast = measure_in_turns(runs, CPU, rounds=3)
    assert (slow.median, slow.calls) == (pytest.approx(0.5 + TICK), 1)
    assert (fast.median, fast.calls) == (pytest.approx(0.002 + TICK), 2)
    for seconds, rounds in ((0.0, 1), (5.0, 4), (None, 9)):  # none begins behind the bound
        (one,) = measure_in_turns([lambda: fake_time.sleep(1)], CPU, rounds=9, seconds=seconds)
        assert len(one.seconds) == rounds


@pytest.mark.parametrize(
    ("timings", "load", "said"),
    [
        ([STEADY] * 4, 0.0, None),
        ([STEADY] * 3 + [JUMPY], 0.0, None),
        ([STEADY, STEADY, JUMPY, JUMPY], 0.0, "2 of 4 timings spread"),
        ([STEADY], 4.1, "load is 4.1 on 2 cores"),
    ],
)
def test_noise(monkeypatch, timings, load, said):
    monkeypatch.setattr(timing.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(timing.os, "getloadavg", lambda: (load, 0.0, 0.0))
    found = noise(timings)
    assert found is None if said is None else said in found
