"""Texts: batches of token numbers with labels, for encoders that classify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.convert.configs import BWTAConfig
from bitgnn.distillation.batched import Batched, check_labels
from bitgnn.distillation.errors import DistillError

__all__ = ["Texts"]

LABELS = ("labels", "label")


class Texts(Batched):
    """Mappings of ``input_ids``, ``attention_mask`` and the like, with ``labels``.

    The student is of a :class:`~bitgnn.convert.BWTAConfig`. Labels weigh as much as the teacher.
    """

    teacher_options: Mapping[str, Any] = {"learning_rate": 5e-4, "weight_decay": 0.0}
    student_options: Mapping[str, Any] = {"learning_rate": 1e-3, "sharpen": 1.0}

    def config(self, precision: Any) -> BWTAConfig:
        """A configuration as it is; ``"bin"`` is all layers and attention.

        Raises:
            DistillError: it is none of the two.
        """
        if isinstance(precision, BWTAConfig):
            return precision
        if precision != "bin":
            raise DistillError(f'precision must be "bin" or a BWTAConfig for text, got {precision}')
        return BWTAConfig()

    def split(self, batch: Any, name: str) -> tuple[dict[str, Tensor], Tensor]:
        """Tensors by name, and labels."""
        if not isinstance(batch, Mapping):
            raise DistillError(f"{name} must give mappings, got {name_type(batch)}")
        key = next((label for label in LABELS if label in batch), None)
        inputs = {n: v for n, v in batch.items() if isinstance(v, Tensor) and n not in LABELS}
        if key is None or not inputs:
            raise DistillError(
                f"{name} must give mappings of input_ids, attention_mask and labels, got the keys "
                f"{list(batch)}"
            )
        rows = next(iter(inputs.values())).shape[:1]
        if not rows or any(value.shape[:1] != rows for value in inputs.values()):
            shapes = {n: list(value.shape) for n, value in inputs.items()}
            raise DistillError(f"{name}: tensors of a batch must have equal rows, got {shapes}")
        return inputs, check_labels(batch[key], rows[0], name)
