"""Host time that a caller waits: from a call to its result, and of calls that only queue up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.call_times import Call, captured, time_calls
from bench.cases import Record, WrongResultError
from bench.models.networks import pyg_model
from bench.tasks import NodeTask, untrained_model
from bitgnn import models
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, capture
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.report import format_seconds
from bitgnn.measure.timing import Clock
from bitgnn.ops import bmm, bspmm, ternary

__all__ = ["CallCase", "call_cases", "describe"]

SIZES = {
    # nodes, edges, features, share of features that are set, hidden features, classes
    "tiny": (20, 80, 40, 0.5, 64, 7),
    "Cora size": (2708, 10_556, 1433, 0.0127, 64, 7),
    "PubMed size": (19_717, 88_648, 500, 0.1, 64, 3),
    "Flickr size": (89_250, 899_756, 500, 1.0, 256, 7),
}
ROWS, FEATURES = 128, 768
"""Of small dense operators."""
IMAGES = 8


@dataclass(frozen=True)
class CallCase:
    """The same work called in several ways.

    Attributes:
        group: heading it belongs to.
        name: what is called, with its size.
        make: the calls by name on a device; those of ours give equal results.
        details: sizes.
    """

    group: str
    name: str
    make: Callable[[str], Iterator[tuple[str, Call]]]
    details: Mapping[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def run(self, clock: Clock, repeats: int) -> Record:
        """Time every call in both ways, all of them in each round."""
        times, failures = time_calls(self.make(clock.device), clock, repeats)
        contenders = {
            name: {way: timing.to_dict() for way, timing in by_way.items()}
            for name, by_way in times.items()
        }
        return {**self.details, "contenders": contenders, "failures": failures}


def describe(result: Mapping[str, Any]) -> str:
    """One line for the terminal: each contender, waited for and queued."""
    parts = [
        f"{name} {format_seconds(times['call']['median'])} / "
        f"{format_seconds(times['queued']['median'])}"
        for name, times in result["contenders"].items()
    ]
    parts += [f"{name}: {reason}" for name, reason in result["failures"].items()]
    return f"{result['group']}: {result['name']}: {'; '.join(parts)}"


def call_cases(device: str, quick: bool = False) -> Iterator[CallCase]:
    """On a GPU its floor, frozen models of graphs and images, and operators on their own."""
    if device == "cuda":
        yield CallCase("floor", "one number", _floor_calls)
    for size, (nodes, edges, features, share, hidden, classes) in SIZES.items():
        if quick and size != "tiny":
            continue
        details = {
            "nodes": nodes, "edges": edges, "features": features, "density": share,
            "hidden": hidden, "classes": classes,
        }  # fmt: skip
        for form in ("packed", "floats"):
            yield CallCase("GCN bin", f"{size}, {form}", partial(_gcn_calls, size, form), details)
    images = (3, 32, 32) if quick else (3, 224, 224)
    make_images = partial(_image_calls, images)
    yield CallCase("images", "ResNet-18", make_images, {"images": IMAGES, "size": images})
    yield CallCase(
        "operators", "small, eager", _operator_calls, {"rows": ROWS, "features": FEATURES}
    )


def _floor_calls(device: str) -> Iterator[tuple[str, Call]]:
    """The least that a kernel takes from call to result: no call of a model can be shorter."""
    one = torch.ones(1, device=device)
    yield "a kernel, CUDA graph", captured(partial(one.add_, 1))
    yield "a kernel", partial(one.add_, 1)


def _task(size: str, device: str) -> NodeTask:
    nodes, edges, features, share, hidden, classes = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(nodes, features, generator=generator)
    x = x * (x < share) / share
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    return NodeTask(size, x.to(device), edge_index.to(device), classes, hidden)


def _gcn_calls(size: str, form: str, device: str) -> Iterator[tuple[str, Call]]:
    task = _task(size, device)
    model = freeze(untrained_model(task, "GCN", "bin"), check=False)
    assert isinstance(model, FrozenModel)
    graph = model.prepare_graph(task.edge_index, task.num_nodes)
    x: Any = model.pack_features(task.x) if form == "packed" else task.x
    yield from _ours(model, x, graph)
    network = pyg_model("GCN", task).to(device).eval()
    for name, given in graph_forms(task.edge_index, task.num_nodes).items():
        yield from _theirs(f"PyG, {name}", network, (task.x, given), device)


def _image_calls(size: tuple[int, int, int], device: str) -> Iterator[tuple[str, Call]]:
    torch.manual_seed(0)
    model = freeze(models.ResNet(image=size).eval(), check=False).to(device)
    assert isinstance(model, FrozenModel)
    yield from _ours(model, torch.randn(IMAGES, *size, device=device), None)


def _ours(model: FrozenModel, x: Any, graph: Any) -> Iterator[tuple[str, Call]]:
    """A frozen model in every way it may be called."""
    expected: Tensor = model(x, graph)
    out = torch.empty_like(expected)
    named: dict[str, Call] = {
        "model": partial(model, x, graph),
        "model, out": partial(model, x, graph, out=out),
    }
    run = capture(model, x, graph)
    named["captured"] = run
    named["captured, out"] = partial(run, out=out)
    for name, call in named.items():
        if not all(torch.equal(call(), expected) for _ in range(3)):
            raise WrongResultError(name)
        yield name, call


def _theirs(
    name: str, network: nn.Module, inputs: tuple[Any, ...], device: str
) -> Iterator[tuple[str, Call]]:
    """A network of PyG called as it is, and on a GPU as a CUDA graph."""
    yield name, partial(network, *inputs)
    if device == "cuda":
        yield f"{name}, CUDA graph", captured(partial(network, *inputs))


def _operator_calls(device: str) -> Iterator[tuple[str, Call]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=generator).to(device)
    weight = torch.randn(FEATURES, FEATURES, generator=generator).to(device)
    xb, wb = BitTensor.from_float(x), BitTensor.from_float(weight)
    nodes, edges, *_ = SIZES["Cora size"]
    edge_index = torch.randint(nodes, (2, edges), generator=generator).to(device)
    adjacency = BitAdjacency.from_edge_index(edge_index, nodes)
    hidden = BitTensor.from_float(torch.randn(nodes, 64, generator=generator).to(device))
    scale = torch.tensor(0.5, device=device)
    tiny = BitTensor(xb.words[:4, :2].contiguous(), 64)
    yield "bmm.bbb, 4 × 64 × 4", partial(bmm.bbb, tiny, tiny)
    yield "F.linear, 4 × 64 × 4", partial(functional.linear, x[:4, :64], weight[:4, :64])
    yield "bmm.bbb", partial(bmm.bbb, xb, wb)
    yield "bmm.bbf", partial(bmm.bbf, xb, wb)
    yield "bspmm.bbb, Cora size", partial(bspmm.bbb, hidden, adjacency)
    yield "ternary.linear", partial(ternary.linear, x, wb, scale)
    yield "ternary.linear, scale a number", partial(ternary.linear, x, wb, 0.5)
    for dtype in (torch.float32, torch.float16)[: 2 if device == "cuda" else 1]:
        name = f"F.linear, {str(dtype).removeprefix('torch.')}"
        yield name, partial(functional.linear, x.to(dtype), weight.to(dtype))
