"""Images: batches of pixels with labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.distillation.batched import Batched, check_labels
from bitgnn.distillation.errors import DistillError

__all__ = ["Images"]

PAIR = 2


class Images(Batched):
    """Images ``[B, C, H, W]``, or vectors, with ``[B]`` classes, ``[B, C]`` labels or values.

    The teacher's probabilities are all that a student learns from, as in ReActNet.
    """

    teacher_options: Mapping[str, Any] = {
        "learning_rate": 2e-3, "weight_decay": 1e-4, "schedule": "cosine",
    }  # fmt: skip
    student_options: Mapping[str, Any] = {
        "learning_rate": 2e-3, "teacher_weight": 1.0, "sharpen": 1.0,
    }  # fmt: skip

    def split(self, batch: Any, name: str) -> tuple[Tensor, Tensor]:
        """Images and labels of a pair."""
        if not isinstance(batch, tuple | list) or len(batch) != PAIR:
            got = f"{len(batch)} values" if isinstance(batch, tuple | list) else name_type(batch)
            raise DistillError(f"{name} must give pairs (images, labels), got {got}")
        images, y = batch
        if not isinstance(images, Tensor) or images.dim() < PAIR:
            found = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise DistillError(f"{name}: images must be a tensor [B, C, H, W], got {found}")
        return images, check_labels(y, images.size(0), name)
