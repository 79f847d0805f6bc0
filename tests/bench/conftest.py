"""Short repeats, no look at how busy the machine is, and torch's threads as they were."""

import pytest
import torch

from bitgnn.measure import report, timing


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setitem(timing.REPEAT_SECONDS, "cpu", 0.0)
    monkeypatch.setattr(report, "_busy_percent", lambda: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
