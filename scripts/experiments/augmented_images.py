"""Images to train on: batches made on their device, mirrored and shifted at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AugmentedImages", "normalized"]

GREY = 128
"""The byte that becomes 0."""
PIXEL_STEP = 1 / 64
"""Value of one level: a power of two, so that bytes are exact in fixed point and in bfloat16."""


def normalized(images: Tensor) -> Tensor:
    """``(byte - 128) / 64`` of uint8 images."""
    return images.float().sub_(GREY).mul_(PIXEL_STEP)


class AugmentedImages:
    """Training images that stay on the device, with their augmentation."""

    def __init__(self, images: Tensor, flip: bool, crop: int) -> None:
        self.height, self.width = images.shape[2:]
        self.flip, self.crop = flip, crop
        framed = functional.pad(images, (crop,) * 4, value=GREY)
        # Gathering then gives batches in channels_last.
        self._bytes = framed.permute(0, 2, 3, 1).contiguous()

    def batch(self, index: Tensor) -> Tensor:
        """A batch, augmented with the device's default random generator."""
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
        return normalized(picked.permute(0, 3, 1, 2))
