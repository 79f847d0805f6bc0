"""Weights of a frozen model that change in one of the ways they can."""

import pytest
from torch import Tensor

from bitgnn.inference import Frozen

CHANGES = pytest.mark.parametrize("change", ["copied into", "replaced", "loaded", "moved"])


def change_weights(frozen: Frozen, change: str) -> dict[str, Tensor]:
    """Put the rows of each buffer in reverse order; the new state."""
    state = {name: tensor.flip(0) for name, tensor in frozen.state_dict().items()}
    if change == "loaded":
        frozen.load_state_dict(state)
    for name, value in state.items():
        if change == "copied into":
            frozen.get_buffer(name).copy_(value)
        elif change == "replaced":
            setattr(frozen, name, value)
        elif change == "moved":
            frozen.get_buffer(name).data = value
    return state
