"""Whole binary networks, frozen, beside the same structure in plain torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from bitgnn.bench.bnn_cases import BnnCase, Entry
from bitgnn.bench.bnn_goals import LATENCY_IMAGES, NETWORK_GOALS, TIMES_FASTER
from bitgnn.bench.bnn_peers import compiled_call, eager_call, images_of, plain_network
from bitgnn.bench.bnn_structures import STRUCTURES, Structure
from bitgnn.bench.cuda_cases import Goal

__all__ = ["LATENCY", "MODES", "THROUGHPUT", "network_cases"]

LATENCY, THROUGHPUT = "network, latency", "network, throughput"
MODES = ("default", "max-autotune-no-cudagraphs")
"""Of ``torch.compile``."""


def network_cases(
    keys: Sequence[str], modes: Sequence[str], quick: bool = False
) -> Iterator[BnnCase]:
    """Every network on a GPU with 8 images, then with as many as fill it.

    Args:
        keys: of the networks.
        modes: of ``torch.compile`` for the plain networks.
        quick: only with 8 images, and without goals.
    """
    for images_many in (False,) if quick else (False, True):
        for key in keys:
            structure = STRUCTURES[key]
            images = structure.many if images_many else LATENCY_IMAGES
            seconds, rate = NETWORK_GOALS[key]
            yield BnnCase(
                THROUGHPUT if images_many else LATENCY,
                f"{structure.name}, {images} images",
                partial(_entries, structure, images, tuple(modes)),
                () if quick else (
                    Goal("rate", rate) if images_many else Goal("seconds", seconds),
                    Goal("ratio", TIMES_FASTER),
                ),
                work=images,
                cold=not images_many,
                launched=not images_many,
                details={"network": key, "images": images},
            )  # fmt: skip


def _entries(structure: Structure, images: int, modes: Iterable[str]) -> Iterator[Entry]:
    x = images_of(structure, images)
    network = plain_network(structure)
    yield Entry("torch fp16", False, partial(eager_call, structure, network, x))
    for mode in modes:
        name = "torch fp16 compiled" + ("" if mode == "default" else f" ({mode})")
        chosen = None if mode == "default" else mode
        yield Entry(name, False, partial(compiled_call, structure, network, x, chosen))
