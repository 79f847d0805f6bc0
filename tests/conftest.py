"""Fixtures and settings that all tests share."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bitgnn",
    deadline=None,
    max_examples=int(os.environ.get("BITGNN_TEST_EXAMPLES", "20")),
    # Fixtures here hold no state that an example could change.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("bitgnn")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every device that operators run on; CUDA is skipped without a GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of a GPU alone are skipped without one."""
    if item.get_closest_marker("cuda") is not None and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
