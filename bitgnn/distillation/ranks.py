"""Ranks of torch.distributed that train together: batches of their own, values that all share."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)
from torch_geometric import seed_everything

from bitgnn._checks import name_type
from bitgnn.distillation.calling import DistillError, is_dataset
from bitgnn.distillation.graphs_and_links import Graphs
from bitgnn.distillation.problems import Nodes, Problem

TIMEOUT = 600
"""Seconds after which a rank that does not answer is lost."""


def count() -> int:
    """Number of ranks of the group this process is in; 1 without a group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process in its group; 0 without one."""
    return dist.get_rank() if count() > 1 else 0


def is_launched() -> bool:
    """True in a process that torchrun started."""
    return "RANK" in os.environ


@contextmanager
def group(kind: str, timeout: int = TIMEOUT) -> Iterator[None]:
    """Join the ranks that torchrun started, or be the only rank.

    An error is that of the rank which raises first; the others exit with status 1.

    Args:
        kind: ``"cuda"`` for NCCL and a GPU a rank, ``"cpu"`` for gloo.
        timeout: seconds after which a rank that does not answer is lost.

    Raises:
        ValueError: a variable of torchrun's is missing in the environment.
        ConnectionError: not all ranks came within the timeout.
    """
    place = None
    if kind == "cuda":
        place = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(place)
    limit = timedelta(seconds=timeout)
    store: Any = dist.HashStore()
    number, size = 0, 1
    try:
        if is_launched():
            store, number, size = next(rendezvous("env://", timeout=limit))
        dist.init_process_group(
            "nccl" if place else "gloo", store=dist.PrefixStore("ranks", store), rank=number,
            world_size=size, timeout=limit, device_id=place,
        )  # fmt: skip
    except RuntimeError as error:
        address = ":".join(os.environ.get(f"MASTER_{name}", "") for name in ("ADDR", "PORT"))
        raise ConnectionError(
            f"the ranks did not meet at {address} within {timeout} seconds: "
            f"{str(error).splitlines()[0]}"
        ) from error
    try:
        yield
    except Exception:
        if size > 1 and not _is_first_error(store):
            raise SystemExit(1) from None
        raise
    finally:
        dist.destroy_process_group()


def _is_first_error(store: Any) -> bool:
    """True if no other rank has failed; one that cannot be reached has."""
    try:
        return int(store.add("errors", 1)) == 1
    except RuntimeError:
        return False


def replica(model: nn.Module) -> nn.Module:
    """The model as ranks train it together: they start at the first one's state."""
    return model if count() == 1 else DistributedDataParallel(model)


def zero(model: nn.Module) -> Tensor:
    """0 with a gradient for each parameter, all of which ranks wait for, used by a batch or not."""
    parameters = [value for value in model.parameters() if value.requires_grad]
    return torch.stack([value.flatten()[:0].sum() for value in parameters]).sum()


def split(problem: Problem, seed: int) -> None:
    """Leave each rank batches of its own, equally many; the first samples fill up the last ones.

    Shuffled loaders are shuffled in each epoch by ``seed``.

    Raises:
        DistillError: the loader cannot be split, or has fewer samples than there are ranks.
    """
    if not isinstance(problem, Nodes | Graphs):
        raise DistillError(f"data must be nodes or graphs where {count()} ranks train")
    loader: Any = problem.loader
    sampler = getattr(loader, "sampler", None)
    if not (
        isinstance(loader, DataLoader)
        and is_dataset(loader.dataset)
        and type(loader.batch_sampler) is BatchSampler
        and isinstance(sampler, RandomSampler | SequentialSampler)
    ):
        raise DistillError(
            f"loader must be a DataLoader of samples in order or shuffled, such as "
            f"bitgnn.data.NeighborLoader, where {count()} ranks train, got {name_type(loader)}"
        )
    samples: Any = loader.dataset
    if len(samples) < count():
        raise DistillError(
            f"loader must have a sample at least for each of {count()} ranks, got {len(samples)}"
        )
    is_shuffled = isinstance(sampler, RandomSampler)
    own: Any = DistributedSampler(samples, count(), rank(), is_shuffled, seed)
    batches = BatchSampler(own, loader.batch_size or 1, loader.drop_last)
    part: Any = copy.copy(loader)
    # torch refuses to set these; made anew, a loader of a subclass would need its own arguments.
    vars(part).update(sampler=own, batch_sampler=batches, _iterator=None)
    problem.loader, problem.sampler, problem.steps = part, own, max(len(part), 1)


def begin_epoch(sampler: DistributedSampler[Any] | None, epoch: int) -> None:
    """Deal the samples anew, and seed dropout and draws of neighbours for this rank alone.

    The seed is a function of epoch and rank, so that going on needs no other rank's random state.
    """
    if sampler is not None:
        sampler.set_epoch(epoch)
        seed = np.random.SeedSequence([sampler.seed, epoch, rank()])
        seed_everything(int(seed.generate_state(1)[0]))


@torch.no_grad()
def take_first(tensors: Iterable[Tensor]) -> None:
    """Give tensors the first rank's values."""
    for tensor in tensors if count() > 1 else ():
        received = tensor.detach().clone()
        dist.broadcast(received, 0)
        tensor.copy_(received)


def mean(values: Tensor) -> Tensor:
    """Mean over the ranks, the same bits on each."""
    dist.all_reduce(values)
    return values / count()


def largest(value: float, device: torch.device) -> float:
    """Largest value of all ranks."""
    if count() == 1:
        return value
    found = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)
