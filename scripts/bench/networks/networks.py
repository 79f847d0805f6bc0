"""Whole binary networks, frozen, beside the same structure in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.cases import Goal
from bench.networks.cases import (
    CPU_NETWORK_GOALS,
    LATENCY_IMAGES,
    NETWORK_GOALS,
    TIMES_FASTER,
    BnnCase,
    Entry,
    WrongResultError,
)
from bench.networks.peers import SEED, TUNED, compiled_call, eager_call, images_of, plain_network
from bench.networks.structures import STRUCTURES, Structure
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel
from bitgnn.models import IMAGE_NETWORKS

CALIBRATION_IMAGES = 16
TOLERANCE = 1e-3
SAME_IMAGES = 0.75
"""Part of the images whose scores must be those of the trained network within the tolerance: a
float sum next to its threshold may turn one hidden bit, which reaches the scores of its image."""


def binary_network(structure: Structure) -> nn.Module:
    """The network of ``bitgnn.models`` with this structure, on the CPU, for training."""
    torch.manual_seed(SEED)
    network: nn.Module = IMAGE_NETWORKS[structure.key](classes=structure.classes)
    return network


def weights_of(network: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the weights of all convolutions and linear layers, in their order."""
    layers = (nn.Conv2d, nn.Linear)
    return [tuple(m.weight.shape) for m in network.modules() if isinstance(m, layers)]


@torch.no_grad()
def frozen_network(structure: Structure, device: str) -> tuple[nn.Module, FrozenModel]:
    """The network with the statistics of its inputs in its batch norms, and frozen."""
    network = binary_network(structure).to(device)
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0  # the statistics of the one batch that follows
    network.train()
    network(images_of(structure, CALIBRATION_IMAGES, device, torch.float32))
    network.eval()
    return network, freeze(network)


def our_call(
    structure: Structure, network: nn.Module, frozen: Callable[[Tensor], Tensor], x: Tensor
) -> Callable[[], Any]:
    """The frozen network on these images."""
    scores = frozen(x)
    if list(scores.shape) != [x.size(0), structure.classes]:
        raise WrongResultError
    few = x[:CALIBRATION_IMAGES].float()
    expected = network(few)
    found = scores[: few.size(0)]
    same = torch.isclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE).all(1)
    if same.float().mean() < SAME_IMAGES:
        raise WrongResultError
    return partial(frozen, x)


LATENCY, THROUGHPUT = "network, latency", "network, throughput"
MODES = ("default", TUNED)
"""Of ``torch.compile``."""
CPU_NETWORKS = ("resnet18",)
CPU_IMAGES = (1, 8)

_frozen = lru_cache(maxsize=1)(frozen_network)
"""A network is measured with few and with many images in turn."""


def network_cases(
    keys: Sequence[str], modes: Sequence[str], quick: bool = False
) -> Iterator[BnnCase]:
    """Every network on a GPU with 8 images, then with as many as fill it."""
    for key in keys:
        structure = STRUCTURES[key]
        few, many = (LATENCY, LATENCY_IMAGES), (THROUGHPUT, structure.many)
        for group, images in (few,) if quick else (few, many):
            yield BnnCase(
                group,
                f"{structure.name}, {images} images",
                partial(_cuda_entries, structure, images, tuple(modes)),
                () if quick else _goals(key, group),
                work=images,
                cold=group == LATENCY,
                launched=group == LATENCY,
                profiled=True,
                details={"network": key, "images": images},
            )


def _goals(key: str, group: str) -> tuple[Goal, ...]:
    if key not in NETWORK_GOALS:
        return ()
    seconds, rate = NETWORK_GOALS[key]
    figure = Goal("seconds", seconds) if group == LATENCY else Goal("rate", rate)
    return figure, Goal("ratio", TIMES_FASTER)


def _cuda_entries(structure: Structure, images: int, modes: Iterable[str]) -> Iterator[Entry]:
    half = images_of(structure, images)
    network = plain_network(structure)
    yield Entry("torch fp16", False, partial(eager_call, structure, network, half))
    for mode in modes:
        name = "torch fp16 compiled" + ("" if mode == "default" else f" ({mode})")
        chosen = None if mode == "default" else mode
        yield Entry(name, False, partial(compiled_call, structure, network, half, chosen))
    single = images_of(structure, images, dtype=torch.float32).contiguous()
    for name, x in (("float16 channels_last", half), ("float32 contiguous", single)):
        yield Entry(
            f"frozen, {name}",
            True,
            # Built when it is asked for: a network that cannot be frozen leaves the others.
            partial(lambda x: our_call(structure, *_frozen(structure, "cuda"), x), x),
        )


def cpu_network_cases(keys: Sequence[str], quick: bool = False) -> Iterator[BnnCase]:
    """Networks on the CPU beside torch in fp32, one image and eight."""
    for key in ("mlp",) if quick else [key for key in CPU_NETWORKS if key in keys]:
        structure = STRUCTURES[key]
        for images in (1,) if quick else CPU_IMAGES:
            yield BnnCase(
                "network",
                f"{structure.name}, {images} image{'' if images == 1 else 's'}",
                partial(_cpu_entries, structure, images),
                () if quick else CPU_NETWORK_GOALS.get(key, ()),
                work=images,
                details={"network": key, "images": images},
            )


def _cpu_entries(structure: Structure, images: int) -> Iterator[Entry]:
    x = images_of(structure, images, "cpu", torch.float32)
    contiguous = x.contiguous()
    network = plain_network(structure, "cpu", torch.float32)
    plain = plain_network(structure, "cpu", torch.float32, torch.contiguous_format)
    yield Entry("torch fp32 channels_last", False, partial(eager_call, structure, network, x))
    yield Entry("torch fp32 contiguous", False, partial(eager_call, structure, plain, contiguous))
    yield Entry(
        "frozen, float32 contiguous",
        True,
        lambda: our_call(structure, *_frozen(structure, "cpu"), contiguous),
    )
