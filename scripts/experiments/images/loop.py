"""Training of one network on images: epochs, test accuracy after each, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitgnn.data import ImageData, ImageSet
from bitgnn.train.keeping import Keeper, Keeping
from bitgnn.train.loop import TrainingError
from bitgnn.train.session import Session
from experiments.images.recipe import ImageRecipe
from experiments.images.step import TrainingImages, TrainStep, make_optimizer, normalized

__all__ = ["ImageSession", "TrainedNetwork", "count_right", "image_batches", "train_network"]

TEST_BATCH = 1000


class ImageSession(Session):
    """A training on images in progress."""

    columns = ("train_loss", "train_accuracy", "test_accuracy", "learning_rate", "seconds")


@dataclass(frozen=True)
class TrainedNetwork:
    """Result of one training.

    Attributes:
        state: parameters and buffers behind the last epoch, on the CPU.
        history: one row an epoch: loss and share of right answers on the training images as they
            were shown, share of right answers on the test images, learning rate, seconds.
    """

    state: dict[str, Tensor]
    history: list[dict[str, float]]


def train_network(
    model: nn.Module,
    data: ImageData,
    recipe: ImageRecipe,
    *,
    teacher: nn.Module | None = None,
    keeping: Keeping | None = None,
    on_epochs: Callable[[int], None] = lambda count: None,
) -> TrainedNetwork:
    """Train on the training images; the last epoch's network is the result.

    Nothing is chosen by the test images. A training that goes on from a checkpoint gives bit for
    bit what it would have given without the stop, on the CPU and wherever the device's operators
    are deterministic.

    Args:
        model: the network on its device; trained in place, left in evaluation mode.
        data: the images on the same device.
        recipe: epochs, learning rate and the like.
        teacher: network to distill from where ``recipe.distill`` is not 0.
        keeping: checkpoints and logs; None for neither.
        on_epochs: called with the number of epochs done since the last call.

    Raises:
        CheckpointError: the checkpoint does not fit.
        TrainingError: there are fewer training images than a batch takes, or the loss is no
            longer finite.
        OSError: a checkpoint or log cannot be written.
    """
    if recipe.batch_size > len(data.train):
        raise TrainingError(
            f"batch_size must be at most the {len(data.train)} training images, "
            f"got {recipe.batch_size}"
        )
    session = ImageSession(model, recipe, make_optimizer(model, recipe))
    if keeping is not None and session.resume(keeping.checkpoint):
        on_epochs(session.epoch)
    keeper = Keeper(session, keeping)
    if teacher is not None:
        teacher.eval()
    images = TrainingImages(data.train.images, recipe.flip, recipe.crop)
    step = TrainStep(model, session.optimizer, recipe, images, data.train.labels, teacher)
    while session.epoch < recipe.epochs:
        begin = time.perf_counter()
        rate = recipe.rate(session.epoch)
        for group in session.optimizer.param_groups:
            group["lr"].fill_(rate)
        loss, accuracy = _train_epoch(step, model, len(data.train), recipe.batch_size)
        if not loss < float("inf"):
            raise TrainingError(f"the loss of epoch {session.epoch} is {loss}; lower learning_rate")
        tested = int(count_right(model, data.test)) / max(len(data.test), 1)
        seconds = time.perf_counter() - begin
        session.finished([loss, accuracy, tested, rate, seconds])
        keeper.epoch_done()
        on_epochs(1)
    keeper.finish()
    model.eval()
    state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    return TrainedNetwork(state, session.rows())


def _train_epoch(
    step: TrainStep, model: nn.Module, count: int, batch_size: int
) -> tuple[float, float]:
    """Mean loss and share of right answers; the device is waited for once, at the end."""
    model.train()
    step.loss.zero_()
    step.right.zero_()
    order = torch.randperm(count, device=step.loss.device)
    steps = count // batch_size
    for number in range(steps):
        step(order[number * batch_size : (number + 1) * batch_size])
    shown = steps * batch_size
    return float(step.loss) / shown, int(step.right) / shown


def image_batches(part: ImageSet, size: int = TEST_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """Images as networks take them, in order, with their labels.

    Args:
        part: the images.
        size: images of a batch.

    Yields:
        float32 ``[B, C, H, W]`` in channels_last, and ``[B]`` labels.
    """
    for first in range(0, len(part), size):
        x = normalized(part.images[first : first + size])
        yield x.contiguous(memory_format=torch.channels_last), part.labels[first : first + size]


@torch.no_grad()
def count_right(model: nn.Module, part: ImageSet) -> Tensor:
    """Number of images whose class comes out right, in float32, as a tensor on their device."""
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=part.labels.device)
    for x, labels in image_batches(part):
        right += (model(x).argmax(1) == labels).sum()
    return right
