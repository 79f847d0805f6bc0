"""Fixtures and settings that all tests share."""

import gc
import os

# Before torch is imported: threads of small operators wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from fake_time import FakeTime
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bitgnn",
    deadline=None,
    max_examples=int(os.environ.get("BITGNN_TEST_EXAMPLES", "20")),
    # Fixtures here hold no state that an example could change.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("bitgnn")
# What collection makes stays to the end: looking for garbage in it is in vain.
gc.disable()


GPUS = [pytest.param("cuda", marks=pytest.mark.cuda)] if torch.cuda.is_available() else []


@pytest.fixture(params=["cpu", *GPUS])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device that operators run on."""
    return torch.device(request.param)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The clock of everything that is measured on a CPU."""
    return FakeTime(monkeypatch)


def pytest_collection_finish() -> None:
    """From here on garbage is collected, among what tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of a GPU where there is none, and says how many they were."""
    if torch.cuda.is_available():
        return
    of_gpu = [item for item in items if item.get_closest_marker("cuda") is not None]
    config.hook.pytest_deselected(items=of_gpu)
    items[:] = [item for item in items if item.get_closest_marker("cuda") is None]
