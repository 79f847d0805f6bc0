"""Forwards are measured in turns, within a bound, and a noisy machine is named."""

import pytest
import torch

from bitgnn.measure import latency
from bitgnn.measure.latency import glance, gpu_seconds, measure_in_turns, noise
from bitgnn.measure.timing import Timing

CPU = torch.device("cpu")


def test_runs_take_turns():
    order = []
    timings = measure_in_turns([lambda: order.append(1), lambda: order.append(2)], CPU, rounds=3)
    assert [len(timing.seconds) for timing in timings] == [3, 3]
    blocks = [a for a, b in zip(order, [*order[1:], None], strict=True) if a != b]
    assert blocks == [1, 2] * 4  # warmed up in turn, then three rounds


def test_slow_runs_are_told_from_fast_ones():
    x = torch.randn(600, 600)
    slow, fast = measure_in_turns([lambda: x @ x @ x, lambda: None], CPU, rounds=3)
    assert slow.median > fast.median > 0


def test_no_round_begins_behind_the_bound():
    (timing,) = measure_in_turns([lambda: None], CPU, rounds=50, seconds=0.0)
    assert len(timing.seconds) == 1


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


def test_latency_is_positive():
    assert glance(lambda: None, CPU) > 0


def test_a_cpu_has_no_time_of_a_gpu():
    assert gpu_seconds(lambda: None, CPU) is None


STEADY, JUMPY = Timing((1.0, 1.0, 1.0)), Timing((1.0, 2.0, 3.0))


def test_spread_is_noise(monkeypatch):
    monkeypatch.setattr(latency, "_load", lambda: 0.0)
    assert noise([STEADY] * 4) is None
    assert noise([STEADY] * 3 + [JUMPY]) is None
    assert "2 of 4 timings spread" in noise([STEADY, STEADY, JUMPY, JUMPY])


def test_load_is_noise(monkeypatch):
    monkeypatch.setattr(latency.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(latency, "_load", lambda: 4.1)
    assert "load is 4.1 on 2 cores" in noise([STEADY])
    monkeypatch.setattr(latency, "_load", lambda: None)
    assert noise([STEADY]) is None
