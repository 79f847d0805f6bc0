"""Times prompts and tokens of decoders with shares of layers on bits, on a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.cases import compare_on_cuda
from bitgnn.measure.environment import environment
from bitgnn.measure.report import write_json
from bitgnn.models.decoder import Decoder
from bitgnn.nn.multistage import initialize_scales, set_level
from bitgnn.train.config import ConfigError
from experiments.text.frozen_decoders import frozen_decoder
from experiments.text.recipe import DecoderConfig, DecoderNetwork, load_text_config
from experiments.text.unit import least_sensitive

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 100
CALIBRATION_BATCH = 4
BATCHES = (1, 8)
REPEATS = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Time decoders with random weights and write the record.

    Returns:
        Exit status: 0, or 1 where something is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "text" / "decoder.yaml")
    parser.add_argument("--results", type=Path, default=ROOT / "scripts" / "results")
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
        "environment": environment(ROOT),
        "settings": {"repeats": REPEATS},
        "results": results,
    }


def share_decoders(
    config: DecoderConfig, network: DecoderNetwork, device: torch.device
) -> tuple[dict[str, Decoder], dict[str, int]]:
    """Decoders with random weights, a share of each one's linear layers packed.

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


@dataclass(frozen=True)
class DecoderSpeed:
    """Times of one decoder, medians.

    Attributes:
        batch: contexts side by side.
        prompt: tokens of a prompt.
        prefill_seconds: time of a prompt, all contexts.
        decode_seconds: time of one further token behind it, all contexts.
        bytes: of parameters and buffers.
        captured: whether both were replayed as CUDA graphs.
    """

    batch: int
    prompt: int
    prefill_seconds: float
    decode_seconds: float
    bytes: int
    captured: bool


@torch.inference_mode()
def decoder_speeds(
    models: Mapping[str, Decoder], batch: int = 1, prompt: int | None = None
) -> dict[str, DecoderSpeed]:
    """Time prompts and single tokens of several decoders in turns, caches warm."""
    if not models:
        raise ValueError("decoder_speeds: models must hold at least one")
    functions = {}
    for name, model in models.items():
        length = model.length - 1 if prompt is None else prompt
        if not 0 < length < model.length:
            raise ValueError(
                f"decoder_speeds: prompt must be from 1 to {model.length - 1}, got {length}"
            )
        device = model.tokens.weight.device
        ids = torch.randint(model.tokens.num_embeddings, (batch, length), device=device)
        cache = model.new_cache(batch)

        def prefill(model=model, ids=ids, cache=cache):  # type: ignore[no-untyped-def]
            cache.position.zero_()
            return model.step(ids, cache)

        def decode(model=model, ids=ids, cache=cache, length=length):  # type: ignore[no-untyped-def]
            cache.position.fill_(length)
            return model.step(ids[:, :1], cache)

        functions[f"{name} prefill"], functions[f"{name} decode"] = prefill, decode
    times, captured = compare_on_cuda(functions)
    return {
        name: DecoderSpeed(
            batch,
            model.length - 1 if prompt is None else prompt,
            times[f"{name} prefill"].median,
            times[f"{name} decode"].median,
            _bytes(model),
            captured[f"{name} prefill"] and captured[f"{name} decode"],
        )
        for name, model in models.items()
    }


def _bytes(model: nn.Module) -> int:
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


if __name__ == "__main__":
    raise SystemExit(main())
