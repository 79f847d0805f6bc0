"""Times prompts and tokens of decoders with shares of layers on bits, on a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.cases import Contender, same_call, time_in_turns
from bench.command import ROOT, Unmeasured, exits_with_status, finish
from bench.decoder_parts import operator_times
from bench.tables.timings import decoder_speed_table
from bitgnn.convert import freeze
from bitgnn.convert.bwta import output_errors
from bitgnn.measure.memory import stored_bytes
from bitgnn.measure.report import environment
from bitgnn.measure.timing import Clock
from bitgnn.models.decoder import Decoder, KeyValueCache
from bitgnn.nn import BWTALinear
from bitgnn.nn.multistage import initialize_scales, set_level

VOCABULARY = 100
NETWORKS = (
    {"layers": 4, "width": 256, "heads": 4, "inner": 704, "length": 256},
    {"layers": 4, "width": 2560, "heads": 20, "inner": 6912, "length": 256},
    {"layers": 30, "width": 2560, "heads": 20, "inner": 6912, "length": 2049},
)
"""A small decoder, four layers of BitNet b1.58 with 2 thousand million parameters, and all of it
with prompts of 2048 tokens, as the paper times it."""
SHARES = {"fp32": 0.0, "share_10": 0.1, "share_15": 0.15, "share_30": 0.3, "share_100": 1.0}
"""Of the linear layers, those first whose output suffers least."""
CALIBRATION_BATCH, CALIBRATION_LENGTH = 4, 256
BATCHES = (1, 8)
REPEATS = 15
PARTS = ("prefill", "decode")


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Times decoders with random weights and writes the record; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("decoder_cuda.json"))
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        raise Unmeasured("torch finds no CUDA device to take times on")
    results = []
    for network in NETWORKS:
        models, layers = share_decoders(network, torch.device("cuda"))
        halves = {form: model.half() for form, model in models.items()}
        del models
        for batch in BATCHES:
            for form, speed in decoder_speeds(halves, batch).items():
                entry = {"network": network, "form": form, "layers": layers[form]}
                times = operator_times(halves[form], batch)
                results.append({**entry, **speed, "operators": times})
    found = {
        "benchmark": "decoders_cuda",
        "environment": environment(ROOT),
        "settings": {"repeats": REPEATS},
        "results": results,
    }
    return finish(arguments.output, found, decoder_speed_table)


def share_decoders(
    network: dict[str, Any], device: torch.device
) -> tuple[dict[str, Decoder], dict[str, int]]:
    """Decoders with random weights, a share of each one's linear layers packed."""
    generator = torch.Generator().manual_seed(0)
    shape = CALIBRATION_BATCH, min(network["length"], CALIBRATION_LENGTH)
    ids: Tensor = torch.randint(VOCABULARY, shape, generator=generator).to(device)

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(ids)

    models: dict[str, Decoder] = {}
    layers: dict[str, int] = {}
    ranking: list[str] = []
    for form, share in SHARES.items():
        torch.manual_seed(0)
        with device:
            model = Decoder(VOCABULARY, **network).eval()
        names: list[str] = []
        if share:
            ranking = ranking or by_sensitivity(model, run)
            names = ranking[: max(1, round(share * len(ranking)))]
            set_level(model, 1, names)
            initialize_scales(model, partial(run, model), names)
            packed = freeze(model).model
            assert isinstance(packed, Decoder)
            model = packed.eval()
        models[form], layers[form] = model, len(names)
    return models, layers


def by_sensitivity(model: Decoder, run: Callable[[nn.Module], None]) -> list[str]:
    """The linear layers, those first whose output suffers least when only they are BWTA."""
    names = [name for name, module in model.named_modules() if isinstance(module, BWTALinear)]
    errors = output_errors(model, run, names, relative=True)
    return sorted(errors, key=errors.__getitem__)


@torch.inference_mode()
def decoder_speeds(models: Mapping[str, Decoder], batch: int = 1) -> dict[str, dict[str, Any]]:
    """Times prompts and single tokens of several decoders in turns, caches warm."""
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
