"""A clock that only tests move: what is measured with it does not depend on the machine."""

import pytest

from bitgnn.measure import timing

TICK = 1e-4
"""Seconds that go by between two looks at the clock."""


class FakeTime:
    """Stands in for the module ``time``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(timing, "time", self)

    def perf_counter(self) -> float:
        self.now += TICK
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
