"""Trained decoders on bits: whether they answer as before, and how fast they are."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bitgnn.bench.decoder_speed import decoder_speeds
from bitgnn.convert import freeze
from bitgnn.data import CharacterData
from bitgnn.models.decoder import Decoder
from bitgnn.nn import BWTALinear
from bitgnn.quantize.multistage import initialize_scales, set_level
from bitgnn.train.text.recipe import DecoderConfig
from bitgnn.train.text.unit import TextRuns, least_sensitive, trained_network

__all__ = ["compare_decoders", "frozen_decoder"]

WINDOWS = 64
BATCHES = (1, 8)


def frozen_decoder(model: Decoder) -> Decoder:
    """The decoder with its BWTA layers packed, or itself where it has none."""
    if all(m.level is None for m in model.modules() if isinstance(m, BWTALinear)):
        return model.eval()
    found: nn.Module = freeze(model).model
    assert isinstance(found, Decoder)
    return found.eval()


def compare_decoders(
    config: DecoderConfig, data: CharacterData, store: TextRuns, *, timed: bool
) -> dict[str, Any]:
    """What becomes of the decoders of the first seed when they are frozen.

    Args:
        config: the experiment.
        data: its text, on the device to compare on.
        store: the finished runs.
        timed: take times too, on a CUDA device, in float16 apart from packed layers; also of wide
            decoders with random weights where the configuration has one.

    Returns:
        Entries of the record.

    Raises:
        TrainingError: a run is missing.
        ValueError: times are asked for without a CUDA device.
    """
    if timed and data.train.device.type != "cuda":
        raise ValueError("compare_decoders: times need a CUDA device")
    trained: dict[str, Decoder] = {}
    for form in config.forms:
        model = trained_network(config, form, 0, data, store)
        assert isinstance(model, Decoder)
        trained[form] = model
    frozen = {form: frozen_decoder(model) for form, model in trained.items()}
    windows = _test_windows(data, config.network.length)
    entries: dict[str, Any] = {
        "frozen": {
            form: _compare(model, frozen[form], windows)
            for form, model in trained.items()
            if frozen[form] is not model
        }
    }
    if timed:
        entries["speed"] = _speeds(frozen)
        if config.wide is not None:
            entries["speed_wide"] = _speeds(_wide_decoders(config, data))
    return entries


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


def _speeds(models: dict[str, Decoder]) -> list[dict[str, Any]]:
    halves = {form: model.half() for form, model in models.items()}
    return [
        {"form": form, **asdict(speed)}
        for batch in BATCHES
        for form, speed in decoder_speeds(halves, batch).items()
    ]


def _wide_decoders(config: DecoderConfig, data: CharacterData) -> dict[str, Decoder]:
    """Decoders of the wide sizes with random weights, the shares of layers packed."""
    assert config.wide is not None
    windows = _test_windows(data, config.wide.length)[:4, :-1]

    def run(model: nn.Module) -> None:
        model(windows)

    models: dict[str, Decoder] = {}
    for form, recipe in config.forms.items():
        torch.manual_seed(0)
        with torch.device(data.train.device):
            model = Decoder(len(data.alphabet), **config.wide.model_dump()).eval()
        if recipe.precision == "bwta":
            names = least_sensitive(model, run, recipe.share)
            set_level(model, 1, names)
            initialize_scales(model, lambda model=model: run(model), names)  # type: ignore[misc]
        models[form] = frozen_decoder(model)
    return models
