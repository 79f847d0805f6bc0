"""Trained decoders on bits: whether they answer as before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from bitgnn.convert import freeze
from bitgnn.data import CharacterData
from bitgnn.models.decoder import Decoder
from bitgnn.nn import BWTALinear
from experiments.text.recipe import DecoderConfig

if TYPE_CHECKING:
    from experiments.text.experiment import TextExperiment

__all__ = ["compare_decoders", "frozen_decoder"]

WINDOWS = 32


def frozen_decoder(model: Decoder) -> Decoder:
    """The decoder with its BWTA layers packed, or itself where it has none."""
    if all(m.level is None for m in model.modules() if isinstance(m, BWTALinear)):
        return model.eval()
    found: nn.Module = freeze(model).model
    assert isinstance(found, Decoder)
    return found.eval()


def compare_decoders(experiment: TextExperiment) -> dict[str, dict[str, Any]]:
    """Trained and frozen decoders of the first seed on the same windows, on the CPU.

    Args:
        experiment: whose runs are finished.

    Returns:
        By form: number of answers, of equal ones, and both perplexities.

    Raises:
        TrainingError: a run is missing.
    """
    config, data = experiment.config, experiment.data.to("cpu")
    assert isinstance(config, DecoderConfig)
    assert isinstance(data, CharacterData)
    windows = _test_windows(data, config.network.length)
    found = {}
    for form, recipe in config.forms.items():
        if recipe.precision != "bwta":
            continue  # layers of signs have no packed form
        model = experiment.trained(form, 0).cpu()
        assert isinstance(model, Decoder)
        found[form] = _compare(model, frozen_decoder(model), windows)
    return found


def _test_windows(data: CharacterData, length: int) -> torch.Tensor:
    count = min(WINDOWS, data.test.numel() // (length + 1))
    return data.test[: count * (length + 1)].view(count, length + 1).long()


@torch.no_grad()
def _compare(trained: Decoder, frozen: Decoder, windows: torch.Tensor) -> dict[str, Any]:
    """Equal answers and perplexities of both on the same windows."""
    outputs = [model(windows[:, :-1]) for model in (trained, frozen)]
    wanted = windows[:, 1:]
    losses = [float(functional.cross_entropy(o.transpose(1, 2), wanted)) for o in outputs]
    return {
        "answers": wanted.numel(),
        "equal": int((outputs[0].argmax(-1) == outputs[1].argmax(-1)).sum()),
        "largest_difference": float((outputs[0] - outputs[1]).abs().max()),
        "trained_perplexity": math.exp(losses[0]),
        "frozen_perplexity": math.exp(losses[1]),
    }
