"""Frozen networks for the whole-model benchmark: their forms, ways to run and check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.tasks import NodeTask, untrained_model
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, call_by_call, capture

FORMS = ("bin", "full")
EXECUTORS = {"cpu": ("eager",), "cuda": ("eager", "cuda_graph")}
"""Ways to run a network, by device: operator by operator, or captured."""
SPARSE = "sparse"
"""Name of features in a sparse tensor of torch's."""
TOLERANCE = 1e-4
FLIPPED_BITS = 1e-6
"""Part of the hidden bits that may differ where they are signs of float sums."""
FLIPPED_NODES = 1e-2
"""Part of the nodes whose scores these may reach."""


@dataclass(frozen=True)
class Frozen:
    """A frozen network with its prepared inputs and the network it was frozen from.

    Attributes:
        model: the frozen network.
        emulated: the same network in floats.
        inputs: features and prepared graph by name: ``"floats"``, ``"packed"``,
            ``"packed dense"`` where the packed form is the pattern of set bits instead of words,
            and ``"sparse"`` where they are also given as a sparse tensor.
        training: how the network was trained, and what it reached.
    """

    model: FrozenModel
    emulated: Any
    inputs: dict[str, tuple[Any, Any]]
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Any:
        """The graph as it is prepared unless asked otherwise."""
        return self.inputs["floats"][1]


def freeze_network(kind: str, form: str, task: NodeTask) -> Frozen:
    """A binary network with random weights and the task's own input statistics, frozen."""
    model = untrained_model(task, kind, form)
    packed = freeze(model, check=False)  # random weights
    return Frozen(packed, model, inputs_of(packed, task))


def inputs_of(model: FrozenModel, task: NodeTask) -> dict[str, tuple[Any, Any]]:
    """Features of a task in every form that a frozen network takes, with its prepared graph."""
    graph = model.prepare_graph(task.edge_index, task.num_nodes)
    bits = model.pack_features(task.x)
    inputs = {"floats": (task.x, graph), "packed": (bits, graph)}
    if isinstance(bits, BitAdjacency):
        inputs["packed dense"] = (model.pack_features(task.x, layout="dense"), graph)
    return inputs


def make_call(model: FrozenModel, executor: str, x: Any, graph: Any) -> Callable[[], Tensor]:
    """A call of a model in one of the ways to run it."""
    return partial(model, x, graph) if executor == "eager" else capture(model, x, graph)


@torch.inference_mode()
def check(network: Frozen, features: str, task: NodeTask) -> dict[str, Any]:
    """Compares a frozen network with the network it was frozen from, on all nodes.

    Signs of sums that stand next to their threshold are as good as either: where such sums are
    floats in another order of operations (after a standardisation of rows, or in a layer that
    takes signs of floats), one hidden bit in a million may differ, and as many nodes' classes.
    """
    precisions = network.emulated.precisions
    hidden: dict[str, Tensor] = {}
    hooks = [
        conv.register_forward_hook(partial(_keep, hidden, f"convs.{i}"))
        for i, conv in enumerate(network.emulated.convs)
        if precisions[i].bspmm[2] == "B"
    ]
    try:
        expected = network.emulated(task.x, network.graph)
    finally:
        for hook in hooks:
            hook.remove()
    scores = network.model(*network.inputs[features])
    bits = _hidden_bits(network, features) if hidden else {}
    different = 0
    for layer, values in hidden.items():
        different += int(((values > 0) != (bits[layer].to_float() > 0)).sum())
    close = torch.isclose(scores, expected, rtol=TOLERANCE, atol=TOLERANCE).all(1)
    far = int((~close).sum())
    classes = int((scores.argmax(1) != expected.argmax(1)).sum())
    handed_over = sum(values.numel() for values in hidden.values())
    exact = far == 0 and different == 0
    if any(p.input_norm == "standardize" for p in precisions) or not hidden:
        allowed = FLIPPED_BITS * (
            handed_over or expected.size(0) * network.emulated.hidden_channels
        )
    else:
        allowed = 0.0
    flipped = different > 0 or not hidden  # without bits handed over they are not seen
    few = max(1, different, classes) <= allowed and far <= FLIPPED_NODES * expected.size(0)
    return {
        "passed": exact or (flipped and few),
        "exact": exact,
        "different_bits": different,
        "hidden_bits": handed_over,
        "different_nodes": far,
        "different_classes": classes,
        "largest_difference": float((scores - expected).abs().max()),
    }


def _keep(found: dict[str, Tensor], layer: str, module: Any, inputs: Any, output: Tensor) -> None:
    found[layer] = output


def _hidden_bits(network: Frozen, features: str) -> dict[str, BitTensor]:
    """The last bits that each layer of the frozen network hands over."""
    found = {}
    for step, _, result in call_by_call.steps(network.model, *network.inputs[features]):
        if isinstance(result, BitTensor):
            found[step.layer] = result
    return found
