"""One form of one network with one seed: trained, or found again if it is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric import seed_everything

from bitgnn.data import ImageData
from bitgnn.models import IMAGE_NETWORKS
from bitgnn.train.checkpoint import load_state
from bitgnn.train.store import RunFiles
from bitgnn.train.unit import (
    RunOptions,
    keep_under_way,
    kept_state,
    machine_name,
    named_errors,
)
from experiments.images.loop import train_network
from experiments.images.recipe import ImageConfig

__all__ = ["ImageRun", "ImageRuns", "build_network", "train_image_unit", "trained_network"]


@dataclass(frozen=True)
class ImageRun:
    """One finished training on images.

    Attributes:
        form: name of the form.
        seed: random seed.
        test_accuracy: share of the test images whose class comes out right, behind the last epoch.
        seconds: time of all epochs, tests included.
        history: one row an epoch, see :class:`~experiments.images.loop.TrainedNetwork`.
        machine: processor and torch version it was trained with.
    """

    form: str
    seed: int
    test_accuracy: float
    seconds: float
    history: list[dict[str, float]]
    machine: str


ImageRuns = RunFiles[ImageRun]
"""Finished runs of an experiment on images."""


def build_network(config: ImageConfig, form: str, data: ImageData) -> nn.Module:
    """The network of a form (``fp32`` or ``binary``), with fresh weights."""
    make: Callable[..., nn.Module] = IMAGE_NETWORKS[config.model]
    return make(precision=form, classes=len(data.classes))


def train_image_unit(
    config: ImageConfig,
    form: str,
    seed: int,
    data: ImageData,
    store: ImageRuns,
    options: RunOptions,
    on_epochs: Callable[[int], None] = lambda count: None,
) -> ImageRun:
    """Train one form with one seed, or take it from ``store``.

    Args:
        config: the experiment.
        form: the form; its teacher's run is in ``store`` already.
        seed: of all random generators.
        data: the images on the device.
        store: where finished runs are, and checkpoints and logs of those under way.
        options: how often checkpoints are written.
        on_epochs: called with the number of epochs done since the last call.

    Raises:
        CheckpointError: a checkpoint does not fit or is damaged.
        TrainingError: the training diverged.
        OSError: the folder cannot be written.
    """
    recipe = config.forms[form]
    kept = store.load(form, seed)
    if kept is not None:
        store.clear_leftovers(form, seed)
        on_epochs(recipe.epochs)
        return kept[0]
    device = data.train.images.device
    teacher = None
    if recipe.teacher is not None:
        teacher = trained_network(config, recipe.teacher, seed, data, store)
    seed_everything(seed)
    model = _on(build_network(config, form, data), device)
    keeping = keep_under_way(store, form, seed, options)
    with named_errors(config.name, form, seed):
        trained = train_network(
            model, data, recipe, teacher=teacher, keeping=keeping, on_epochs=on_epochs
        )
    run = ImageRun(
        form,
        seed,
        trained.history[-1]["test_accuracy"],
        sum(row["seconds"] for row in trained.history),
        trained.history,
        machine_name(device),
    )
    store.save(run, trained.state)
    return run


def trained_network(
    config: ImageConfig, form: str, seed: int, data: ImageData, store: ImageRuns
) -> nn.Module:
    """The network of a finished run in evaluation mode, on the device of ``data``.

    Raises:
        TrainingError: the run is not in ``store``.
        CheckpointError: its state does not fit the network.
    """
    state = kept_state(store, form, seed)[1]
    model = build_network(config, form, data)
    load_state(model, state, str(store.folder))
    return _on(model, data.train.images.device).eval()


def _on(model: nn.Module, device: torch.device) -> nn.Module:
    """The network on a device, its kernels in the layout that tensor cores want."""
    return model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
