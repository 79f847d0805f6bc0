"""The command behind scripts/bench_decoder.py: decoders of two sizes, shares of layers on bits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.bench.decoder_speed import decoder_speeds
from bitgnn.measure.environment import environment
from bitgnn.measure.report import write_json
from bitgnn.models.decoder import Decoder
from bitgnn.quantize.multistage import initialize_scales, set_level
from bitgnn.train.config import ConfigError
from bitgnn.train.text.frozen_decoders import frozen_decoder
from bitgnn.train.text.recipe import DecoderConfig, DecoderNetwork, load_text_config
from bitgnn.train.text.unit import least_sensitive

__all__ = ["main", "share_decoders"]

VOCABULARY = 100
CALIBRATION_BATCH = 4
BATCHES = (1, 8)
REPEATS = 15


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Time decoders with random weights and write the record.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` and ``scripts/results`` are.

    Returns:
        Exit status: 0, or 1 where something is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=root / "configs" / "text" / "decoder.yaml")
    parser.add_argument("--results", type=Path, default=root / "scripts" / "results")
    parsed = parser.parse_args(arguments)
    try:
        if not torch.cuda.is_available():
            raise ValueError("torch finds no CUDA device to take times on")
        config = load_text_config(parsed.config)
        if not isinstance(config, DecoderConfig):
            raise ValueError(f"{parsed.config}: no configuration of a decoder")
        record = _record(config)
        write_json(parsed.results / "decoder_cuda.json", record)
    except (ConfigError, OSError, ValueError) as error:
        print(f"bench_decoder: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _record(config: DecoderConfig) -> dict[str, Any]:
    results = []
    for network in (config.network, config.wide):
        if network is None:
            continue
        models, layers = share_decoders(config, network, torch.device("cuda"))
        halves = {form: model.half() for form, model in models.items()}
        for batch in BATCHES:
            for form, speed in decoder_speeds(halves, batch).items():
                entry = {"network": network.model_dump(), "form": form, "layers": layers[form]}
                results.append({**entry, **asdict(speed)})
    return {
        "benchmark": "decoders_cuda",
        "environment": environment(),
        "settings": {"repeats": REPEATS},
        "results": results,
    }


def share_decoders(
    config: DecoderConfig, network: DecoderNetwork, device: torch.device
) -> tuple[dict[str, Decoder], dict[str, int]]:
    """Decoders with random weights, a share of each one's linear layers packed.

    Args:
        config: gives the shares by form.
        network: sizes.
        device: where.

    Returns:
        The decoders by form, and how many layers are packed in each.
    """
    generator = torch.Generator().manual_seed(0)
    shape = CALIBRATION_BATCH, network.length
    ids: Tensor = torch.randint(VOCABULARY, shape, generator=generator).to(device)

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(ids)

    models: dict[str, Decoder] = {}
    layers: dict[str, int] = {}
    for form, recipe in config.forms.items():
        torch.manual_seed(0)
        with device:
            model = Decoder(VOCABULARY, **network.model_dump()).eval()
        names: list[str] = []
        if recipe.precision == "bwta":
            names = least_sensitive(model, run, recipe.share)
            set_level(model, 1, names)
            initialize_scales(model, lambda model=model: run(model), names)  # type: ignore[misc]
        models[form], layers[form] = frozen_decoder(model), len(names)
    return models, layers
