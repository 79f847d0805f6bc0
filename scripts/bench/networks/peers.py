"""What plain torch makes of the networks on a GPU: fp16, channels_last, compiled or not."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import torch
from torch import Tensor, nn

from bench.networks.structures import STRUCTURES, Structure

SEED = 0
TUNED = "max-autotune-no-cudagraphs"
WORKERS = 12
"""Processes that compile at the same time: each holds up to ten GB of the device's memory."""


def images_of(
    structure: Structure, count: int, device: str = "cuda", dtype: torch.dtype = torch.float16
) -> Tensor:
    """Images of few fractional bits, channels_last where they are images.

    Values are multiples of 1/64 in [-2, 2), which every float type and fixed point hold exactly.
    """
    generator = torch.Generator(device).manual_seed(SEED)
    shape = (count, *structure.image)
    numbers = torch.randint(-128, 128, shape, generator=generator, device=device)
    images = (numbers / 64).to(dtype)
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images


def plain_network(
    structure: Structure,
    device: str = "cuda",
    dtype: torch.dtype = torch.float16,
    memory_format: torch.memory_format = torch.channels_last,
) -> nn.Module:
    """The plain network with weights of which scores stay finite in fp16."""
    torch.manual_seed(SEED)
    with torch.device(device):
        network = structure.build().eval()
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, std=math.sqrt(1.0 / fan_in))
    move: Any = network.to  # whose memory format torch's types leave out
    moved: nn.Module = move(dtype, memory_format=memory_format)
    return moved


def eager_call(structure: Structure, network: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The network called as it is."""
    return _checked(structure, lambda: network(x), x)


def compiled_call(
    structure: Structure, network: nn.Module, x: Tensor, mode: str | None = None
) -> Callable[[], Tensor]:
    """The network compiled for these very images."""
    torch._dynamo.reset()
    how: dict[str, Any] = {"mode": mode}
    if mode == TUNED:
        how = {"options": {"max_autotune": True, "max_autotune_conv_backends": "ATEN"}}
    compiled = torch.compile(network, dynamic=False, fullgraph=True, **how)
    call = _checked(structure, lambda: compiled(x), x)
    expected, scores = network(x).float(), call().float()
    if (scores - expected).abs().max() > 0.05 * expected.abs().max():
        raise RuntimeError("compiled scores are far from eager ones")
    return call


def _checked(structure: Structure, call: Callable[[], Tensor], x: Tensor) -> Callable[[], Tensor]:
    scores = call()
    expected = [x.size(0), structure.classes]
    if list(scores.shape) != expected or not bool(torch.isfinite(scores).all()):
        raise RuntimeError(f"scores must be finite {expected}, got {list(scores.shape)}")
    return call


def compile_ahead(
    wanted: Iterable[tuple[str, int, str | None]],
    progress: Callable[[str], Any] = lambda line: None,
    workers: int = WORKERS,
) -> None:
    """Compiles networks in processes beside each other, so that torch's cache on disk holds them.

    What fails here fails again, and is recorded, where it is measured.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        running = {pool.submit(_compile, *one): one for one in wanted}
        for done in as_completed(running):
            error = done.exception()
            progress(f"compiled {running[done]}" + ("" if error is None else f": {error!r}"))


def _compile(key: str, count: int, mode: str | None) -> None:
    from torch._inductor import config

    config.compile_threads = 1  # else each process starts as many again
    structure = STRUCTURES[key]
    with torch.no_grad():
        compiled_call(structure, plain_network(structure), images_of(structure, count), mode)
    torch.cuda.synchronize()
