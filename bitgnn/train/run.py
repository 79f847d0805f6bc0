"""One unit of work: the training of one form with one seed, found again if it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data

from bitgnn.measure.environment import cpu_model
from bitgnn.train.build import build_model, make_task, restore_model
from bitgnn.train.checkpoint import CheckpointError
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.keeping import Keeping, RunLog
from bitgnn.train.loop import TrainingError, train_model
from bitgnn.train.store import AnyRun, Run, RunFiles, RunStore

CUBLAS_WORKSPACE = ":4096:8"


@dataclass(frozen=True)
class RunOptions:
    """How runs are carried out; none of it changes what a run should find.

    Attributes:
        device: ``cpu``, ``cuda`` or ``auto`` (CUDA where there is a device).
        checkpoint_seconds: least time between two checkpoints of a run, see
            :class:`~bitgnn.train.keeping.Keeping`; 0 writes one after every epoch.
        deterministic: have PyTorch choose operators that repeat bit for bit on CUDA too, slower
            ones; it warns where it has none. On the CPU runs repeat in any case.
    """

    device: str = "cpu"
    checkpoint_seconds: float | None = None
    deterministic: bool = False

    def torch_device(self) -> torch.device:
        """The device, with PyTorch told about ``deterministic``.

        Raises:
            ValueError: ``device`` is none of the three, or CUDA is asked for and not there.
        """
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.deterministic:
            # Read when CUDA starts; without it cuBLAS may add in another order each time.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
            torch.use_deterministic_algorithms(True, warn_only=True)
        has_cuda = torch.cuda.is_available()
        if self.device == "cuda" and not has_cuda:
            raise ValueError("device 'cuda': torch finds no CUDA device; use 'cpu' or 'auto'")
        return torch.device("cuda" if has_cuda and self.device != "cpu" else "cpu")


def train_run(
    config: ExperimentConfig,
    form: str,
    seed: int,
    data: Data,
    store: RunStore,
    options: RunOptions,
    on_epochs: Callable[[int], None] = lambda count: None,
) -> Run:
    """Train one form with one seed, or take it from ``store``.

    Args:
        config: the experiment.
        form: the form; those it needs are in ``store`` already.
        seed: of all random generators.
        data: the graph, checked.
        store: where finished runs are, and checkpoints and logs of those under way.
        options: device and the like.
        on_epochs: called with the number of epochs done since the last call; the sum is the
            recipe's epochs.

    Returns:
        The finished run.

    Raises:
        CheckpointError: a checkpoint does not fit or is damaged.
        LoaderError: a loader's library is missing.
        TrainingError: the training diverged.
        OSError: the folder cannot be written.
    """
    recipe = config.forms[form]
    kept = store.load(form, seed)
    if kept is not None:
        store.clear_leftovers(form, seed)
        on_epochs(recipe.epochs)
        return kept[0]
    device = options.torch_device()
    states = {name: kept_state(store, name, seed)[1] for name in recipe.needs()}
    teachers = [_logits(config, name, data, states[name], device) for name in recipe.teaching()]
    seed_everything(seed)
    model = build_model(config, form, data).to(device)
    keeping = keep_under_way(store, form, seed, options)
    with named_errors(config.name, form, seed):
        trained = train_model(
            model,
            make_task(config, form, data, device),
            recipe,
            loader=config.loader,
            initial=None if recipe.start_from is None else states[recipe.start_from],
            teachers=teachers,
            keeping=keeping,
            on_epochs=on_epochs,
        )
    run = Run(
        form,
        seed,
        trained.test_score,
        trained.val_score,
        trained.val_loss,
        trained.epoch,
        trained.epochs,
        trained.seconds,
        machine_name(device),
    )
    store.save(run, trained.state)
    return run


def kept_state(store: RunFiles[AnyRun], form: str, seed: int) -> tuple[AnyRun, dict[str, Tensor]]:
    """A finished run and its state.

    Raises:
        TrainingError: the run is not in ``store``.
    """
    kept = store.load(form, seed)
    if kept is None:
        raise TrainingError(f"{store.folder}: the run of form {form}, seed {seed} is missing")
    return kept


def keep_under_way(store: RunFiles[Any], form: str, seed: int, options: RunOptions) -> Keeping:
    """Checkpoint and logs of a run about to start or go on; half-written files are removed.

    Raises:
        OSError: the folder cannot be written.
    """
    store.clear_leftovers(form, seed, under_way=True)
    log = RunLog(store.log(form, seed))
    return Keeping(store.checkpoint(form, seed), log, options.checkpoint_seconds)


@contextmanager
def named_errors(name: str, form: str, seed: int) -> Iterator[None]:
    """Adds the run's name to the errors of a training."""
    try:
        yield
    except (CheckpointError, TrainingError) as error:
        raise type(error)(f"{name}, form {form}, seed {seed}: {error}") from error


@torch.no_grad()
def _logits(
    config: ExperimentConfig, form: str, data: Data, state: dict[str, Tensor], device: torch.device
) -> Tensor:
    """Class scores of a trained form on all nodes."""
    task = make_task(config, form, data, device)
    model = restore_model(config, form, data, state).to(device)
    logits: Tensor = model(task.x, task.evaluation_graph)
    return logits


def machine_name(device: torch.device) -> str:
    """What trains: the GPU or the processor, and torch's version."""
    is_gpu = device.type == "cuda"
    processor = torch.cuda.get_device_name(device) if is_gpu else cpu_model()
    return f"{processor}, torch {torch.__version__}"
