"""Checkpoints that several ranks write together, for any number of ranks to go on from."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)

from bitgnn.distillation import ranks

VALUES = ":values"
"""Name of the tensor that holds plain values as JSON."""


def write_sharded(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Write tensors, equal on all ranks, and plain values of the first into a folder.

    All ranks call it and write a share each, as safetensors. A kill leaves the checkpoint before at
    ``path``, or beside it as :func:`written` finds it.
    """
    new, is_first = path.with_name(f"{path.name}.new"), ranks.rank() == 0
    # Values of the first rank decide; slices of scalars cannot be read.
    flat = {name: tensor.detach().reshape(-1) for name, tensor in tensors.items()}
    if is_first:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        text = json.dumps({**values, "shapes": shapes}).encode()
        flat[VALUES] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        remove(new)
    dist.barrier()
    dcp.save(flat, storage_writer=HuggingFaceStorageWriter(str(new), save_distributed=True))
    if is_first:
        with replacing(path):
            new.rename(path)
    dist.barrier()


def read_sharded(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_sharded` wrote, each rank all of it.

    Raises:
        ValueError: the folder is damaged or incomplete.
        OSError: it cannot be read.
    """
    try:
        found = HuggingFaceStorageReader(str(path))
        kinds: dict[str, Any] = found.read_metadata().state_dict_metadata
        state = {
            name: torch.empty(kind.size, dtype=kind.properties.dtype)
            for name, kind in kinds.items()
        }
        with warnings.catch_warnings():  # that no group is asked
            warnings.simplefilter("ignore", UserWarning)
            dcp.load(state, storage_reader=found, no_dist=True)
        values = json.loads(state.pop(VALUES).numpy().tobytes())
        shapes = values.pop("shapes")
        return {name: state[name].reshape(shape) for name, shape in shapes.items()}, values
    except OSError:
        raise
    except (Exception, CheckpointException) as error:
        raise ValueError(f"damaged or incomplete, {type(error).__name__}: {error}") from error


def written(path: Path) -> Path:
    """The checkpoint of ``path``: it, or the one set aside by a job that was killed."""
    return path if path.exists() or not _old(path).exists() else _old(path)


@contextmanager
def replacing(path: Path) -> Iterator[None]:
    """Make room at ``path`` for a file or a folder; what was there is found until it is written."""
    old = _old(path)
    if path.exists():
        remove(old)
        path.rename(old)
    yield
    remove(old)


def remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _old(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")
