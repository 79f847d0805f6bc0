"""FrozenBWTA: a model whose BWTA layers are packed, the rest as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.inference.bwta.architecture import build, describe, frozen_layers
from bitgnn.inference.report import FreezeReport
from bitgnn.inference.shared_tensors import each_once, under_all_names

__all__ = ["FrozenBWTA"]


class FrozenBWTA(nn.Module):
    """Inference form of a model with BWTA layers: packed weights, one bit each, floats between.

    Made by :func:`bitgnn.freeze` or :func:`bitgnn.load`. It is called as the trained model was,
    stays in evaluation and records no gradients; moving it to another type of floats rounds what is
    in floats alone.

    Args:
        model: with packed layers.
        report: what freezing did.

    Attributes:
        model: the model itself, for its further methods (such as ``generate``).
        report: letters of the packed layers; layers left in floats.
    """

    kind = "bwta"

    def __init__(self, model: nn.Module, report: FreezeReport) -> None:
        super().__init__()
        self.model = model
        self.report = report
        self.requires_grad_(False)
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, without gradients."""
        if torch.compiler.is_compiling():
            return self.model(*args, **kwargs)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def train(self, mode: bool = True) -> FrozenBWTA:
        """Nothing: a frozen model stays in evaluation."""
        super().train(False)
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; what several names share counts once."""
        tensors = {t.data_ptr(): t.nbytes for t in self.state_dict().values() if t.numel()}
        return sum(tensors.values())

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the packed layers."""
        layers = frozen_layers(self.model).values()
        return sum(t.nbytes for layer in layers for t in layer.state_dict().values())

    def saved_tensors(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors by name, each once, and the names that share another's."""
        return each_once(self.model.state_dict())

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        return {
            **describe(self.model),
            "shared": self.saved_tensors()[1],
            "report": self.report.description(),
        }

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        model: nn.Module | None = None,
    ) -> FrozenBWTA:
        """The inverse of :meth:`description` and :meth:`saved_tensors`.

        Args:
            description: plain values.
            tensors: by name.
            model: of the same architecture, for one of the user's own.

        Raises:
            ImportError: the model needs ``transformers``, which is not installed.
            KeyError: an entry is missing.
            ValueError: an entry is wrong, a tensor missing or left over, or a model is needed.
        """
        state = under_all_names(tensors, description["shared"])
        report = FreezeReport.from_description(description["report"])
        return cls(build(description, state, model), report)

    def extra_repr(self) -> str:
        """Packed layers and bytes."""
        return f"packed_layers={len(self.report.letters)}, nbytes={self.nbytes}"
