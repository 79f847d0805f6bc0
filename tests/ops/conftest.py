"""Random arguments, exact comparison with the reference, and the mark of tests of kernels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sampler import Sampler
from torch import Tensor

from bitgnn.ops.reference import OPERATORS

FRONTS = (
    "test_int8_fronts", "test_registration", "test_route", "test_wrong_images", "test_wrong_rows",
)  # fmt: skip
"""Modules of what lies in front of kernels; others find what another flavour of them changes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that `.ci/run` repeats for every flavour and under the sanitizers."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem not in FRONTS:
            item.add_marker(pytest.mark.kernels)


@pytest.fixture
def sampler() -> Callable[..., Sampler]:
    """Make a :class:`Sampler`."""
    return Sampler


@pytest.fixture
def assert_kernel_equals_reference() -> Callable[..., None]:
    """Run an operator on a device and the reference on the CPU; they must be equal."""

    def check(name: str, arguments: dict[str, Any], device: torch.device) -> None:
        expected = OPERATORS[name](**arguments)
        moved = {
            key: value.to(device) if isinstance(value, Tensor) else value
            for key, value in arguments.items()
        }
        found = getattr(torch.ops.bitgnn, name)(**moved)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        for mine, theirs in zip(found, expected, strict=True):
            # Bits, integers and, on the CPU, floats too are the same to the last bit.
            exact = device.type == "cpu" or not theirs.is_floating_point()
            atol = 0.0 if exact else 1e-5
            torch.testing.assert_close(
                mine.cpu(), theirs, rtol=0 if exact else 1e-5, atol=atol, equal_nan=True
            )

    return check
