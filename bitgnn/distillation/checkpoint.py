"""State of a running training: checkpoints under a checksum, random states, the log of epochs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric import seed_everything

from bitgnn._checksummed import read_sealed, sealed_tensors
from bitgnn._files import FileError, write_atomically
from bitgnn.distillation import ranks
from bitgnn.distillation.sharded_checkpoint import read_sharded, replacing, write_sharded, written
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
