"""Checkpoints of a running training: one file under a checksum, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checksummed import read_sealed, sealed_tensors
from bitgnn._files import FileError, write_atomically

FORMAT = 2
SEPARATOR = "/"


class CheckpointError(FileError):
    """A checkpoint is damaged or of another model; the message names file or keys."""


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint.

    Attributes:
        tensors: groups of tensors by name, such as ``model`` or ``optimizer``.
        values: everything else as plain values that JSON has.
    """

    tensors: dict[str, dict[str, Tensor]]
    values: dict[str, Any]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; a kill while it is written leaves the one before.

    Raises:
        OSError: it cannot be written; the one before stays whole.
    """
    flat = {
        f"{group}{SEPARATOR}{name}": tensor
        for group, tensors in checkpoint.tensors.items()
        for name, tensor in tensors.items()
    }
    write_atomically(path, sealed_tensors(flat, {"format": FORMAT, **checkpoint.values}))


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None where there is no file.

    Raises:
        CheckpointError: the file is damaged or no checkpoint of this version.
    """
    if not path.is_file():
        return None
    try:
        flat, values = read_sealed(path)
    except (OSError, FileError) as error:
        raise CheckpointError(
            f"{path}: no readable checkpoint ({error}); delete it to train this run anew"
        ) from error
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: checkpoint format must be {FORMAT}, got {values.get('format')!r}; "
            "delete it to train this run anew"
        )
    tensors: dict[str, dict[str, Tensor]] = {}
    for key, tensor in flat.items():
        group, _, name = key.partition(SEPARATOR)
        tensors.setdefault(group, {})[name] = tensor
    return Checkpoint(tensors, values)


def load_state(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """``load_state_dict`` that names every key that does not fit before anything is changed.

    Raises:
        CheckpointError: keys are missing or unexpected, or shapes differ.
    """
    check_state(module, state, source)
    module.load_state_dict(state)


def check_state(module: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Raise the error that :func:`load_state` raises, and change nothing."""
    _refuse(_misfits(module.state_dict(), state), module, source)


def _misfits(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    lines = [f"{key} is missing" for key in wanted if key not in found]
    lines += [f"{key} is unexpected" for key in found if key not in wanted]
    lines += [
        f"{key} is {list(found[key].shape)}, must be {list(tensor.shape)}"
        for key, tensor in wanted.items()
        if key in found and found[key].shape != tensor.shape
    ]
    return lines


def _refuse(misfits: list[str], module: nn.Module, source: str) -> None:
    if misfits:
        raise CheckpointError(f"{source} does not fit {module}: {'; '.join(misfits)}")


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state by ``parameter number . name``."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`flatten_optimizer` gave; the groups keep their settings."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
