"""The task of classifying images: augmented batches made on the device, losses, right answers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.data import ImageData, ImageSet
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.train.loop import TrainingError, divergence
from experiments.images.recipe import ImageRecipe
from experiments.training.task import EpochPlan, Evaluation, Task

__all__ = ["ImageTask", "TrainingImages", "normalized"]

GREY = 128
"""The byte that becomes 0."""
PIXEL_STEP = 1 / 64
"""Value of one level: a power of two, so that bytes are exact in fixed point and in bfloat16."""
TEST_BATCH = 1000


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


class ImageTask(Task):
    """A network with the images it is trained on.

    Latent weights of binary layers do not decay: only their signs count.

    Args:
        model: on its device.
        data: the images on the same device.
        recipe: losses, augmentation, batch size, types.
        teacher: network to distill from where ``recipe.distill`` is not 0.

    Raises:
        TrainingError: there are fewer training images than a batch takes.
    """

    columns = ("train_loss", "train_accuracy", "test_accuracy", "learning_rate", "seconds")

    def __init__(
        self,
        model: nn.Module,
        data: ImageData,
        recipe: ImageRecipe,
        teacher: nn.Module | None = None,
    ) -> None:
        count = len(data.train)
        if recipe.batch_size > count:
            raise TrainingError(
                f"batch_size must be at most the {count} training images, got {recipe.batch_size}"
            )
        self.model, self.device = model, data.train.labels.device
        self._images = TrainingImages(data.train.images, recipe.flip, recipe.crop)
        self._labels, self._recipe = data.train.labels, recipe
        self._teacher = None if teacher is None else teacher.eval()
        binary = (BinaryConv2d, BinaryLinear)
        self._latent = [m.weight for m in model.modules() if isinstance(m, binary)]
        half = self.device.type == "cuda" and recipe.activations == "bfloat16"
        self._dtype = torch.bfloat16 if half else torch.float32
        self._right = torch.zeros((), dtype=torch.int64, device=self.device)
        self._steps = count // recipe.batch_size
        self._test = RightAnswers(model, data.test)
        self.evaluations = [self._test]

    def groups(self) -> list[tuple[list[nn.Parameter], float, float]]:
        """Weights that decay, and the others."""
        latent = {id(weight) for weight in self._latent}
        parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
        for p in self.model.parameters():
            parts[p.dim() <= 1 or id(p) in latent].append(p)
        rate = self._recipe.learning_rate
        return [(parts[0], rate, self._recipe.weight_decay), (parts[1], rate, 0.0)]

    def rates(self, epoch: int, epochs: int, steps: int) -> Tensor:
        """The recipe's schedule, the same in all steps of an epoch."""
        factor = self._recipe.rate(epoch) / self._recipe.learning_rate
        return torch.full((steps,), factor, dtype=torch.float64)

    def plan(self, seed: int) -> EpochPlan:
        """All images in a new order of the device's default generator, but an incomplete batch."""
        self._right.zero_()
        order = torch.randperm(len(self._labels), device=self.device)
        shape = self._steps, self._recipe.batch_size
        index = order[: shape[0] * shape[1]].view(shape)
        return EpochPlan([0] * shape[0], index, torch.ones(shape))

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """Cross entropy with the labels, and the divergence from the teacher's probabilities."""
        recipe, half = self._recipe, self._dtype == torch.bfloat16
        x, labels = self._images.batch(index, self._dtype), self._labels[index]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            logits = self.model(x)
            taught = None
            if self._teacher is not None:
                with torch.no_grad():
                    taught = self._teacher(x)
        logits = logits.float()
        loss = functional.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if taught is not None:
            wanted = functional.log_softmax(taught.float() / recipe.temperature, dim=1)
            loss = loss + recipe.distill * divergence(logits, wanted, recipe.temperature)
        with torch.no_grad():
            self._right += (logits.argmax(1) == labels).sum()
        return loss

    def behind_step(self) -> None:
        """Keep latent weights within reach of gradients."""
        for weight in self._latent if self._recipe.clip else ():
            weight.clamp_(-1.0, 1.0)

    def results(self) -> dict[str, float]:
        """Shares of right answers on training images as they were shown, and on test images."""
        shown = self._steps * self._recipe.batch_size
        return {"train_accuracy": int(self._right) / shown, "test_accuracy": self._test.share()}


class RightAnswers(Evaluation):
    """Number of images whose class comes out right, in float32."""

    def __init__(self, model: nn.Module, part: ImageSet) -> None:
        self._model, self._part = model, part
        count = len(part)
        size = max(1, min(TEST_BATCH, count))
        filled = -(-count // size) * size
        index = torch.arange(filled).clamp(max=max(count - 1, 0)).view(-1, size)
        weight = (torch.arange(filled) < count).float().view(-1, size)
        self.plan = EpochPlan([0] * len(index), index, weight)
        self._right = torch.zeros((), device=part.labels.device)

    def start(self) -> None:
        """Set the count to 0."""
        self._right.zero_()

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        """Count a batch."""
        x = normalized(self._part.images[index]).contiguous(memory_format=torch.channels_last)
        self._right += ((self._model(x).argmax(1) == self._part.labels[index]) * weight).sum()

    def share(self) -> float:
        """Share of right answers."""
        return float(self._right) / max(len(self._part), 1)
