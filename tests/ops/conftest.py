"""Random arguments for every operator, and exact comparison with the reference."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampler import Sampler
from torch import Tensor

from bitgnn.ops.reference import OPERATORS


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
            torch.testing.assert_close(
                mine.cpu(), theirs, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5,
                equal_nan=True,
            )  # fmt: skip

    return check
