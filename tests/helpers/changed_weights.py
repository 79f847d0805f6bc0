"""Weights of a frozen model, and its graph, that change in one of the ways they can."""

import pytest
from torch import Tensor

from bitgnn.inference import Frozen

CHANGES = pytest.mark.parametrize("change", ["copied into", "replaced", "loaded", "moved"])
WRITES = {
    "written": lambda a: a.indices.copy_((a.indices + 7) % a.num_cols),
    "replaced": lambda a: setattr(a, "indices", (a.indices + 7) % a.num_cols),
    "moved": lambda a: setattr(a.indices, "data", (a.indices + 7) % a.num_cols),
    "factor": lambda a: a.row_scale.mul_(3.0),
    "no factor": lambda a: setattr(a, "row_scale", None),
}


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
