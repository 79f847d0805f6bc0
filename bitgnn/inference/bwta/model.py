"""FrozenBWTA: a model whose BWTA layers are packed, the rest as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bitgnn.inference.bwta.architecture import build, describe, frozen_layers
from bitgnn.inference.frozen import FreezeReport, OwnForward, under_all_names

__all__ = ["FrozenBWTA"]


class FrozenBWTA(OwnForward):
    """Inference form of a model with BWTA layers: packed weights, one bit each, floats between.

    Moving it to another type of floats rounds what is in floats alone.

    Args:
        model: with packed layers.
        report: letters of the packed layers; layers left in floats.
    """

    kind = "bwta"

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the packed layers."""
        layers = frozen_layers(self.model).values()
        return sum(t.nbytes for layer in layers for t in layer.state_dict().values())

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
