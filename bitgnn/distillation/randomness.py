"""States of all random generators as tensors and plain values, for checkpoints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric import seed_everything

PYTHON_GENERATOR = 3  # version of the state that random.getstate() gives
NUMPY_GENERATOR = "MT19937"


def random_state(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """States of the generators of torch (CPU and ``device``), numpy and Python.

    Returns:
        Tensors by name, and the plain values beside them.
    """
    _, python_words, python_gauss = random.getstate()
    # The legacy generator is the one that PyG and its samplers draw from.
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    _, numpy_words, numpy_position, has_gauss, numpy_gauss = numpy_state
    tensors = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(python_words, dtype=torch.int64),
        "numpy": torch.from_numpy(numpy_words.astype(np.int64)),
    }
    if device.type == "cuda":
        tensors["cuda"] = torch.cuda.get_rng_state(device)
    values = {
        "python_gauss": python_gauss,
        "numpy": [int(numpy_position), int(has_gauss), float(numpy_gauss)],
    }
    return tensors, values


def set_random_state(
    tensors: dict[str, Tensor], values: dict[str, Any], device: torch.device
) -> None:
    """Put the generators back to a state that :func:`random_state` gave."""
    torch.set_rng_state(tensors["torch"])
    words = tuple(tensors["python"].tolist())
    random.setstate((PYTHON_GENERATOR, words, values["python_gauss"]))
    position, has_gauss, gauss = values["numpy"]
    numpy_words = tensors["numpy"].numpy().astype(np.uint32)
    state = (NUMPY_GENERATOR, numpy_words, position, has_gauss, gauss)
    np.random.set_state(state)  # noqa: NPY002
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch, numpy and Python, and leave them as they were in the end."""
    state = random_state(device)
    try:
        seed_everything(seed)
        yield
    finally:
        set_random_state(*state, device)
