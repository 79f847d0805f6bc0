"""Networks as the papers time them: one image, batch sizes, depth, shortcuts, binarised inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.cases import Case, Contender
from bench.networks.networks import (
    NETWORKS,
    Network,
    cpu_contenders,
    cuda_contenders,
)
from bitgnn.models import IMAGE_NETWORKS
from bitgnn.models.image_networks import AlexNet

ONE_IMAGE, SIZES, DEPTH = "network, one image", "network, batch sizes", "network, depth"
SHORTCUTS, CPU_ONE_IMAGE = "network, shortcuts", "network, one image"
BATCHES = (1, 8, 32, 128, 512, 1024)
BSTC_CHANNELS, DENSE, IMAGE = (128, 256, 384, 384, 256), (4096, 4096), (3, 224, 224)


@dataclass(frozen=True)
class Variant(Network):
    """A network with other arguments of its maker, or without shortcuts."""

    options: tuple[tuple[str, Any], ...] = ()
    has_shortcuts: bool = True

    def make(self, precision: str = "binary") -> Any:
        """The network of ``bitgnn.models``, changed."""
        torch.manual_seed(0)
        if self.key == "alexnet of BSTC":
            return AlexNet(BSTC_CHANNELS, DENSE, 1000, IMAGE, precision)  # type: ignore[arg-type]
        model = IMAGE_NETWORKS[self.key](precision=precision, **dict(self.options))
        for module in model.modules():
            if not self.has_shortcuts and hasattr(module, "shortcut"):
                module.shortcut = None  # type: ignore[assignment]
        return model


BINCNN = [
    Variant("bincnn", f"BinCNN, input {inputs}", 512, None, (("inputs", inputs),))
    for inputs in ("none", "rgb", "grey", "lbp")
]
PAPERS_MLP = Variant("mlp", "MLP, binarised input", 1024, None, (("input_step", None),))
BSTC_ALEXNET = Variant("alexnet of BSTC", "AlexNet of BSTC", 512)
DEEP = [
    Variant(f"resnet{depth}", f"ResNet-{depth}", 512) for depth in (18, 50, 101, 152)
]  # fmt: skip
FLAT = [
    Variant(NETWORKS[key].key, f"{NETWORKS[key].name} without shortcuts", NETWORKS[key].many,
            has_shortcuts=False)
    for key in ("resnet14", "resnet18")
]  # fmt: skip


def paper_cases() -> Iterator[Case]:
    """Cases on a GPU: networks with 1 image, at all sizes, of all depths, without shortcuts."""
    for network in (*NETWORKS.values(), PAPERS_MLP, BSTC_ALEXNET, *BINCNN):
        yield _case(ONE_IMAGE, network, 1)
    for key in ("mlp", "vgg", "resnet14", "alexnet", "vgg16", "resnet18"):
        for images in BATCHES:
            if images <= NETWORKS[key].many:
                yield _case(SIZES, NETWORKS[key], images)
    for network in DEEP:
        yield _case(DEPTH, network, 8)
    for network in (NETWORKS["resnet14"], NETWORKS["resnet18"], *FLAT):
        for images in (8, network.many):
            yield _case(SHORTCUTS, network, images)
    for network in (PAPERS_MLP, BSTC_ALEXNET):
        yield _case(SIZES, network, 8)
        yield _case(SIZES, network, network.many)


def _case(group: str, network: Network, images: int) -> Case:
    return Case(
        group, _name(network, images), partial(_eager_contenders, network, images), (),
        work=images, details=_details(network, images),
    )  # fmt: skip


def _eager_contenders(network: Network, images: int) -> Iterator[Contender]:
    """Without ``torch.compile``, which takes minutes for so many sizes; see the other groups."""
    yield from (c for c in cuda_contenders(network, images) if "compiled" not in c.name)


def cpu_paper_cases() -> Iterator[Case]:
    """Cases on a CPU: one image."""
    for network in (*map(NETWORKS.__getitem__, ("mlp", "vgg", "resnet14")), PAPERS_MLP, *BINCNN):
        yield Case(
            CPU_ONE_IMAGE, _name(network, 1), partial(cpu_contenders, network, 1), (), work=1,
            details=_details(network, 1),
        )  # fmt: skip


def _name(network: Network, images: int) -> str:
    return f"{network.name}, {images} image{'' if images == 1 else 's'}"


def _details(network: Network, images: int) -> Mapping[str, Any]:
    return {"network": network.key, "images": images}
