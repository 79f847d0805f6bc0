"""Whole binary networks, frozen, against the same structure in plain torch, compiled or not."""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from bench.cases import Case, Contender, Goal, WrongResultError
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel
from bitgnn.models import IMAGE_NETWORKS

SEED = 0
LATENCY_IMAGES, CALIBRATION_IMAGES = 8, 16
TOLERANCE = 1e-3
SAME_IMAGES = 0.75
"""Part of the images whose scores must be those of the trained network within the tolerance: a
float sum next to its threshold may turn one hidden bit, which reaches the scores of its image."""
LATENCY, THROUGHPUT = "network, latency", "network, throughput"
WORKERS = 12
"""Processes that compile at the same time: each holds up to ten GB of the device's memory."""


@dataclass(frozen=True)
class Network:
    """One network of TCBNN.

    Attributes:
        key: of its maker in ``bitgnn.models.IMAGE_NETWORKS``.
        name: as the papers say it.
        many: images of a batch of which the throughput is taken.
        goals: seconds of 8 images, and images a second of a large batch, on an H200.
    """

    key: str
    name: str
    many: int
    goals: tuple[float, float] | None = None

    def make(self, precision: str = "binary") -> Any:
        """The network of ``bitgnn.models``, in fp32 with ReLU in place of signs."""
        torch.manual_seed(SEED)
        return IMAGE_NETWORKS[self.key](precision=precision)


NETWORKS = {
    network.key: network
    for network in (
        Network("mlp", "MLP", 1024, (8e-6, 80e6)),
        Network("vgg", "CIFAR VGG", 1024, (35e-6, 1e6)),
        Network("resnet14", "ResNet-14", 1024, (55e-6, 1.6e6)),
        Network("alexnet", "AlexNet", 512, (75e-6, 250e3)),
        Network("vgg16", "VGG-16", 512, (260e-6, 40e3)),
        Network("resnet18", "ResNet-18", 512, (85e-6, 290e3)),
        Network("resnet50", "ResNet-50", 512),
    )
}
"""By key, in the order of the papers."""
TIMES_FASTER = Goal("ratio", 3.0)
"""Than the same structure compiled in fp16, in latency and in throughput."""
CPU_GOALS: Mapping[str, tuple[Goal, ...]] = {"mlp": (), "resnet18": (Goal("ratio", 6.0),)}
"""Times faster than torch in fp32 on two cores."""
CPU_IMAGES = (1, 8)


@torch.no_grad()
def images_of(
    network: Network, count: int, device: str = "cuda", dtype: torch.dtype = torch.float16
) -> Tensor:
    """Images of few fractional bits, channels_last where they are images.

    Values are multiples of 1/64 in [-2, 2), which every float type and fixed point hold exactly.
    """
    with torch.device("meta"):
        image = network.make().image
    shape = (count, math.prod(image)) if network.key == "mlp" else (count, *image)
    generator = torch.Generator(device).manual_seed(SEED)
    numbers = torch.randint(-128, 128, shape, generator=generator, device=device)
    images = (numbers / 64).to(dtype)
    return images.contiguous(memory_format=torch.channels_last) if images.dim() == 4 else images


def plain_network(
    network: Network,
    device: str = "cuda",
    dtype: torch.dtype = torch.float16,
    memory_format: torch.memory_format = torch.channels_last,
) -> nn.Module:
    """The structure in plain torch, batch norms folded, with weights of finite scores in fp16."""
    with torch.device(device):
        model = network.make("fp32").eval()
        plain = nn.Sequential(_folded(model.features), nn.Flatten(), _folded(model.classifier))
    for layer in plain.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=math.sqrt(1.0 / layer.weight[0].numel()))
    move: Any = plain.eval().to  # whose memory format torch's types leave out
    moved: nn.Module = move(dtype, memory_format=memory_format)
    return moved


def _folded(layers: nn.Sequential) -> nn.Sequential:
    """Each batch norm folded into the layer before it, also in residual blocks."""
    found: list[nn.Module] = []
    for layer in layers:
        body = getattr(layer, "body", None)
        if isinstance(body, nn.Sequential):
            layer.body = _folded(body)
        if isinstance(layer, nn.BatchNorm2d):
            found[-1] = fuse_conv_bn_eval(found[-1], layer)  # type: ignore[type-var]
        elif isinstance(layer, nn.BatchNorm1d):
            found[-1] = fuse_linear_bn_eval(found[-1], layer)  # type: ignore[type-var]
        else:
            found.append(layer)
    return nn.Sequential(*found)


def _checked(call: Callable[[], Tensor], images: int) -> Callable[[], Tensor]:
    scores = call()
    if scores.dim() != 2 or scores.size(0) != images or not bool(torch.isfinite(scores).all()):
        raise RuntimeError(f"scores must be finite [{images}, C], got {list(scores.shape)}")
    return call


def eager_call(plain: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The plain network called as it is."""
    return _checked(partial(plain, x), x.size(0))


def compiled_call(plain: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The plain network compiled for these very images."""
    torch._dynamo.reset()
    compiled = torch.compile(plain, dynamic=False, fullgraph=True)
    call = _checked(partial(compiled, x), x.size(0))
    expected, scores = plain(x).float(), call().float()
    if (scores - expected).abs().max() > 0.05 * expected.abs().max():
        raise RuntimeError("compiled scores are far from eager ones")
    return call


def compile_ahead(wanted: Iterable[tuple[str, int]]) -> float:
    """Compiles networks in parallel processes, so that torch's cache on disk holds them.

    What fails here fails again, and is recorded, where it is measured.
    """
    start, spawn = time.perf_counter(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawn) as pool:
        running = {pool.submit(_compile, *one): one for one in wanted}
        for done in as_completed(running):
            error = done.exception()
            said = "" if error is None else f": {error!r}"
            print(f"compiled {running[done]}{said}", file=sys.stderr, flush=True)
    return time.perf_counter() - start


def _compile(key: str, count: int) -> None:
    from torch._inductor import config

    config.compile_threads = 1  # else each process starts as many again
    network = NETWORKS[key]
    with torch.no_grad():
        compiled_call(plain_network(network), images_of(network, count))
    torch.cuda.synchronize()


@torch.no_grad()
def frozen_network(network: Network, device: str) -> tuple[nn.Module, FrozenModel]:
    """The network with the statistics of its inputs in its batch norms, and frozen."""
    model = network.make().to(device)
    for norm in model.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.momentum = 1.0  # the statistics of the one batch that follows
    model.train()
    model(images_of(network, CALIBRATION_IMAGES, device, torch.float32))
    model.eval()
    return model, freeze(model)


def our_call(model: nn.Module, frozen: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Any]:
    """The frozen network on these images."""
    scores, few = frozen(x), x[:CALIBRATION_IMAGES].float()
    if few.dim() == 4:
        # Sums of signs are exact there; contiguous images may be convolved by Fourier transforms.
        few = few.contiguous(memory_format=torch.channels_last)
    expected = model(few)
    if scores.shape != (x.size(0), expected.size(1)):
        raise WrongResultError
    same = torch.isclose(scores[: len(few)], expected, rtol=TOLERANCE, atol=TOLERANCE).all(1)
    if same.float().mean() < SAME_IMAGES:
        raise WrongResultError
    return partial(frozen, x)


_frozen = lru_cache(maxsize=1)(frozen_network)
"""A network is measured with few and with many images in turn."""


def _frozen_call(network: Network, device: str, x: Tensor) -> Callable[[], Any]:
    return our_call(*_frozen(network, device), x)


def network_cases(quick: bool = False) -> Iterator[Case]:
    """Every network on a GPU with 8 images, then with as many as fill it."""
    for network in [NETWORKS["mlp"]] if quick else NETWORKS.values():
        for group, images in ((LATENCY, LATENCY_IMAGES), (THROUGHPUT, network.many))[: 2 - quick]:
            goals: tuple[Goal, ...] = ()
            if network.goals is not None:
                seconds, rate = network.goals
                figure = Goal("seconds", seconds) if group == LATENCY else Goal("rate", rate)
                goals = figure, TIMES_FASTER
            yield Case(
                group,
                f"{network.name}, {images} images",
                partial(cuda_contenders, network, images),
                goals,
                work=images,
                kinds=("cold",) if group == LATENCY else (),
                profiled=True,
                details={"network": network.key, "images": images},
            )


def cuda_contenders(network: Network, images: int) -> Iterator[Contender]:
    half, plain = images_of(network, images), plain_network(network)
    yield Contender("torch fp16", False, partial(eager_call, plain, half))
    yield Contender("torch fp16 compiled", False, partial(compiled_call, plain, half))
    single = images_of(network, images, dtype=torch.float32).contiguous()
    for name, x in (("float16 channels_last", half), ("float32 contiguous", single)):
        # Frozen when it is asked for: a network that cannot be frozen leaves the others.
        yield Contender(f"frozen, {name}", True, partial(_frozen_call, network, "cuda", x))


def cpu_network_cases(quick: bool = False) -> Iterator[Case]:
    """Networks on the CPU against torch in fp32, one image and eight."""
    for key in ["mlp"] if quick else ["resnet18"]:
        for images in CPU_IMAGES[:1] if quick else CPU_IMAGES:
            yield Case(
                "network",
                f"{NETWORKS[key].name}, {images} image{'' if images == 1 else 's'}",
                partial(cpu_contenders, NETWORKS[key], images),
                CPU_GOALS[key],
                work=images,
                details={"network": key, "images": images},
            )


def cpu_contenders(network: Network, images: int) -> Iterator[Contender]:
    x = images_of(network, images, "cpu", torch.float32)
    for name, layout in (
        ("channels_last", torch.channels_last),
        ("contiguous", torch.contiguous_format),
    ):
        plain = plain_network(network, "cpu", torch.float32, layout)
        given = x if layout == torch.channels_last else x.contiguous()
        yield Contender(f"torch fp32 {name}", False, partial(eager_call, plain, given))
    ours = partial(_frozen_call, network, "cpu", x.contiguous())
    yield Contender("frozen, float32 contiguous", True, ours)
