"""One training step on a batch of images made on the device, on a GPU replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.train.losses import divergence
from experiments.images.recipe import ImageRecipe

__all__ = ["GREY", "PIXEL_STEP", "TrainStep", "TrainingImages", "make_optimizer", "normalized"]

GREY = 128
"""The byte that becomes 0."""
PIXEL_STEP = 1 / 64
"""Value of one level: a power of two, so that bytes are exact in fixed point and in bfloat16."""


def normalized(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """``(byte - 128) / 64``, exact in every floating-point type.

    Args:
        images: uint8 tensor.
        dtype: of the result.
    """
    return images.to(dtype).sub_(GREY).mul_(PIXEL_STEP)


class TrainingImages:
    """Training images that stay on the device, with their augmentation.

    Args:
        images: uint8 ``[N, C, H, W]`` on the device.
        flip: mirror half of them.
        crop: shift them by up to so many pixels each way.
    """

    def __init__(self, images: Tensor, flip: bool, crop: int) -> None:
        self.height, self.width = images.shape[2:]
        self.flip, self.crop = flip, crop
        framed = functional.pad(images, (crop,) * 4, value=GREY)
        # Gathering then gives batches in channels_last.
        self._bytes = framed.permute(0, 2, 3, 1).contiguous()

    def batch(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """A batch, augmented with the device's default random generator.

        Args:
            index: int64 ``[B]`` numbers of images.
            dtype: of the result.

        Returns:
            ``[B, C, H, W]`` in channels_last.
        """
        device, count = index.device, index.size(0)
        rows = torch.arange(self.height, device=device).expand(count, -1)
        columns = torch.arange(self.width, device=device).expand(count, -1)
        if self.flip:
            mirrored = torch.rand(count, 1, device=device) < 0.5
            columns = torch.where(mirrored, self.width - 1 - columns, columns)
        if self.crop:
            shifts = torch.randint(2 * self.crop + 1, (2, count, 1), device=device)
            rows, columns = rows + shifts[0], columns + shifts[1]
        picked = self._bytes[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return normalized(picked.permute(0, 3, 1, 2), dtype)


EAGER_STEPS = 3
"""Steps before the graph is recorded: libraries choose their kernels, the optimizer its state."""


def make_optimizer(model: nn.Module, recipe: ImageRecipe) -> torch.optim.Optimizer:
    """AdamW whose learning rate is a tensor, so that recorded steps follow it.

    Latent weights of binary layers do not decay: only their signs count.

    Args:
        model: on its device.
        recipe: learning rate and weight decay.
    """
    latent = {id(weight) for weight in _latent_weights(model)}
    parameters = list(model.parameters())
    decaying = [p for p in parameters if p.dim() > 1 and id(p) not in latent]
    others = [p for p in parameters if p.dim() <= 1 or id(p) in latent]
    groups = [
        {"params": decaying, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    device = parameters[0].device
    rate = torch.tensor(recipe.learning_rate, device=device)
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=rate,
        fused=True,
        capturable=device.type == "cuda",
    )


def _latent_weights(model: nn.Module) -> Iterable[Tensor]:
    for module in model.modules():
        if isinstance(module, (BinaryConv2d, BinaryLinear)):
            yield module.weight


class TrainStep:
    """Forward, backward and update on one batch; sums of loss and hits stay on the device.

    Args:
        model: in training mode on its device.
        optimizer: of :func:`make_optimizer`.
        recipe: losses, clipping, types.
        images: the training images.
        labels: ``[N]`` their labels.
        teacher: network in evaluation mode to distill from, or None.

    Attributes:
        loss: sum of the losses of all images since it was last zeroed.
        right: number of images whose class came out right, augmented as they were.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: ImageRecipe,
        images: TrainingImages,
        labels: Tensor,
        teacher: nn.Module | None = None,
    ) -> None:
        self._model, self._optimizer, self._recipe = model, optimizer, recipe
        self._images, self._labels, self._teacher = images, labels, teacher
        self._latent = list(_latent_weights(model)) if recipe.clip else []
        device = labels.device
        self._device = device
        self._index = torch.zeros(recipe.batch_size, dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.right = torch.zeros((), dtype=torch.int64, device=device)
        half = device.type == "cuda" and recipe.activations == "bfloat16"
        self._dtype = torch.bfloat16 if half else torch.float32
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager = 0

    def __call__(self, index: Tensor) -> None:
        """Train on the images of these numbers.

        Args:
            index: int64 ``[batch_size]``.
        """
        self._index.copy_(index)
        if self._device.type != "cuda":
            self._run()
        elif self._graph is not None:
            self._graph.replay()
        elif self._eager < EAGER_STEPS:
            self._eager += 1
            self._run_aside()
        else:
            self._graph = torch.cuda.CUDAGraph()
            self._optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self._graph):
                self._run()
            self._graph.replay()

    def _run_aside(self) -> None:
        """A step on another stream, as recording needs it done before."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run()
        torch.cuda.current_stream().wait_stream(stream)

    def _run(self) -> None:
        recipe = self._recipe
        self._optimizer.zero_grad(set_to_none=True)
        x = self._images.batch(self._index, self._dtype)
        labels = self._labels[self._index]
        with torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16
        ):
            logits = self._model(x)
            taught = None
            if self._teacher is not None:
                with torch.no_grad():
                    taught = self._teacher(x)
        logits = logits.float()
        loss = functional.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if taught is not None:
            wanted = functional.log_softmax(taught.float() / recipe.temperature, dim=1)
            loss = loss + recipe.distill * divergence(logits, wanted, recipe.temperature)
        loss.backward()
        self._optimizer.step()
        with torch.no_grad():
            for weight in self._latent:
                weight.clamp_(-1.0, 1.0)
            self.loss += labels.numel() * loss
            self.right += (logits.argmax(1) == labels).sum()
