"""Forwards are measured in turns, within a bound, and a noisy machine is named."""

import pytest
import torch
from fake_time import TICK

from bitgnn.measure import timing
from bitgnn.measure.timing import Timing, glance, gpu_seconds, measure_in_turns, noise

CPU = torch.device("cpu")


def test_runs_take_turns(fake_time):
    order = []
    timings = measure_in_turns([lambda: order.append(1), lambda: order.append(2)], CPU, rounds=3)
    assert [timing.seconds for timing in timings] == [pytest.approx([TICK] * 3)] * 2
    blocks = [a for a, b in zip(order, [*order[1:], None], strict=True) if a != b]
    assert blocks == [1, 2] * 4  # warmed up in turn, then three rounds


def test_slow_runs_are_told_from_fast_ones(fake_time):
    runs = [lambda: fake_time.sleep(0.5), lambda: fake_time.sleep(0.002)]
    slow, fast = measure_in_turns(runs, CPU, rounds=3)
    assert (slow.median, slow.calls) == (pytest.approx(0.5 + TICK), 1)
    assert (fast.median, fast.calls) == (pytest.approx(0.002 + TICK), 2)


@pytest.mark.parametrize(("seconds", "done"), [(0.0, 1), (5.0, 4), (None, 9)])
def test_no_round_begins_behind_the_bound(fake_time, seconds, done):
    (timing,) = measure_in_turns([lambda: fake_time.sleep(1)], CPU, rounds=9, seconds=seconds)
    assert len(timing.seconds) == done


def test_progress_counts_every_repeat():
    done = []
    measure_in_turns([lambda: None] * 2, CPU, rounds=3, progress=lambda: done.append(1))
    assert len(done) == 6


def test_rounds_must_be_positive():
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        measure_in_turns([], CPU, rounds=0)


def test_errors_of_a_run_are_raised():
    def fails():
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        measure_in_turns([fails], CPU)


def test_a_glance_is_the_least_of_a_few(fake_time):
    lasting = iter([0.004, 0.003, 0.001, 0.002])
    assert glance(lambda: fake_time.sleep(next(lasting)), CPU) == pytest.approx(0.001 + TICK)


def test_a_cpu_has_no_time_of_a_gpu():
    assert gpu_seconds(lambda: None, CPU) is None


STEADY, JUMPY = Timing((1.0, 1.0, 1.0)), Timing((1.0, 2.0, 3.0))


def test_spread_is_noise(monkeypatch):
    monkeypatch.setattr(timing, "_load", lambda: 0.0)
    assert noise([STEADY] * 4) is None
    assert noise([STEADY] * 3 + [JUMPY]) is None
    assert "2 of 4 timings spread" in noise([STEADY, STEADY, JUMPY, JUMPY])


def test_load_is_noise(monkeypatch):
    monkeypatch.setattr(timing.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(timing, "_load", lambda: 4.1)
    assert "load is 4.1 on 2 cores" in noise([STEADY])
    monkeypatch.setattr(timing, "_load", lambda: None)
    assert noise([STEADY]) is None
