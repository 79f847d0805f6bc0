"""Tries a compiled library on a device, for the doctor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import bmm, bspmm


def _product(device: torch.device) -> bool:
    x = torch.ones(3, 40, device=device)
    result = bmm.fbf(x, BitTensor.from_float(x), scale=False)
    return bool((result == 40).all())


def _aggregation(device: torch.device) -> bool:
    edges = torch.tensor([[0, 1, 2], [1, 1, 0]], device=device)
    bits = BitTensor.from_float(torch.ones(3, 40, device=device))
    sums = bspmm.bbf(bits, BitAdjacency.from_edge_index(edges, 3), integer=True)
    return sums[:, 0].tolist() == [1, 2, 0]


def _error(device: torch.device) -> bool:
    try:
        torch.ops.bitgnn.unpack(torch.zeros(1, 1, dtype=torch.int32, device=device), -1)
    except RuntimeError as error:
        return "got -1" in str(error)
    return False


def _graph(device: torch.device) -> bool:
    x = torch.ones(3, 40, device=device)
    weight = BitTensor.from_float(x)
    bmm.fbf(x, weight, scale=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = bmm.fbf(x, weight, scale=False)
    x.neg_()
    graph.replay()
    return bool((result == -40).all())


Trial = Callable[[torch.device], bool]

TRIALS: dict[str, dict[str, Trial]] = {
    "cpu": {"a product": _product, "an aggregation": _aggregation, "an error": _error},
}
"""What is tried on each kind of device."""
TRIALS["cuda"] = {**TRIALS["cpu"], "a captured graph": _graph}


def run_trials(device: str) -> None:
    """Print each trial as it begins, and how it ended."""
    for name, trial in TRIALS[device].items():
        print(name, end="", flush=True)
        print(": works" if trial(torch.device(device)) else ": wrong result", flush=True)
