"""Short repeats, no look at how busy the machine is, and torch's threads as they were."""

import pytest
import torch

from bitgnn.measure import environment, timing
from bitgnn.tune import clock


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr(timing, "MIN_REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(clock, "CPU_REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(environment, "_busy_percent", lambda: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
