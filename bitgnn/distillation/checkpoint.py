"""State of a running training: checkpoints under a checksum, random states, the log of epochs."""

from __future__ import annotations

import json
import math
import random
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch_geometric import seed_everything

from bitgnn._checksummed import read_sealed, sealed_tensors
from bitgnn._files import FileError, write_atomically
from bitgnn.distillation import ranks
from bitgnn.measure.report import csv_text

FORMAT = 2
SEPARATOR = "/"
PYTHON_GENERATOR = 3  # version of the state that random.getstate() gives
NUMPY_GENERATOR = "MT19937"
Groups = dict[str, dict[str, Tensor]]
"""Tensors by name in groups such as ``model`` or ``optimizer``."""


class CheckpointError(FileError):
    """A checkpoint is damaged or of another model; the message names file or keys."""


def write_checkpoint(path: Path, groups: Groups, values: Mapping[str, Any]) -> None:
    """Write tensors and plain values; a kill or an error leaves the checkpoint before.

    Several ranks write a folder together, one process a file.
    """
    flat = {
        f"{group}{SEPARATOR}{name}": tensor
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }
    if ranks.count() > 1:
        write_sharded(path, flat, {"format": FORMAT, **values})
        return
    with replacing(path) if path.is_dir() else nullcontext():
        write_atomically(path, sealed_tensors(flat, {"format": FORMAT, **values}))


def read_checkpoint(path: Path) -> tuple[Groups, dict[str, Any]] | None:
    """Read what :func:`write_checkpoint` wrote; None if there is no file."""
    path = written(path)
    if not path.exists():
        return None
    try:
        flat, values = (read_sharded if path.is_dir() else read_sealed)(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: no readable checkpoint ({error}); delete it to train this run anew"
        ) from error
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: checkpoint format must be {FORMAT}, got {values.get('format')!r}; "
            "delete it to train this run anew"
        )
    groups: Groups = {}
    for key, tensor in flat.items():
        group, _, name = key.partition(SEPARATOR)
        groups.setdefault(group, {})[name] = tensor
    return groups, values


def check_state(module: nn.Module, state: Mapping[str, Tensor], source: object) -> None:
    """Refuse a state that a module cannot load, and name every key that does not fit."""
    wanted = module.state_dict()
    misfits = [f"{key} is missing" for key in wanted if key not in state]
    misfits += [f"{key} is unexpected" for key in state if key not in wanted]
    misfits += [
        f"{key} is {list(state[key].shape)}, must be {list(tensor.shape)}"
        for key, tensor in wanted.items()
        if key in state and state[key].shape != tensor.shape
    ]
    if misfits:
        raise CheckpointError(f"{source} does not fit {module}: {'; '.join(misfits)}")


def random_state(device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """States of the generators of torch (CPU and ``device``), numpy and Python.

    Tensors by name, and the other, plain values.
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
    numpy_words = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state((NUMPY_GENERATOR, numpy_words, *values["numpy"]))  # noqa: NPY002
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch, numpy and Python, and restore them afterwards."""
    state = random_state(device)
    try:
        seed_everything(seed)
        yield
    finally:
        set_random_state(*state, device)


class RunLog:
    """Finished epochs in ``<base>.csv`` and ``<base>.jsonl``, appended as checkpoints are written.

    A run that goes on starts both files anew from its history, so that no epoch stands twice and no
    line is cut off.
    """

    def __init__(self, base: Path) -> None:
        self.csv = base.with_name(base.name + ".csv")
        self.jsonl = base.with_name(base.name + ".jsonl")

    def restart(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the contents of the files by ``rows``, the epochs finished so far."""
        write_atomically(self.csv, _csv(rows, has_header=True).encode())
        write_atomically(self.jsonl, _jsonl(rows).encode())

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add finished epochs."""
        if not rows:
            return
        is_empty = not self.csv.exists() or self.csv.stat().st_size == 0
        with self.csv.open("a", encoding="utf-8") as file:
            file.write(_csv(rows, has_header=is_empty))
        with self.jsonl.open("a", encoding="utf-8") as file:
            file.write(_jsonl(rows))


def _csv(rows: Sequence[Mapping[str, Any]], *, has_header: bool) -> str:
    header = [list(rows[0])] if rows and has_header else []
    return csv_text([*header, *(list(row.values()) for row in rows)])


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """One JSON object a line; JSON has no NaN, so it becomes null."""
    finite = ({n: v if math.isfinite(v) else None for n, v in row.items()} for row in rows)
    return "".join(f"{json.dumps(row)}\n" for row in finite)


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
