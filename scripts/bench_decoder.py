"""Times prompts and tokens of decoders with shares of layers on bits, on a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.cases import Contender, same_call, time_in_turns
from bench.command import ROOT, Unmeasured, exits_with_status, finish
from bench.tables.timings import decoder_speed_table
from bitgnn.measure.environment import environment
from bitgnn.measure.memory import stored_bytes
from bitgnn.measure.timing import Clock
from bitgnn.models.decoder import Decoder, KeyValueCache
from bitgnn.nn.multistage import initialize_scales, set_level
from experiments.text.experiment import least_sensitive
from experiments.text.frozen_decoders import frozen_decoder
from experiments.text.recipe import DecoderConfig, DecoderNetwork, load_text_config

VOCABULARY = 100
CALIBRATION_BATCH = 4
BATCHES = (1, 8)
REPEATS = 15
PARTS = ("prefill", "decode")


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Times decoders with random weights and writes the record; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "text" / "decoder.yaml")
    parser.add_argument("--output", type=Path, default=Path("decoder_cuda.json"))
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        raise Unmeasured("torch finds no CUDA device to take times on")
    config = load_text_config(arguments.config)
    if not isinstance(config, DecoderConfig):
        raise Unmeasured(f"{arguments.config}: no configuration of a decoder")
    results = []
    for network in filter(None, (config.network, config.wide)):
        models, layers = share_decoders(config, network, torch.device("cuda"))
        halves = {form: model.half() for form, model in models.items()}
        for batch in BATCHES:
            for form, speed in decoder_speeds(halves, batch).items():
                entry = {"network": network.model_dump(), "form": form, "layers": layers[form]}
                results.append({**entry, **speed})
    found = {
        "benchmark": "decoders_cuda",
        "environment": environment(ROOT),
        "settings": {"repeats": REPEATS},
        "results": results,
    }
    return finish(arguments.output, found, decoder_speed_table)


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


@torch.inference_mode()
def decoder_speeds(models: Mapping[str, Decoder], batch: int = 1) -> dict[str, dict[str, Any]]:
    """Times prompts and single tokens of several decoders in turns, caches warm.

    Args:
        models: by name.
        batch: contexts side by side.

    Returns:
        By name: ``batch``, ``prompt`` (its tokens), median ``prefill_seconds`` of a prompt and
        ``decode_seconds`` of one further token behind it, all contexts, ``bytes`` of parameters and
        buffers, and ``captured``: both were replayed as CUDA graphs.
    """
    contenders = []
    for name, model in models.items():
        device = model.tokens.weight.device
        ids = torch.randint(model.tokens.num_embeddings, (batch, model.length - 1), device=device)
        cache = model.new_cache(batch)
        for part, begin, given in (("prefill", 0, ids), ("decode", ids.size(1), ids[:, :1])):
            call = partial(_step, model, cache, begin, given)
            contenders.append(Contender(f"{name} {part}", True, same_call(call)))
    clock = Clock("cuda")
    for contender in contenders:
        contender.prepare(clock)
    time_in_turns(contenders, clock, REPEATS)
    found = {contender.name: contender for contender in contenders}
    for contender in contenders:
        if contender.failure is not None:
            raise RuntimeError(f"{contender.name}: {contender.failure}")
    return {
        name: {
            "batch": batch,
            "prompt": model.length - 1,
            **{f"{part}_seconds": found[f"{name} {part}"].median for part in PARTS},
            "bytes": stored_bytes(model),
            "captured": all(found[f"{name} {part}"].in_graph for part in PARTS),
        }
        for name, model in models.items()
    }


def _step(model: Decoder, cache: KeyValueCache, begin: int, ids: Tensor) -> Tensor:
    cache.position.fill_(begin)
    return model.step(ids, cache)


if __name__ == "__main__":
    raise SystemExit(main())
